//! Attacks on functions that a rule limits: callers that leave, functions and callbacks that panic,
//! stores that fail, rules that change.

mod aborts;
mod charges;
mod edges;
mod failures;
mod panics;

use futures_util::future::join;
use tidegate::ErrorCallbackChain;
use tidegate::layer::Call;
use tokio::time::Instant;

use crate::*;

/// A permit that leaks lives longer than any test.
const DAY: Duration = Duration::from_secs(86_400);

/// So many units an hour.
fn hourly(max: u64) -> Rule {
    per_hour("p", max)
}

/// So many at a time, with permits that do not end by themselves.
fn at_a_time(max: u64) -> Rule {
    let rule = Rule::with_policies("p", [Policy::concurrent(max)]).expect("valid");
    rule.with_permit_lease(DAY).expect("valid")
}

/// Its charges come back where the function fails.
fn refunding(rule: Rule) -> Rule {
    rule.with_refund_on(["error"]).expect("valid")
}

/// So many units an hour, which come back where the function fails, beside so many permits.
fn both(units: u64, permits: u64) -> Rule {
    let rule = hourly(units).with_max_concurrent(permits).expect("valid");
    refunding(rule.with_permit_lease(DAY).expect("valid"))
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    kit::limits([rule], store)
}

/// In memory, by the clock of tokio.
fn paused(rule: Rule) -> Limits {
    limits(rule, MemoryStore::new().tokio_clock())
}

fn call(limits: &Limits) -> Call {
    limits.call("p").key("k")
}

/// A store that answers at once, and one that takes a while.
async fn stores() -> (Redis, Proxy, [Arc<dyn Store>; 2]) {
    let (server, proxy, redis) = kit::far(millis(4)).await;
    (
        server,
        proxy,
        [Arc::new(MemoryStore::new()), Arc::new(redis)],
    )
}

async fn left(limits: &Limits) -> u64 {
    kit::left(limits, "p", "k").await
}

/// What is left once all that was to be given back has been.
async fn left_at_last(limits: &Limits) -> u64 {
    assert!(limits.flush(PATIENT).await, "refunds are answered");
    left(limits).await
}

async fn until_left(limits: &Limits, expected: u64) {
    eventually("permits are back", async || left(limits).await == expected).await;
}

async fn until_none_is_held(server: &Redis) {
    eventually("all permits are back", async || permits_held(server) == 0).await;
}

fn counted(limits: &Limits) -> RuleSnapshot {
    kit::counters(limits, "p")
}

async fn panics<T>(it: impl Future<Output = T>) -> bool {
    AssertUnwindSafe(it).catch_unwind().await.is_err()
}

#[test]
fn scenes() {
    kit::call_steps::play_calls("tests/hostile/layer/calls.txt");
}
