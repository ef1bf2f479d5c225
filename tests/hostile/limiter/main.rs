//! Attacks on `RateLimiter`: callers that leave at every moment, rates that change under those who
//! wait, releases of others' permits, outages, foreign values, and settings at their ends.

mod aborts;
mod bad_state;
mod changing;
mod crowds;
mod jobs;
mod outlasting;
mod releases;
mod runtimes;
mod settings;
mod slow;

use kit::Redis as Server;
use kit::prelude::*;
use tidegate::Redis;

/// A limiter with a rate for everybody.
async fn limiter(redis: &Redis, name: &str, permits: u64, interval: Duration) -> RateLimiter {
    let limiter = RateLimiter::new(redis, name);
    limiter.sets(overall(permits, interval)).await;
    limiter
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
        let (name, after) = (limiter.name(), began.elapsed());
        let what = format!("{free:?} and not {permits} are free after {after:?}");
        assert!(after < within, "{name}: {what}");
        sleep(millis(20)).await;
    }
}
