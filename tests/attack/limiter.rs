//! Attacks on `RateLimiter`: callers that leave at every moment, rates that change under those who
//! wait, releases of others' permits, faults, foreign values, and settings at their ends.

mod aborts;
mod bad_state;
mod changes;
mod crowds;
mod faults;
mod releases;
mod runtimes;
mod settings;
mod witness;

use std::time::{Duration, Instant};

use test_support::Redis as Server;
use tidegate::Redis;
use tidegate::limiter::{LimiterError, LimiterErrorKind, RateLimiter, RateType};
use tokio::time::sleep;

use crate::PATIENT;

/// A handle on the server: to Redis, a process of its own.
pub(crate) async fn handle(url: &str) -> Redis {
    let redis = Redis::connect(url).await.expect("a running server");
    redis.timeout(PATIENT)
}

/// A limiter with a rate for everybody.
async fn limiter(redis: &Redis, name: &str, permits: u64, interval: Duration) -> RateLimiter {
    let limiter = RateLimiter::new(redis, name);
    set(&limiter, permits, interval).await;
    limiter
}

async fn set(limiter: &RateLimiter, permits: u64, interval: Duration) {
    let set = limiter.set_rate(RateType::Overall, permits, interval);
    set.await.expect("a rate");
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

/// Law 4: nothing but these keys stays for ever.
pub(crate) fn check_expiries(server: &Server, kept: &[&str]) {
    let mut connection = server.connection();
    let names: Vec<Vec<u8>> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut connection)
        .expect("the keys");
    for name in names {
        let left: i64 = redis::cmd("PTTL")
            .arg(&name)
            .query(&mut connection)
            .expect("a time");
        let name = String::from_utf8_lossy(&name);
        let is_kept = kept.contains(&&*name);
        assert!(is_kept || left != -1, "law 4: {name} stays for ever");
    }
}

fn kind<T>(answer: Result<T, LimiterError>) -> Option<LimiterErrorKind> {
    answer.err().map(|error| error.kind())
}
