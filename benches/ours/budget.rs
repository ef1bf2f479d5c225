//! What a month of the calendar costs a service beside a minute: a rule of both, beside the minute
//! alone and beside the month alone, each of 1,000 keys. The contenders take turns; ratios are medians
//! over 9 rounds, or as many as ROUNDS says. The bench starts a server of its own.

#[path = "support/served.rs"]
mod served;
mod support;
#[path = "support/three.rs"]
mod three;

use axum::Router;
use axum::routing::get;
use served::{one_of, quota};
use tidegate::rule::{Period, Policy};
use tidegate::{Algorithm, RateLimitLayer, RedisStore, Rule};

fn app(store: &RedisStore, algorithm: Algorithm) -> Router {
    let minute = || Policy::from(quota(60));
    let month = || Policy::calendar(Period::MONTH, quota(60).max());
    let route = |path: &str, policies: Vec<Policy>| {
        let rule = Rule::with_policies(path, policies).expect("valid");
        let layer = RateLimitLayer::from_rule(rule.with_algorithm(algorithm));
        let layer = layer.store(store.clone()).key(one_of(1_000));
        Router::new().route(&format!("/{path}"), get(async || "1").layer(layer))
    };
    route("both", vec![minute(), month()])
        .merge(route("minute", vec![minute()]))
        .merge(route("month", vec![month()]))
}

fn main() {
    let columns = ["both / minute / month", "both to minute", "both to month"];
    three::measure(["both", "minute", "month"], columns, app);
}
