//! What a take costs inside Redis, in microseconds of the server's time and in bytes, next to a script
//! that only does what the best-known sorted-set limiter does. It starts a server of its own.

#[path = "../tests/support/mod.rs"]
mod server;
mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, InfoDict, cmd};
use server::Redis;
use support::{Table, median};

const CALLS: usize = 20_000;
const ROUNDS: usize = 11;
const MAX: u64 = 1_000_000_000;
const WINDOW_MS: u64 = 10_000;

/// A script and how its arguments are made.
struct Script {
    sha: String,
    arguments: fn(&Ask) -> Vec<String>,
}

/// One question, for every script alike.
struct Ask {
    /// Set: the time in ms. Unset: now.
    at: Option<u64>,
    max: u64,
    window_ms: u64,
    number: usize,
}

fn ours(ask: &Ask) -> Vec<String> {
    let now = ask.at.map_or(String::new(), |at| (at * 1_000).to_string());
    let expiry = ask.window_ms + 2_098;
    let window = ask.window_ms * 1_000;
    [
        now,
        expiry.to_string(),
        "1".into(),
        ask.max.to_string(),
        window.to_string(),
        "1".into(),
    ]
    .into()
}

fn first_design(ask: &Ask) -> Vec<String> {
    let now = ask.at.unwrap_or_else(now_ms);
    let member = format!("192.168.10.21:{now}:0.{:010}", ask.number);
    let numbers = [now, ask.window_ms, ask.max, now - ask.window_ms];
    let numbers = numbers.iter().map(u64::to_string);
    numbers.chain([member]).collect()
}

fn nothing(_: &Ask) -> Vec<String> {
    Vec::new()
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.expect("after 1970").as_millis();
    u64::try_from(millis).expect("a long time")
}

fn load(connection: &mut Connection, source: &str, arguments: fn(&Ask) -> Vec<String>) -> Script {
    let sha = cmd("SCRIPT").arg("LOAD").arg(source).query(connection);
    let sha = sha.expect("a valid script");
    Script { sha, arguments }
}

/// Microseconds of server time for each call of a run.
fn run(
    connection: &mut Connection,
    script: &Script,
    asks: impl Iterator<Item = (String, Ask)>,
) -> f64 {
    let mut pipeline = redis::pipe();
    for (key, ask) in asks {
        pipeline.cmd("EVALSHA").arg(&script.sha).arg(1).arg(key);
        pipeline.arg((script.arguments)(&ask)).ignore();
    }
    cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(connection)
        .expect("resets");
    pipeline.exec(connection).expect("runs");
    let info: InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .expect("informs");
    let stats: String = info.get("cmdstat_evalsha").expect("was called");
    let field = |name: &str| {
        let value = stats.split(',').find_map(|pair| pair.strip_prefix(name));
        value
            .expect("a known field")
            .parse::<f64>()
            .expect("a number")
    };
    field("usec=") / field("calls=")
}

/// A traffic: which key is asked when, and what has happened before.
struct Traffic {
    name: &'static str,
    before: usize,
    takes: usize,
    ask: fn(usize) -> (String, Ask),
}

fn traffics() -> Vec<Traffic> {
    vec![
        Traffic {
            name: "allowed, one busy key, 200,000 takes in its window",
            before: 0,
            takes: 10 * CALLS,
            ask: |n| ("k".into(), ask(None, MAX, n)),
        },
        Traffic {
            name: "allowed, 2,000 keys of 10 takes each",
            before: 0,
            takes: CALLS,
            ask: |n| (format!("k{}", n % 2_000), ask(None, MAX, n)),
        },
        Traffic {
            name: "allowed, each key for the first time",
            before: 0,
            takes: CALLS,
            ask: |n| (format!("k{n}"), ask(None, MAX, n)),
        },
        Traffic {
            name: "allowed, a full window that one take leaves as one comes",
            before: 100,
            takes: CALLS,
            ask: |n| {
                (
                    "k".into(),
                    ask(Some(1_800_000_000_000 + 100 * n as u64), 100, n),
                )
            },
        },
        Traffic {
            name: "denied, max 100",
            before: 100,
            takes: CALLS,
            ask: |n| ("k".into(), ask(None, 100, n)),
        },
    ]
}

fn ask(at: Option<u64>, max: u64, number: usize) -> Ask {
    Ask {
        at,
        max,
        window_ms: WINDOW_MS,
        number,
    }
}

fn time_table(connection: &mut Connection, scripts: [&Script; 3]) -> Table {
    let head = [
        "server time, µs a call",
        "`sliding_log`",
        "the first design",
        "ratio",
        "`return 1`",
    ];
    let mut table = Table::new(&head);
    for traffic in traffics() {
        let rounds: Vec<[f64; 3]> = (0..ROUNDS)
            .map(|_| scripts.map(|script| round(connection, script, &traffic)))
            .collect();
        let of = |at: usize| median(rounds.iter().map(|round| round[at]));
        table.row(&[
            traffic.name.to_owned(),
            format!("{:.2}", of(0)),
            format!("{:.2}", of(1)),
            format!(
                "{:.2}",
                median(rounds.iter().map(|round| round[0] / round[1]))
            ),
            format!("{:.2}", of(2)),
        ]);
    }
    table
}

fn round(connection: &mut Connection, script: &Script, traffic: &Traffic) -> f64 {
    cmd("FLUSHALL").exec(connection).expect("flushes");
    if traffic.before > 0 {
        run(connection, script, (0..traffic.before).map(traffic.ask));
    }
    let all = traffic.before..traffic.before + traffic.takes;
    let parts = all.clone().step_by(CALLS).map(|from| {
        let asks = from..all.end.min(from + CALLS);
        run(connection, script, asks.map(traffic.ask))
    });
    let parts: Vec<f64> = parts.collect();
    parts.iter().sum::<f64>() / parts.len() as f64
}

/// Bytes of a key after so many takes, evenly over one window.
fn bytes(connection: &mut Connection, script: &Script, takes: usize) -> u64 {
    cmd("FLUSHALL").exec(connection).expect("flushes");
    let spread = |n: usize| Some(1_800_000_000_000 + (WINDOW_MS * n as u64) / takes as u64);
    for from in (0..takes).step_by(CALLS) {
        let asks = from..takes.min(from + CALLS);
        run(
            connection,
            script,
            asks.map(|n| ("k".into(), ask(spread(n), MAX, n))),
        );
    }
    let usage = cmd("MEMORY")
        .arg("USAGE")
        .arg("k")
        .arg("SAMPLES")
        .arg(0)
        .query(connection);
    usage.expect("the key exists")
}

fn main() {
    let redis = Redis::start();
    let connection = &mut redis.connection();
    let sliding_log = load(connection, include_str!("../lua/sliding_log.lua"), ours);
    let first = load(connection, include_str!("first_design.lua"), first_design);
    let idle = load(connection, "return 1", nothing);

    time_table(connection, [&sliding_log, &first, &idle]).print();

    let head = [
        "bytes of a key, takes in a 10 s window",
        "`sliding_log`",
        "the first design",
    ];
    let mut table = Table::new(&head);
    for takes in [1, 100, 10_000, 1_000_000] {
        let ours = bytes(connection, &sliding_log, takes);
        let theirs = bytes(connection, &first, takes);
        table.row(&[takes.to_string(), ours.to_string(), theirs.to_string()]);
    }
    table.print();
}
