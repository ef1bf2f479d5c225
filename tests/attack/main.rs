//! Attacks on the laws from outside: only through the public API, on real servers, behind a proxy
//! that adds latency or breaks connections. Each test names the law or the promise it attacks.
//!
//! [`acl`] and `secrets` test what `docs/security.md` promises.

mod acl;
mod bytes;
#[cfg(feature = "tls")]
mod certificates;
mod charges;
mod clocked;
mod cluster;
mod counters;
mod denial_cache;
mod distant;
#[cfg(all(feature = "config", feature = "tracing"))]
mod events;
mod extremes;
mod first_steps;
mod flood;
mod keys;
mod latency;
mod limiter;
#[cfg(all(feature = "config", feature = "tracing"))]
mod limits;
mod lock;
#[cfg(feature = "tracing")]
mod log;
mod lone;
mod lost_flights;
mod meddling;
mod order;
#[cfg(all(feature = "config", feature = "lock", feature = "tracing"))]
mod outcomes;
#[cfg(all(feature = "config", feature = "page", feature = "tracing"))]
mod page;
#[cfg(all(feature = "config", feature = "metrics", feature = "tracing"))]
mod plans;
mod refusals;
#[cfg(feature = "config")]
mod reload;
mod replies;
mod resets;
mod runtimes;
#[cfg(feature = "tracing")]
mod secrets;
mod shadow;
mod stalls;
mod suite;
mod unit_leases;
mod waiting;
mod wrapped;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{TryJoinAll, try_join_all};
use test_support::Redis;
use test_support::proxy::{Mode, Proxy};
use tidegate::store::StoreFuture;
use tidegate::{Decision, Key, Quota, RedisStore, Rule, Store, StoreError, Take};

/// The default of `RedisStore::timeout`.
const TIMEOUT: Duration = Duration::from_millis(50);
/// So long that only a bug exceeds it.
const PATIENT: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3_600);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rule(path: &str, max: u64, window: Duration) -> Arc<Rule> {
    let quota = Quota::new(window, max).expect("a valid quota");
    Arc::new(Rule::new(path, [quota]).expect("a valid rule"))
}

fn take(rule: &Arc<Rule>, key: impl Display) -> Take {
    Take::new(Arc::clone(rule), Key::from(key.to_string().as_str()))
}

/// A proxy before the server that adds this much to every round trip.
async fn behind(server: &Redis, round_trip: Duration) -> Proxy {
    let proxy = Proxy::start(&server.url).await;
    proxy.all(Mode::Delay {
        calls: round_trip / 2,
        replies: round_trip / 2,
    });
    proxy
}

/// Asks all of them before any answer can come, in this order.
fn ask_all(store: &dyn Store, takes: &[Take]) -> TryJoinAll<StoreFuture<Decision>> {
    try_join_all(takes.iter().map(|take| store.take(take)))
}

async fn connect(url: &str, timeout: Duration) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    let store = store.timeout(timeout);
    let patient = store.clone().timeout(PATIENT);
    let first = take(&rule("first", 1_000_000, HOUR), "");
    patient.take(&first).await.expect("a first decision");
    store
}

/// What is charged under this key by now.
async fn charged(store: &RedisStore, take: &Take) -> u64 {
    let store = store.clone().timeout(PATIENT);
    let decision = store.peek(take).await.expect("a decision");
    take.quotas()[0].max() - decision.remaining()
}

/// A command of words.
fn run(server: &Redis, command: &str) {
    try_run(server, command).unwrap_or_else(|error| panic!("{command}: {error}"));
}

fn try_run(server: &Redis, command: &str) -> redis::RedisResult<()> {
    let mut words = command.split_whitespace();
    let mut question = redis::cmd(words.next().expect("a command"));
    for word in words {
        question.arg(word);
    }
    question.exec(&mut server.connection())
}

/// An allowed take: when it was asked for, and when it was answered.
#[derive(Debug, Clone, Copy)]
struct Allowed {
    asked: Instant,
    answered: Instant,
}

/// Law 1: whatever was asked for and answered within one window was charged within it.
fn check_windows(allowed: &[Allowed], max: u64, window: Duration) {
    for first in allowed {
        let inside = allowed
            .iter()
            .filter(|one| one.asked >= first.asked && one.answered < first.asked + window);
        let inside = inside.count() as u64;
        assert!(inside <= max, "{inside} of at most {max} in one window");
    }
}

fn is_allowed(answer: &Result<Decision, StoreError>) -> bool {
    answer.as_ref().is_ok_and(Decision::is_allowed)
}
