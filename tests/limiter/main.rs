//! The rate limiter: on real servers and in memory.

#[allow(dead_code)]
mod changing;
mod dropped;
mod evicted;
mod exact;
mod expiry;
mod faults;
mod fleet;
mod grants;
mod history;
mod layout;
mod outlasting;
mod own_rate;
mod redisson;
mod runtimes;
mod shares;
mod surface;
mod waiting;

use std::time::Duration;

use tidegate::Redis;
use tidegate::limiter::{
    LimiterBackend, LimiterError, LimiterErrorKind, MemoryLimiters, Rate, RateLimiter,
};

/// A limiter with a rate for all.
async fn limiter(on: impl Into<LimiterBackend>, permits: u64, millis: u64) -> RateLimiter {
    let limiter = RateLimiter::new(on, "partner");
    let interval = Duration::from_millis(millis);
    let set = limiter.try_set_rate(Rate::overall(permits, interval).expect("valid"));
    assert!(set.await.expect("an answer"), "the first writer wins");
    limiter
}

/// Replaces the rate as a process does that starts with another one: earlier grants still count.
/// Returns whether there was a rate.
async fn replace_rate(limiter: &RateLimiter, rate: Rate) -> Result<bool, LimiterError> {
    if !limiter.exists().await? {
        return Ok(false);
    }
    // It sets the rate, and is denied for ever.
    let newer = limiter.clone().rate(rate);
    match newer.try_acquire(Rate::MAX_PERMITS).await {
        Err(error) if error.kind() == LimiterErrorKind::AboveRate => Ok(true),
        Err(error) => Err(error),
        Ok(is_granted) => panic!("{is_granted}, but it is more than any rate of a test"),
    }
}

/// With a time-out that only a hanging server exceeds, not a busy machine.
async fn connect(server: &kit::Redis) -> Redis {
    let redis = Redis::connect(&server.url).await.expect("a running server");
    redis.timeout(Duration::from_secs(20))
}

/// Runs a check on both backends.
macro_rules! on_both {
    ($($check:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $check() {
                super::$check(tidegate::limiter::MemoryLimiters::default().into()).await;
            })+
        }
        mod on_redis {
            $(#[tokio::test]
            async fn $check() {
                let server = kit::Redis::start();
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

/// Asserts that all permits can be had again within so long, and that then only the rate is left
/// behind.
async fn assert_comes_to_rest(limiter: &RateLimiter, server: &kit::Redis, within: Duration) {
    let began = std::time::Instant::now();
    let rate = limiter
        .stored_rate()
        .await
        .expect("an answer")
        .expect("a rate");
    loop {
        let available = limiter.available_permits().await.expect("an answer");
        if available == rate.permits() {
            break;
        }
        assert!(began.elapsed() < within, "{available} after {within:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut connection = server.connection();
    loop {
        let names: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut connection)
            .expect("names");
        if names == [limiter.name()] {
            return;
        }
        // Keys that were to last for a reservation do so, also if it was given back.
        let most = within + Duration::from_secs(10);
        assert!(began.elapsed() < most, "{names:?} after {most:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
