//! Three processes call a partner that allows 10 calls a second in all. Each waits for its permits.
//!
//! `cargo run --features limiter --example outbound` uses the Redis at `REDIS_URL`, or starts one.

#[path = "support/redis.rs"]
mod support;

use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::Server;
use tidegate::Redis;
use tidegate::limiter::{Rate, RateLimiter};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const PROCESSES: usize = 3;
const CALLS: usize = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var("TIDEGATE_OUTBOUND") {
        Ok(url) => call_the_partner(&url).await,
        Err(_) => start_all().await,
    }
}

/// Runs in each of the processes.
async fn call_the_partner(url: &str) -> Result<(), Box<dyn Error>> {
    let redis = Redis::connect(url).await?;
    // The first call sets the rate.
    let limiter = RateLimiter::new(&redis, "outbound:partner")
        .rate(Rate::overall(10, Duration::from_secs(1))?)
        .fair();
    for _ in 0..CALLS {
        limiter.acquire(1).await?;
        println!(
            "{}",
            SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis()
        );
    }
    Ok(())
}

async fn start_all() -> Result<(), Box<dyn Error>> {
    let server = Server::from_env()?;
    let redis = server.connect().await?;
    RateLimiter::new(&redis, "outbound:partner")
        .delete()
        .await?;
    let start = || {
        Command::new(std::env::current_exe()?)
            .env("TIDEGATE_OUTBOUND", &server.url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    };
    let processes = (0..PROCESSES)
        .map(|_| start())
        .collect::<Result<Vec<_>, _>>()?;
    println!(
        "{PROCESSES} processes, {CALLS} calls each, 10 a second in all: \
         the process of each call, by tenths of a second"
    );
    let mut calls = Vec::new();
    for (name, mut process) in ["A", "B", "C"].into_iter().zip(processes) {
        let output = process.stdout.take().ok_or("no output")?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            calls.push((line.parse::<u64>()?, name));
        }
        process.wait().await?;
    }
    show(&mut calls);
    Ok(())
}

/// Prints a line for each second.
fn show(calls: &mut [(u64, &str)]) {
    calls.sort_unstable();
    let first = calls.first().map_or(0, |(at, _)| *at);
    let last = calls.last().map_or(0, |(at, _)| at - first);
    for second in 0..=last / 1_000 {
        let tenths = (0..10).map(|tenth| {
            let at = second * 10 + tenth;
            let inside = calls.iter().filter(|(when, _)| (when - first) / 100 == at);
            format!("{:>10}", inside.map(|(_, name)| *name).collect::<String>())
        });
        println!("{second} s |{} |", tenths.collect::<String>());
    }
    let most = calls.iter().enumerate().map(|(at, (when, _))| {
        calls[at..]
            .iter()
            .take_while(|(other, _)| other - when < 990)
            .count()
    });
    println!("at most {} calls within a second", most.max().unwrap_or(0));
}
