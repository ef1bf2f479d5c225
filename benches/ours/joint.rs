//! What a rule of three subjects costs a service, beside a rule of one and beside three layers of one
//! subject each: a lone request, and 64 connections of `wrk`. The contenders take turns; ratios are
//! medians over 9 rounds, or as many as ROUNDS says. The bench starts a server of its own.

#[path = "support/served.rs"]
mod served;
mod support;
#[path = "support/three.rs"]
mod three;

use axum::Router;
use axum::routing::get;
use served::{one_of, quota};
use tidegate::key::Everyone;
use tidegate::rule::Subject;
use tidegate::{Algorithm, RateLimitLayer, RedisStore, Rule};

fn app(store: &RedisStore, algorithm: Algorithm) -> Router {
    let layer = |rule: Result<Rule, _>| {
        let rule = rule.expect("valid").with_algorithm(algorithm);
        RateLimitLayer::from_rule(rule).store(store.clone())
    };
    let (user, address) = (|| one_of(100_000), || one_of(10_000));
    let joint = layer(Rule::joint(
        "joint",
        [
            Subject::new("user", user()).limit(quota(1)),
            Subject::new("address", address()).limit(quota(60)),
            Subject::new("everyone", Everyone).limit(quota(1)),
        ],
    ));
    let of = |path, seconds| layer(Rule::new(path, [quota(seconds)]));
    let stacked = Router::new()
        .route("/stacked", get(async || "1"))
        .layer(of("user", 1).key(user()))
        .layer(of("address", 60).key(address()))
        .layer(of("everyone", 1));
    stacked
        .route("/joint", get(async || "1").layer(joint))
        .route("/one", get(async || "1").layer(of("one", 1).key(user())))
}

fn main() {
    let columns = ["joint / one / stacked", "joint to one", "joint to stacked"];
    three::measure(["joint", "one", "stacked"], columns, app);
}
