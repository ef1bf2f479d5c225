use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::client::Client;
use super::{Generation, LimiterError, Rate};

/// Where rate limiters are kept: by name, each with its rate and what it has granted.
///
/// Each function is atomic. A name without a rate is an
/// [`UnknownLimiter`](super::LimiterErrorKind::UnknownLimiter) to all that ask for permits or give
/// some back.
pub(super) trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Asks for permits now, for one caller behind the other.
    fn ask(&self, what: Wanted, ids: Vec<Id>) -> BoxFuture<'static, Result<Reply, LimiterError>>;

    /// Gives back what was granted and still counts, ends the fair waiting of those that were not
    /// granted anything, and tells how many permits came back.
    fn give_back(
        &self,
        name: Arc<str>,
        grants: Vec<Grant>,
    ) -> BoxFuture<'static, Result<u64, LimiterError>>;

    /// Gives back up to so many permits of this client, and tells how many.
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

    /// Tells who counts here, and how long the rate is kept without a grant; `None` without a rate.
    fn keeping<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Kept>, LimiterError>>;

    /// Lets the limiter be forgotten after so long, and tells whether there is one.
    fn expire<'a>(
        &'a self,
        name: &'a str,
        after: Duration,
    ) -> BoxFuture<'a, Result<bool, LimiterError>>;

    /// Forgets the limiter, and tells whether there was one.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>>;

    fn exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>>;

    /// How long one call may take.
    fn timeout(&self) -> Duration;

    /// Where questions are asked; if there is none, in the runtime of the caller.
    fn runtime(&self) -> Option<&Handle>;

    /// This process, as a client of the limiters.
    fn client(&self) -> &Client;
}

/// Tells a caller's question, and what is granted to it, from all others: the client, and a number.
pub(super) type Id = [u8; 16];

/// Permits that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: Arc<str>,
    pub(super) generation: Generation,
    /// Whether callers are served in the order in which they came, over all processes.
    pub(super) is_fair: bool,
    pub(super) permits: u64,
    /// Callers with another one do not share calls with these.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
pub(super) struct Reply {
    /// The callers that have their permits, by their places in the question.
    pub(super) granted: Vec<usize>,
    /// When they were granted, for [`Grant`].
    pub(super) stamp: u64,
    /// The first of the others cannot have its permits before this has passed.
    pub(super) wait: Duration,
}

/// Permits that a caller was granted, or may have been.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) id: Id,
    pub(super) stamp: u64,
    pub(super) permits: u64,
}

/// How a rate is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) sharers: Sharers,
    /// If nothing is granted until then, it is forgotten.
    pub(super) life: Option<Duration>,
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
