//! A lone request: one connection to the HTTP server, one request at a time, and the contenders in
//! turns of a hundred requests. `lone serve URL` is the HTTP server.

use std::time::Instant;

use axum::Router;
use tidegate_peers::client::Client;
use tidegate_peers::contenders::{self, EVALSHA, PLAIN, Traffic, path};
use tidegate_peers::servers::{HttpServer, RedisServer};
use tidegate_peers::statistics::median;
use tidegate_peers::{Result, others, ours, reference, rounds::Rounds, serve, table};

const BLOCK: usize = 100;
/// Blocks of each contender in a second of a round, about.
const BLOCKS: usize = 10;
const NAMES: [&str; 11] = [
    PLAIN,
    EVALSHA,
    reference::SAME_LOG,
    reference::SAME_GCRA,
    "log",
    "gcra",
    "log-resilient",
    "memory",
    "tower-rate-limiter",
    "tower-rate-limiter-gcra",
    "tower-rate-limit-redis",
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, redis] = arguments.as_slice()
        && serve == "serve"
    {
        return serve::serve(router(redis));
    }
    let Rounds { rounds, seconds } = Rounds::from_arguments()?;
    let mut redis = RedisServer::start(&[])?;
    let http = HttpServer::start(&redis.url())?;
    let mut client = Client::connect(http.port)?;
    for name in NAMES {
        block(&mut client, name)?;
    }
    // For each contender, the medians of its rounds; a round has all contenders in turns.
    let mut medians = vec![Vec::new(); NAMES.len()];
    let mut scripts = [0.0; NAMES.len()];
    let mut blocks = 0.0;
    for round in 1..=rounds {
        eprintln!("lone: round {round}");
        let mut samples = vec![Vec::new(); NAMES.len()];
        for _ in 0..BLOCKS * usize::try_from(seconds)? {
            for (at, name) in NAMES.into_iter().enumerate() {
                redis.reset_counts()?;
                samples[at].extend(block(&mut client, name)?);
                scripts[at] += redis.counts()?.script_micros;
            }
            blocks += BLOCK as f64;
        }
        for (medians, samples) in medians.iter_mut().zip(samples) {
            medians.push(median(samples));
        }
    }
    let bare = NAMES.iter().position(|name| *name == EVALSHA);
    let bare = medians[bare.ok_or("no bare call")?].clone();
    let rows = NAMES
        .into_iter()
        .zip(&medians)
        .zip(scripts)
        .map(|((name, own), script)| row(name, own, &bare, script / blocks));
    table::print(
        &[
            "one connection, hot key",
            "p50, µs",
            "of the rounds",
            "to the bare call",
            "of the rounds",
            "scripts on the server, µs a request",
        ],
        &rows.collect::<Vec<_>>(),
    );
    Ok(())
}

fn row(name: &str, own: &[f64], bare: &[f64], script: f64) -> Vec<String> {
    let ratios: Vec<f64> = own.iter().zip(bare).map(|(own, bare)| own / bare).collect();
    let spread = |values: &[f64], digits: usize| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        format!("{least:.digits$} to {most:.digits$}")
    };
    vec![
        format!("`{name}`"),
        format!("{:.1}", median(own.to_vec())),
        spread(own, 1),
        format!("{:.2}", median(ratios.clone())),
        spread(&ratios, 2),
        format!("{script:.1}"),
    ]
}

async fn router(redis: &str) -> Result<Router> {
    Ok(contenders::plain_routes()
        .merge(reference::router(redis).await?)
        .merge(ours::router(redis).await?)
        .merge(others::router(redis).await?))
}

/// The microseconds of each request of a block.
fn block(client: &mut Client, name: &str) -> Result<Vec<f64>> {
    let path = path(name, Traffic::Hot);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nx-key: hot\r\n\r\n");
    let ask = |_| {
        let began = Instant::now();
        match client.ask(&request)? {
            200 => Ok(began.elapsed().as_secs_f64() * 1e6),
            status => Err(format!("{path} answered {status}").into()),
        }
    };
    (0..BLOCK).map(ask).collect()
}
