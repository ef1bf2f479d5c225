//! Attacks on `RateLimiter`: callers that leave at every moment, rates that change under those who
//! wait, processes that disagree about the rate, releases of others' permits, faults, foreign values,
//! and settings at their ends.

mod aborts;
mod bad_state;
mod changes;
mod crowds;
mod faults;
mod releases;
mod runtimes;
mod setters;
mod settings;
mod witness;

use std::time::{Duration, Instant};

use tidegate::Redis;
use tidegate::limiter::{LimiterError, LimiterErrorKind, Rate, RateLimiter};
use tokio::time::sleep;

/// A limiter with a rate for everybody.
async fn limiter(redis: &Redis, name: &str, permits: u64, interval: Duration) -> RateLimiter {
    let limiter = RateLimiter::new(redis, name);
    set(&limiter, permits, interval).await;
    limiter
}

async fn set(limiter: &RateLimiter, permits: u64, interval: Duration) {
    let set = limiter.set_rate(Rate::overall(permits, interval).expect("valid"));
    set.await.expect("a rate");
}

/// Replaces the rate as a process does that starts with another one: earlier grants still count.
async fn replace_rate(limiter: &RateLimiter, rate: Rate) {
    // It sets the rate, and is denied for ever.
    let newer = limiter.clone().rate(rate);
    let denied = newer.try_acquire(Rate::MAX_PERMITS).await;
    assert_eq!(kind(denied), Some(LimiterErrorKind::AboveRate));
}

async fn available(limiter: &RateLimiter) -> u64 {
    limiter.available_permits().await.expect("an answer")
}

/// Waits until so many permits are free, and shows what there is instead.
async fn becomes_available(limiter: &RateLimiter, permits: u64, within: Duration) {
    let began = Instant::now();
    loop {
        // Just after a fault a call may still fail.
        let free = limiter.available_permits().await;
        if free.as_ref().ok() == Some(&permits) {
            return;
        }
        let name = limiter.name();
        let after = began.elapsed();
        assert!(
            after < within,
            "{name}: {free:?} and not {permits} are free after {after:?}"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

fn kind<T>(answer: Result<T, LimiterError>) -> Option<LimiterErrorKind> {
    answer.err().map(|error| error.kind())
}
