use std::fmt;
use std::sync::Arc;

use super::client::Client;
use super::limiters::Limiters;
use super::memory_limiters::MemoryLimiters;
#[cfg(feature = "redis")]
use super::redis_limiters::RedisLimiters;
#[cfg(feature = "redis")]
use crate::connection::Redis;

/// Where a [`RateLimiter`](super::RateLimiter) keeps its state: converted from a `Redis` handle or
/// from [`MemoryLimiters`].
#[derive(Clone)]
pub struct LimiterBackend {
    pub(super) limiters: Arc<dyn Limiters>,
    pub(super) client: Arc<Client>,
}

impl From<MemoryLimiters> for LimiterBackend {
    fn from(limiters: MemoryLimiters) -> Self {
        Self {
            client: Arc::clone(limiters.client()),
            limiters: Arc::new(limiters),
        }
    }
}

impl From<&MemoryLimiters> for LimiterBackend {
    fn from(limiters: &MemoryLimiters) -> Self {
        limiters.clone().into()
    }
}

#[cfg(feature = "redis")]
impl From<&Redis> for LimiterBackend {
    fn from(redis: &Redis) -> Self {
        let client = redis.keep(|_| Client::with_uuid(redis.id()));
        Self {
            limiters: Arc::new(RedisLimiters::new(redis, client.id())),
            client,
        }
    }
}

#[cfg(feature = "redis")]
impl From<Redis> for LimiterBackend {
    fn from(redis: Redis) -> Self {
        Self::from(&redis)
    }
}

#[cfg(all(feature = "redis", feature = "test-util"))]
impl LimiterBackend {
    /// Limiters on Redis that decide by a clock that a test moves by hand, instead of the server's
    /// clock. Callers still wait by tokio's clock.
    #[must_use]
    pub fn redis_with_clock(redis: &Redis, clock: crate::test_util::ManualClock) -> Self {
        let client = redis.keep(|_| Client::with_uuid(redis.id()));
        Self {
            limiters: Arc::new(RedisLimiters::new(redis, client.id()).with_clock(clock)),
            client,
        }
    }
}

impl fmt::Debug for LimiterBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiters.fmt(f)
    }
}

/// How permits are counted: Redisson's rate limiter has counted them in three ways.
///
/// All processes that share a limiter must use the same generation. The generations use the same
/// keys, so a fleet can move from one to the next; permits that were granted before keep counting,
/// some of them for longer. Only the third generation can tell grants apart: with the others, a
/// dropped future gives nothing back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Generation {
    /// Redisson 3.10: a fixed window.
    ///
    /// A value holds the remaining permits and expires one interval after the first grant. Around
    /// the end of a window, up to twice the rate is granted within one interval. A denied caller
    /// asks again when the window ends. It supports neither
    /// [`release`](super::RateLimiter::release) nor [`fair`](super::RateLimiter::fair).
    First,
    /// Redisson after 3.10: a sliding window.
    ///
    /// A sorted set holds the grants. A denied caller asks again when the earliest grant expires,
    /// even if too few permits are available then. It supports neither `release` nor `fair`.
    Second,
    /// Redisson since 3.30, with its errors corrected: a sliding window.
    ///
    /// A denied caller asks again when as many permits as it wants have expired.
    #[default]
    Third,
}
