use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::error::LimiterError;
use super::limiter_backend::Generation;
use super::rate::Rate;
use super::redisson_use::RedissonPermits;

/// The future of a call to [`Limiters`].
pub(super) type LimiterFuture<'a, T> = BoxFuture<'a, Result<T, LimiterError>>;

/// The rate limiters of one server or of this process, by name.
///
/// Each method is atomic. `acquire`, `give_back`, `release` and `available` of a name without a
/// rate fail with [`UnknownLimiter`](super::LimiterErrorKind::UnknownLimiter).
pub(super) trait Limiters: fmt::Debug + Send + Sync + 'static {
    /// Grants the request to one caller after the other, while enough permits are left.
    ///
    /// `redisson_average` is how many permits of Redisson counted lately; `None` if they need not
    /// be counted.
    fn acquire(
        &self,
        request: AcquireRequest,
        callers: Vec<GrantId>,
        redisson_average: Option<u64>,
    ) -> LimiterFuture<'static, AcquireReply>;

    /// Gives back the grants that still count, and removes callers without a grant from the fair
    /// queue. Returns the number of permits given back.
    fn give_back(&self, name: Arc<str>, grants: Vec<Grant>) -> LimiterFuture<'static, u64>;

    /// Gives back at most `permits` that this client was granted. Returns the number given back.
    fn release<'a>(&'a self, name: &'a str, permits: u64) -> LimiterFuture<'a, u64>;

    /// Returns the number of permits that can be granted now.
    fn available<'a>(&'a self, name: &'a str, generation: Generation) -> LimiterFuture<'a, u64>;

    /// Sets the rate as `mode` says. Returns whether the rate was set.
    fn configure<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        mode: ConfigureMode,
        sharing: Sharing,
    ) -> LimiterFuture<'a, bool>;

    fn rate<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<Rate>>;

    /// Returns how the rate is stored; `None` without a rate.
    fn rate_status<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<RateStatus>>;

    /// Lets the limiter expire after this time. Returns whether the limiter exists.
    fn expire<'a>(&'a self, name: &'a str, after: Duration) -> LimiterFuture<'a, bool>;

    /// Deletes the limiter. Returns whether it existed.
    fn delete<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool>;

    fn exists<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool>;

    /// How long one call may take.
    fn timeout(&self) -> Duration;

    /// The runtime that makes the calls; `None` for the runtime of the caller.
    fn runtime(&self) -> Option<&Handle>;
}

/// Identifies a client: the first half of the id of each of its grants.
pub(super) type ClientId = [u8; 8];

/// Identifies one caller's request and its grant: the client in 8 bytes, and a number in 8 bytes.
///
/// The number is less than 2^48: by that the scripts know grants from those of Redisson.
pub(super) type GrantId = [u8; 16];

/// What a caller asks for. Callers with equal requests share calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcquireRequest {
    pub(super) name: Arc<str>,
    pub(super) generation: Generation,
    /// Whether callers of all processes are served in the order of their arrival.
    pub(super) is_fair: bool,
    /// The number of permits that each caller wants.
    pub(super) permits: u64,
    /// How long a call may take. Callers with another timeout make calls of their own.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
pub(super) struct AcquireReply {
    /// The indices of the callers whose permits were granted.
    pub(super) granted: Vec<usize>,
    /// The stamp of the grants: see [`Grant::stamp`].
    pub(super) stamp: u64,
    /// How long the first caller without permits has to wait at least.
    pub(super) wait: Duration,
    /// How many permits of Redisson count, if they were counted.
    pub(super) redisson: Option<RedissonPermits>,
}

/// Permits that were granted, or that may have been granted in a call without a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) id: GrantId,
    /// The millisecond by which limiters in memory find the grant again; 0 on Redis, which finds it
    /// by `id`.
    pub(super) stamp: u64,
    pub(super) permits: u64,
}

/// How a rate is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateStatus {
    pub(super) sharing: Sharing,
    /// When the rate is forgotten unless permits are granted before; `None` for never.
    pub(super) expires_in: Option<Duration>,
}

/// Whether clients of Redisson use the limiter as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    TidegateOnly,
    WithRedisson,
}

/// When a rate is set, and what becomes of the permits that were granted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigureMode {
    /// Only if there is no rate. Earlier grants still count if their rate was forgotten.
    TrySet,
    /// Always. Earlier grants no longer count.
    Set,
    /// Only if there is a rate. Earlier grants no longer count.
    Update,
    /// Only if there is a rate. Earlier grants still count.
    UpdateKeeping,
}
