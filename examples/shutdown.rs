//! The end of a process: a worker that is asked to stop gives back what it holds, a lock and a
//! permit, and what a limiter may just have granted to it.
//!
//! `cargo run --features full --example shutdown` uses the Redis at `REDIS_URL`, or starts one. It
//! stops at Ctrl-C or SIGTERM.

#[path = "support/redis.rs"]
mod redis_support;

use std::error::Error;
use std::time::Duration;

use redis_support::Server;
use tidegate::limiter::{Rate, RateLimiter};
use tidegate::lock::Lock;
use tidegate::{Limits, Quota, Redis, RedisStore, Rule};
use tokio::signal::unix::{SignalKind, signal};

const BOUND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::from_env()?;
    let redis = server.connect().await?;
    let rule = Rule::new("job", [Quota::per_hour(1_000)])?.with_max_concurrent(1)?;
    let limits = Limits::new([rule]).store(RedisStore::of(&redis));
    let mut terminate = signal(SignalKind::terminate())?;

    let mut calls = 0;
    tokio::select! {
        ended = work(&redis, &limits, &mut calls) => ended?,
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    // Whoever waits for its turn is denied.
    limits.stop_waiting();
    // What the worker held was dropped. Its release is on its way, which would end with `main`.
    let is_released = redis.flush(BOUND).await && limits.flush(BOUND).await;
    println!("{calls} calls; all is given back: {is_released}");
    Ok(())
}

async fn work(redis: &Redis, limits: &Limits, calls: &mut u64) -> Result<(), Box<dyn Error>> {
    let hour = Duration::from_secs(3_600);
    let partner = RateLimiter::new(redis, "partner").rate(Rate::overall(1_000_000, hour)?);
    let _guard = Lock::new(redis, "report").lock().await?;
    let _admitted = limits.check("job", "report").await?;
    println!("working");
    loop {
        partner.acquire(1).await?;
        *calls += 1;
    }
}
