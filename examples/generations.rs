//! Compares the three generations of Redisson's rate limiter, with the same callers for each.
//!
//! `cargo run --features limiter --example generations` uses the Redis at `REDIS_URL`, or starts
//! one.

#[path = "support/redis.rs"]
mod support;

use std::error::Error;
use std::time::Duration;

use support::Server;
use tidegate::Redis;
use tidegate::limiter::{Generation, Rate, RateLimiter};
use tokio::time::{Instant, sleep_until};

const INTERVAL: Duration = Duration::from_millis(400);
const RATE: u64 = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::from_env()?;
    let redis = server.connect().await?;
    println!("{RATE} permits in {INTERVAL:?}\n");
    println!("Callers at the edge of a window: 1 at 0 ms, 4 at 350 ms, 4 at 420 ms.");
    println!("  generation   granted at each   most within {INTERVAL:?}");
    for generation in [Generation::First, Generation::Second, Generation::Third] {
        let granted = edge(&limiter(&redis, generation, "edge").await?).await?;
        let most = granted[0] + granted[1];
        let most = most.max(granted[1] + granted[2]);
        let is_broken = if most > RATE {
            "  <- more than the rate"
        } else {
            ""
        };
        println!(
            "  {:<13}{granted:?}{most:>14}{is_broken}",
            format!("{generation:?}")
        );
    }

    println!(
        "\nA caller that wants 3 permits at 310 ms, after 4 were granted at 0, 100, 200 and 300 ms."
    );
    println!("  generation   served at   calls");
    for generation in [Generation::First, Generation::Second, Generation::Third] {
        let (served, asked) = wait(&redis, &server.url, generation).await?;
        println!(
            "  {:<13}{served:>6} ms{asked:>8}",
            format!("{generation:?}")
        );
    }
    Ok(())
}

async fn limiter(
    redis: &Redis,
    generation: Generation,
    name: &str,
) -> Result<RateLimiter, Box<dyn Error>> {
    let name = format!("generations:{name}:{generation:?}");
    let limiter = RateLimiter::new(redis, name).generation(generation);
    limiter.set_rate(Rate::overall(RATE, INTERVAL)?).await?;
    Ok(limiter)
}

/// Returns how many permits are granted to each burst of callers.
async fn edge(limiter: &RateLimiter) -> Result<[u64; 3], Box<dyn Error>> {
    let began = Instant::now();
    let mut granted = [0; 3];
    for (at, (millis, wanted)) in [(0, 1), (350, 4), (420, 4)].into_iter().enumerate() {
        sleep_until(began + Duration::from_millis(millis)).await;
        for _ in 0..wanted {
            granted[at] += u64::from(limiter.try_acquire(1).await?);
        }
    }
    Ok(granted)
}

/// Returns after how many milliseconds three permits are granted, and in how many calls.
async fn wait(
    redis: &Redis,
    url: &str,
    generation: Generation,
) -> Result<(u128, u64), Box<dyn Error>> {
    let limiter = limiter(redis, generation, "wait").await?;
    let began = Instant::now();
    for at in 0..4 {
        sleep_until(began + Duration::from_millis(100 * at)).await;
        limiter.acquire(1).await?;
    }
    sleep_until(began + Duration::from_millis(310)).await;
    let before = calls(url).await?;
    limiter.acquire(3).await?;
    let asked = calls(url).await? - before;
    Ok((began.elapsed().as_millis(), asked))
}

/// Returns how many script calls the server has counted.
async fn calls(url: &str) -> Result<u64, Box<dyn Error>> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let stats: redis::InfoDict = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await?;
    let stat = stats.get::<String>("cmdstat_evalsha").unwrap_or_default();
    let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="));
    Ok(calls.unwrap_or("0").parse()?)
}
