//! What permits cost: requests of 100,000 keys over 64 connections of `wrk`, under a quota with
//! `max-concurrent` beside it, and under the same quota alone. The two take turns; ratios are medians
//! over 9 rounds, or as many as ROUNDS says. The bench starts a server of its own.

#[path = "support/served.rs"]
#[allow(dead_code)]
mod served;
mod support;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use kit::Redis;
use served::{CALLS, Costs, MICROS, loaded, one_of, quota, serve};
use support::{Table, median};
use tidegate::{Algorithm, RateLimitLayer, RedisStore, Rule};

const CONTENDERS: [&str; 2] = ["with", "without"];
const KEYS: u64 = 100_000;
/// So many that nothing is denied: the next request of a key comes after those of all others.
const MAX: u64 = 4;

fn app(store: &RedisStore, algorithm: Algorithm) -> Router {
    let route = |app: Router, name| {
        let rule = Rule::new(name, [quota(60)]).expect("valid");
        let rule = match name {
            "with" => rule.with_max_concurrent(MAX).expect("valid"),
            _ => rule,
        };
        let layer = RateLimitLayer::from_rule(rule.with_algorithm(algorithm));
        let layer = layer.store(store.clone()).key(one_of(KEYS));
        app.route(&format!("/{name}"), get(async || "1").layer(layer))
    };
    CONTENDERS.into_iter().fold(Router::new(), route)
}

fn row(algorithm: Algorithm, rounds: &[[Costs; 2]]) -> Vec<String> {
    let of = |at: usize, cost: usize| median(rounds.iter().map(|round| round[at][cost]));
    let ratio = median(rounds.iter().map(|[with, without]| with[0] / without[0]));
    let each = |cost, decimals| format!("{:.decimals$} / {:.decimals$}", of(0, cost), of(1, cost));
    vec![
        algorithm.name().to_owned(),
        each(0, 0),
        format!("{ratio:.2}"),
        each(CALLS, 3),
        each(MICROS, 1),
    ]
}

fn main() {
    let server = Redis::start();
    let mut connection = server.connection();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime.block_on(RedisStore::connect(server.url.as_str()));
    let store = store.expect("connects").timeout(Duration::from_secs(5));
    let mut table = Table::new(&[
        "64 connections, requests a second",
        "with permits / without",
        "ratio",
        "script calls a request",
        "µs of the server a request",
    ]);
    for algorithm in Algorithm::ALL {
        let address = runtime.block_on(serve(app(&store, algorithm)));
        let mut round = || CONTENDERS.map(|path| loaded(&mut connection, address, path));
        round();
        let rounds: Vec<_> = (0..support::number_of_rounds(9)).map(|_| round()).collect();
        table.row(&row(algorithm, &rounds));
    }
    table.print();
}
