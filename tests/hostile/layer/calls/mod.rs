//! Attacks on functions that a rule limits: callers that leave, functions and callbacks that panic,
//! stores that fail, rules that change, and the same history through a layer beside it.

mod aborts;
mod charges;
mod edges;
mod failures;
mod fleet;
mod histories;
mod panics;
mod reloads;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use kit::proxy::Proxy;
use tidegate::metrics::RuleSnapshot;
use tidegate::rule::Policy;
use tidegate::{Key, Limits, MemoryStore, Quota, RedisStore, Rule, Rules, Store};
use tokio::time::{Instant, sleep};

use kit::{PATIENT, behind, millis};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// A permit that leaks lives longer than any test.
const DAY: Duration = Duration::from_secs(86_400);

/// So many units an hour, by the key `k` where a layer asks.
fn hourly(max: u64) -> Rule {
    let rule = Rule::new("p", [Quota::new(HOUR, max).expect("valid")]).expect("valid");
    rule.with_key(|_: &http::request::Parts| Ok(Key::from("k")))
}

/// So many at a time, with permits that do not end by themselves.
fn at_a_time(max: u64) -> Rule {
    let rule = Rule::with_policies("p", [Policy::concurrent(max)]).expect("valid");
    let rule = rule.with_permit_lease(DAY).expect("valid");
    rule.with_key(|_: &http::request::Parts| Ok(Key::from("k")))
}

/// Its charges come back where the function fails.
fn refunding(rule: Rule) -> Rule {
    rule.with_refund_on(["error"]).expect("valid")
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule]).store(store)
}

/// In memory, by the clock of tokio.
fn paused(rule: Rule) -> Limits {
    limits(rule, MemoryStore::new().tokio_clock())
}

/// A store whose answers take so long.
async fn far(server: &Redis, round_trip: Duration) -> (Proxy, RedisStore) {
    let proxy = behind(server, round_trip).await;
    let store = RedisStore::connect(&proxy.url).await.expect("a server");
    (proxy, store.timeout(PATIENT))
}

/// A store that answers at once, and one that takes a while.
async fn stores(server: &Redis) -> (Proxy, [Arc<dyn Store>; 2]) {
    let (proxy, redis) = far(server, millis(4)).await;
    (proxy, [Arc::new(MemoryStore::new()), Arc::new(redis)])
}

async fn left(limits: &Limits) -> u64 {
    let left = limits.peek("p", "k").await.expect("an answer");
    left.expect("a rule").remaining()
}

/// What is left once all that was to be given back has been.
async fn left_at_last(limits: &Limits) -> u64 {
    assert!(limits.flush(PATIENT).await, "refunds are answered");
    left(limits).await
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENT, "never: {what}");
        sleep(millis(5)).await;
    }
}

fn counted(limits: &Limits) -> RuleSnapshot {
    limits.snapshot().rule("p").expect("a rule").clone()
}

/// The members of all sets of permits on a server.
fn held(server: &Redis) -> u64 {
    let mut connection = server.connection();
    let names = redis::cmd("KEYS").arg("*~permits").query(&mut connection);
    let names: Vec<String> = names.expect("an answer");
    let count = |name| redis::cmd("ZCARD").arg(name).query::<u64>(&mut connection);
    names
        .into_iter()
        .map(count)
        .map(|it| it.expect("a set"))
        .sum()
}

/// These rules from now on.
fn replace(limits: &Limits, rules: impl IntoIterator<Item = Rule>) {
    limits.rules().replace(Rules::from_iter(rules));
}
