//! What tests of all subjects share: each test binary has this as a module, so that it is built with
//! the features that the binary has. What does not know the crate is in the package `tests/support`.

#[cfg(feature = "test-util")]
pub(crate) mod clocked;
pub(crate) mod distant;
pub(crate) mod stalls;
pub(crate) mod stub;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use futures_util::future::{TryJoinAll, try_join_all};
use test_support::Redis;
use test_support::proxy::{Mode, Proxy};
use tidegate::store::{Charges, StoreFuture};
use tidegate::{
    Algorithm, Decision, Key, Limits, Quota, RateLimitLayer, RedisStore, Rule, Store, StoreError,
    Take,
};

/// The default of `RedisStore::timeout`.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);
/// So long that only a bug exceeds it.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A rule of one quota.
pub(crate) fn owned_rule(path: &str, max: u64, window: Duration) -> Rule {
    let quota = Quota::new(window, max).expect("a valid quota");
    Rule::new(path, [quota]).expect("a valid rule")
}

pub(crate) fn per_minute(path: &str, max: u64) -> Rule {
    owned_rule(path, max, Duration::from_secs(60))
}

pub(crate) fn per_hour(path: &str, max: u64) -> Rule {
    owned_rule(path, max, HOUR)
}

/// A rule that no test uses up.
pub(crate) fn roomy(path: &str) -> Rule {
    per_hour(path, 1_000_000).with_algorithm(Algorithm::Gcra)
}

/// The same as [`owned_rule`], shared by takes.
pub(crate) fn rule(path: &str, max: u64, window: Duration) -> Arc<Rule> {
    Arc::new(owned_rule(path, max, window))
}

/// An app whose only route is `/`, behind this layer. It answers `1`.
pub(crate) fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", any(async || "1").layer(layer))
}

/// The same on a path. It answers `handled`.
pub(crate) fn app_at(path: &str, layer: RateLimitLayer) -> Router {
    Router::new().route(path, any(async || "handled").layer(layer))
}

/// An app of several routes, each behind the layer of the rule of that name.
pub(crate) fn app_of(limits: &Limits, paths: &[&str]) -> Router {
    paths.iter().fold(Router::new(), |app, path| {
        let handler = any(async || "1").layer(limits.layer(path));
        app.route(&format!("/{path}"), handler)
    })
}

/// An app with a route `/`, and a route `/fails`, whose handler gives its charges back and says how many units.
pub(crate) fn app_with_refunds(layer: RateLimitLayer) -> Router {
    let fails = async |charges: Charges| charges.refund().await.expect("an answer").to_string();
    Router::new()
        .route("/", any(async || "1"))
        .route("/fails", any(fails))
        .layer(layer)
}

pub(crate) fn take(rule: &Arc<Rule>, key: impl Display) -> Take {
    Take::new(Arc::clone(rule), Key::from(key.to_string().as_str()))
}

/// A proxy before the server that adds this much to every round trip.
pub(crate) async fn behind(server: &Redis, round_trip: Duration) -> Proxy {
    let proxy = Proxy::start(&server.url).await;
    proxy.all(Mode::Delay {
        calls: round_trip / 2,
        replies: round_trip / 2,
    });
    proxy
}

/// Asks all of them before any answer can come, in this order.
pub(crate) fn ask_all(store: &dyn Store, takes: &[Take]) -> TryJoinAll<StoreFuture<Decision>> {
    try_join_all(takes.iter().map(|take| store.take(take)))
}

pub(crate) async fn connect(url: &str, timeout: Duration) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    let store = store.timeout(timeout);
    let patient = store.clone().timeout(PATIENT);
    let first = take(&rule("first", 1_000_000, HOUR), "");
    patient.take(&first).await.expect("a first decision");
    store
}

/// What is charged under this key by now.
pub(crate) async fn charged(store: &RedisStore, take: &Take) -> u64 {
    let store = store.clone().timeout(PATIENT);
    let decision = store.peek(take).await.expect("a decision");
    take.quotas()[0].max() - decision.remaining()
}

/// A command of words.
pub(crate) fn run(server: &Redis, command: &str) {
    try_run(server, command).unwrap_or_else(|error| panic!("{command}: {error}"));
}

pub(crate) fn try_run(server: &Redis, command: &str) -> redis::RedisResult<()> {
    let mut words = command.split_whitespace();
    let mut question = redis::cmd(words.next().expect("a command"));
    for word in words {
        question.arg(word);
    }
    question.exec(&mut server.connection())
}

/// An allowed take: when it was asked for, and when it was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

/// Law 1: whatever was asked for and answered within one window was charged within it.
pub(crate) fn check_windows(allowed: &[Allowed], max: u64, window: Duration) {
    for first in allowed {
        let inside = allowed
            .iter()
            .filter(|one| one.asked >= first.asked && one.answered < first.asked + window);
        let inside = inside.count() as u64;
        assert!(inside <= max, "{inside} of at most {max} in one window");
    }
}

pub(crate) fn is_allowed(answer: &Result<Decision, StoreError>) -> bool {
    answer.as_ref().is_ok_and(Decision::is_allowed)
}

/// A handle on the server: to Redis, a process of its own.
pub(crate) async fn handle(url: &str) -> tidegate::Redis {
    let redis = tidegate::Redis::connect(url)
        .await
        .expect("a running server");
    redis.timeout(PATIENT)
}

/// Law 4: nothing but these keys stays for ever.
pub(crate) fn check_expiries(server: &Redis, kept: &[&str]) {
    let mut connection = server.connection();
    let names: Vec<Vec<u8>> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut connection)
        .expect("the keys");
    for name in names {
        let left: i64 = redis::cmd("PTTL")
            .arg(&name)
            .query(&mut connection)
            .expect("a time");
        let name = String::from_utf8_lossy(&name);
        let is_kept = kept.contains(&&*name);
        assert!(is_kept || left != -1, "law 4: {name} stays for ever");
    }
}
