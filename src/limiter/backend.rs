use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::grant::Grant;
use super::{Generation, LimiterError, Rate};
use crate::lines::{Line, Lines};

/// Where rate limiters are kept: by name, each with its rate and what it has granted.
///
/// Each function is atomic. A name without a rate is an [`UnknownLimiter`](super::LimiterErrorKind::UnknownLimiter) to
/// all that ask for permits or give some back.
pub(super) trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Asks for permits now. If the future is dropped, what may have been granted is given back.
    fn acquire(&self, what: Wanted) -> BoxFuture<'static, Result<Answer, LimiterError>>;

    /// Asks for the first permits behind all others' that can be had within `wait`. As above.
    fn reserve(
        &self,
        what: Wanted,
        wait: Duration,
    ) -> BoxFuture<'static, Result<Answer, LimiterError>>;

    /// Gives back up to so many permits, and tells how many.
    fn release<'a>(
        &'a self,
        name: &'a str,
        permits: u64,
    ) -> BoxFuture<'a, Result<u64, LimiterError>>;

    fn available<'a>(
        &'a self,
        name: &'a str,
        generation: Generation,
    ) -> BoxFuture<'a, Result<u64, LimiterError>>;

    /// Sets a rate, and tells whether it is set now.
    fn configure<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        how: Configure,
        with: Sharers,
    ) -> BoxFuture<'a, Result<bool, LimiterError>>;

    fn rate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Rate>, LimiterError>>;

    /// Lets the limiter be forgotten after so long, and tells whether there is one.
    fn expire<'a>(
        &'a self,
        name: &'a str,
        after: Duration,
    ) -> BoxFuture<'a, Result<bool, LimiterError>>;

    /// Forgets the limiter, and tells whether there was one.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>>;

    fn exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>>;

    fn lines(&self) -> &LimiterLines;
}

/// Permits that are asked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) name: Arc<str>,
    pub(super) generation: Generation,
    pub(super) permits: u64,
}

#[derive(Debug)]
pub(super) enum Answer {
    /// They may be used when this time has passed.
    Granted(Grant, Duration),
    /// They are not to be had before this time has passed.
    Wait(Duration),
}

/// Who counts here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharers {
    /// This crate alone.
    Ours,
    /// Clients of Redisson, too.
    Redisson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Configure {
    /// If there is no rate.
    Try,
    /// In any case; nothing counts as granted any more.
    Set,
    /// If there is one; nothing counts as granted any more.
    Update,
    /// If there is one; what was granted still counts.
    Keep,
}

/// The lines of those who wait for permits, apart from those who wait for locks.
#[derive(Debug, Default)]
pub(super) struct LimiterLines(Lines);

impl LimiterLines {
    pub(super) fn line(&self, name: &str) -> Arc<Line> {
        self.0.line(name)
    }
}
