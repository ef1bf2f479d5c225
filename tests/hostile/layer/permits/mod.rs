//! Attacks on requests at a time: callers that leave, answers that are lost, servers that forget,
//! services that fail. In the end no permit is held, and all of them can be had.

mod aborts;
mod losses;
mod renewals;
mod rules;
mod servers;
mod services;
mod waiting;

use axum::body::Bytes;
use axum::extract::Request;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tidegate::key::Header;
use tidegate::layer::Admitted;
use tokio::time::Instant;

use crate::*;

/// A permit that leaks lives longer than any test.
const DAY: Duration = Duration::from_secs(86_400);
/// So long that only a bug exceeds it.
const PATIENT: Duration = Duration::from_secs(40);

fn at_a_time(max: u64) -> Rule {
    leased(max, DAY)
}

fn leased(max: u64, lease: Duration) -> Rule {
    let rule = Rule::with_policies("p", [Policy::concurrent(max)]).expect("valid");
    rule.with_permit_lease(lease).expect("valid")
}

/// The same beside a quota.
fn with_quota(units: u64, max: u64) -> Rule {
    let rule = per_hour("p", units).with_max_concurrent(max);
    rule.expect("valid").with_permit_lease(DAY).expect("valid")
}

async fn store_at(url: &str, timeout: Duration) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    store.timeout(timeout)
}

/// In memory, and on a server. In the end no permit is held.
async fn on_both(test: impl AsyncFn(Arc<dyn Store>)) {
    let server = Redis::start();
    let redis = store_at(&server.url, PATIENT).await;
    test(Arc::new(MemoryStore::new())).await;
    test(Arc::new(redis)).await;
    until_held(&server, 0).await;
}

/// Requests have the key `k`, checks their own.
fn limits(rule: Rule, store: impl Store) -> Limits {
    kit::limits([rule], store)
}

async fn check(limits: &Limits, key: &str) -> Result<Admitted, Refused> {
    limits.check("p", key).await
}

async fn admitted(limits: &Limits, key: &str) -> Admitted {
    check(limits, key).await.expect("free")
}

/// A check in a task, which waits for as long as it may have to.
fn waits(limits: &Limits, key: &str) -> JoinHandle<Result<Admitted, Refused>> {
    let check = limits.check("p", Key::from(key)).wait(PATIENT);
    tokio::spawn(check.into_future())
}

/// So many permits, however often they have to be asked for.
async fn hold(limits: &Limits, key: &str, number: usize) -> Vec<Admitted> {
    let mut all = Vec::new();
    let began = Instant::now();
    while all.len() < number {
        assert!(began.elapsed() < PATIENT, "{} held", all.len());
        match check(limits, key).await {
            Ok(admitted) => all.push(admitted),
            Err(_) => sleep(millis(20)).await,
        }
    }
    all
}

/// What is left of each quota, and of the permits.
async fn peeked(limits: &Limits, key: &str) -> Vec<u64> {
    kit::left_of_each(limits, "p", key).await
}

async fn left(limits: &Limits, key: &str) -> u64 {
    let began = Instant::now();
    loop {
        match limits.peek("p", key).await {
            Ok(decision) => return decision.expect("a rule").remaining(),
            // A link that was broken is not replaced yet.
            Err(error) => assert!(began.elapsed() < PATIENT, "{error}"),
        }
        sleep(millis(20)).await;
    }
}

async fn until_held(server: &Redis, number: u64) {
    let what = format!("{number} are held");
    eventually(&what, async || permits_held(server) == number).await;
}

async fn until_left(limits: &Limits, key: &str, number: u64) {
    let what = format!("{number} are left");
    eventually(&what, async || left(limits, key).await == number).await;
}

/// Waits until all of so many permits can be had, and that it is no more than these.
async fn until_free(limits: &Limits, key: &str, max: u64) {
    until_left(limits, key, max).await;
    let mut all = Vec::new();
    for _ in 0..max {
        all.push(admitted(limits, key).await);
    }
    check(limits, key).await.expect_err("all are held");
    drop(all);
    until_left(limits, key, max).await;
}

fn verdict(refused: &Refused) -> Verdict {
    refused.decision().expect("a denial").verdict()
}
