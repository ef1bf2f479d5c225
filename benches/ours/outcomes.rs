//! What charging by outcome costs a service: requests over 64 connections whose handlers answer at
//! once, saturated, and 90 % of them are given back; beside the same rule without `refund-on`. The
//! bench starts a server of its own, and needs wrk.

mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use kit::Redis;
use redis::{Connection, InfoDict, cmd};
use support::Table;
use tidegate::{Algorithm, Key, Limits, Quota, RedisStore, Rule, Rules};

const ROUNDS: usize = 7;
const KEYS: u64 = 100_000;

fn path(algorithm: Algorithm, is_hot: bool, is_refunding: bool) -> String {
    let keys = if is_hot { "hot" } else { "keys" };
    let outcome = if is_refunding { "refund-on" } else { "kept" };
    format!("{}-{keys}-{outcome}", algorithm.name())
}

fn rules() -> Rules {
    let mut rules = Vec::new();
    for algorithm in Algorithm::ALL {
        for is_hot in [true, false] {
            for is_refunding in [true, false] {
                let quota = Quota::new(Duration::from_secs(60), 1_000_000_000).expect("valid");
                let path = path(algorithm, is_hot, is_refunding);
                let mut rule = Rule::new(&path, [quota]).expect("valid");
                rule = rule.with_algorithm(algorithm);
                if is_refunding {
                    rule = rule.with_refund_on(["2xx"]).expect("valid");
                }
                if !is_hot {
                    let next = AtomicU64::new(0);
                    rule = rule.with_key(move |_: &http::request::Parts| {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        Ok(Key::from(
                            (number.wrapping_mul(7_919) % KEYS).to_string().as_str(),
                        ))
                    });
                }
                rules.push(rule);
            }
        }
    }
    Rules::from_iter(rules)
}

/// Requests per second.
fn load(address: std::net::SocketAddr, path: &str) -> f64 {
    let url = format!("http://{address}/{path}");
    let arguments = ["-t1", "-c64", "-d1s", &url];
    let output = Command::new("wrk")
        .args(arguments)
        .output()
        .expect("wrk runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    line.expect("a result").trim().parse().expect("a number")
}

/// Script calls and microseconds in them since the last question.
fn script_calls(connection: &mut Connection) -> (f64, f64) {
    let info: InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .expect("informs");
    let stats: String = info.get("cmdstat_evalsha").unwrap_or_default();
    let field = |name: &str| {
        let mut fields = stats.split(',').filter_map(|pair| pair.strip_prefix(name));
        fields
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0)
    };
    cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(connection)
        .expect("resets");
    (field("calls="), field("usec="))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The algorithms that the command line names, or all.
fn algorithms() -> impl Iterator<Item = Algorithm> {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| !it.starts_with('-'))
        .collect();
    let is_wanted =
        move |one: &Algorithm| named.is_empty() || named.iter().any(|it| it == one.name());
    Algorithm::ALL.into_iter().filter(is_wanted)
}

fn main() {
    let server = Redis::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (address, limits) = runtime.block_on(async {
        let store = RedisStore::connect(server.url.as_str())
            .await
            .expect("connects");
        let limits = Limits::new(rules()).store(store.timeout(Duration::from_secs(5)));
        let asked = Arc::new(AtomicU64::new(0));
        let mut app = Router::new();
        for rule in rules().iter() {
            let asked = Arc::clone(&asked);
            let handler = get(move || async move {
                match asked.fetch_add(1, Ordering::Relaxed) % 10 {
                    0 => StatusCode::INTERNAL_SERVER_ERROR,
                    _ => StatusCode::OK,
                }
            });
            let path = rule.path();
            app = app.route(&format!("/{path}"), handler.layer(limits.layer(path)));
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, app).await });
        (address, limits)
    });
    let mut connection = server.connection();
    let mut table = Table::new(&[
        "64 connections, 90 % given back",
        "requests/s",
        "without refund-on",
        "ratio",
        "script calls for each request",
        "without",
        "µs of the server for each request",
        "without",
        "lost",
    ]);
    for algorithm in algorithms() {
        for is_hot in [true, false] {
            let (mut ratios, mut rates) = (Vec::new(), [Vec::new(), Vec::new()]);
            let mut calls = [Vec::new(), Vec::new()];
            let mut micros = [Vec::new(), Vec::new()];
            for round in 0..=ROUNDS {
                let mut rate = [0.0, 0.0];
                for is_refunding in if round % 2 == 0 {
                    [true, false]
                } else {
                    [false, true]
                } {
                    script_calls(&mut connection);
                    let path = path(algorithm, is_hot, is_refunding);
                    let at = usize::from(!is_refunding);
                    rate[at] = load(address, &path);
                    assert!(runtime.block_on(limits.flush(Duration::from_secs(5))));
                    let (number, spent) = script_calls(&mut connection);
                    if round > 0 {
                        rates[at].push(rate[at]);
                        calls[at].push(number / rate[at]);
                        micros[at].push(spent / rate[at]);
                    }
                }
                if round > 0 {
                    ratios.push(rate[0] / rate[1]);
                }
            }
            let path = path(algorithm, is_hot, true);
            let lost = limits
                .snapshot()
                .rule(&path)
                .map_or(0, |rule| rule.refunds_lost);
            let [with, without] = rates.map(median);
            let [calls, kept_calls] = calls.map(median);
            let [micros, kept_micros] = micros.map(median);
            table.row(&[
                format!(
                    "{}, {}",
                    algorithm.name(),
                    if is_hot { "one key" } else { "100,000 keys" }
                ),
                format!("{with:.0}"),
                format!("{without:.0}"),
                format!("{:.2}", median(ratios)),
                format!("{calls:.3}"),
                format!("{kept_calls:.3}"),
                format!("{micros:.1}"),
                format!("{kept_micros:.1}"),
                lost.to_string(),
            ]);
        }
    }
    table.print();
}
