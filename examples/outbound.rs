//! Three processes call a partner that allows 10 calls a second in all. Each waits for its turns, and
//! when the partner refuses a call of A, all three leave it alone until it wants calls again.
//!
//! `cargo run --example outbound` uses the Redis at `REDIS_URL`, or starts one.

#[path = "support/redis.rs"]
mod support;

use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use support::Server;
use tidegate::{Key, Limits, Quota, RedisStore, Rule};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const CALLS: usize = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::var("TIDEGATE_OUTBOUND") {
        Ok(words) => call_the_partner(&words).await,
        Err(_) => start_all().await,
    }
}

/// Runs in each of the processes.
async fn call_the_partner(words: &str) -> Result<(), Box<dyn Error>> {
    let (name, url) = words.split_once(' ').ok_or("a name and a URL")?;
    let limits = limits(url).await?;
    let partner = limits.outgoing("partner").wait(Duration::from_secs(30));
    for number in 0..CALLS {
        let turn = partner.ready(Key::secret("our-token")).await?;
        println!(
            "{}",
            SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis()
        );
        // In place of a call: the fourth one of A is refused for two seconds.
        let mut fields = HeaderMap::new();
        let status = match (name, number) {
            ("A", 3) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        fields.insert("retry-after", "2".parse()?);
        turn.observe_response(status, &fields);
    }
    Ok(())
}

/// In a file: `[rules.partner] outgoing = true, max-count = 10, window = "1s"`.
async fn limits(url: &str) -> Result<Limits, Box<dyn Error>> {
    let rule = Rule::new("partner", [Quota::per_second(10)])?.with_outgoing()?;
    let store = RedisStore::connect(url).await?.prefix("outbound:");
    Ok(Limits::new([rule]).store(store))
}

async fn start_all() -> Result<(), Box<dyn Error>> {
    let server = Server::from_env()?;
    limits(&server.url)
        .await?
        .reset("partner", Key::secret("our-token"))
        .await?;
    let names = ["A", "B", "C"];
    let start = |name: &str| {
        Command::new(std::env::current_exe()?)
            .env("TIDEGATE_OUTBOUND", format!("{name} {}", server.url))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    };
    let processes = names.map(start);
    println!(
        "{} processes, {CALLS} calls each, 10 a second in all: \
         the process of each call, by tenths of a second",
        names.len()
    );
    let mut calls = Vec::new();
    for (name, process) in names.into_iter().zip(processes) {
        let mut process = process?;
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
