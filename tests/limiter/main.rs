//! The rate limiter: on real servers and in memory.

#[path = "../support/mod.rs"]
mod support;

mod history;
mod layout;
mod surface;
mod waiting;

use std::time::Duration;

use tidegate::{LimiterBackend, MemoryLimiters, RateLimiter, RateType, Redis};

/// A limiter with a rate for all.
async fn limiter(on: impl Into<LimiterBackend>, permits: u64, millis: u64) -> RateLimiter {
    let limiter = RateLimiter::new(on, "partner");
    let interval = Duration::from_millis(millis);
    let set = limiter.try_set_rate(RateType::Overall, permits, interval);
    assert!(set.await.expect("an answer"), "the first writer wins");
    limiter
}

/// With a time-out that only a hanging server exceeds, not a busy machine.
async fn connect(server: &support::Redis) -> Redis {
    let redis = Redis::connect(&server.url).await.expect("a running server");
    redis.timeout(Duration::from_secs(20))
}

/// Runs a check on both backends.
macro_rules! on_both {
    ($($check:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $check() {
                super::$check(tidegate::MemoryLimiters::default().into()).await;
            })+
        }
        mod on_redis {
            $(#[tokio::test]
            async fn $check() {
                let server = crate::support::Redis::start();
                let redis = crate::connect(&server).await;
                super::$check((&redis).into()).await;
            })+
        }
    };
}
pub(crate) use on_both;

fn in_memory() -> LimiterBackend {
    MemoryLimiters::default().into()
}
