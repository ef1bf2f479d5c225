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
