//! Calls to a partner under attack: clients that misbehave, holds beside all other features, servers
//! that lose them.

mod clients;
mod holds;
mod operators;
mod servers;
mod slots;

use tidegate::limits::Turn;
use tokio::time::Instant;

use crate::*;

fn partner(max: u64) -> Rule {
    let rule = per_minute("partner", max).with_outgoing();
    rule.expect("one subject")
}

fn limits(max: u64) -> Limits {
    Limits::new([partner(max)])
}

/// Limits of a process with a fallback.
fn process(server: &Redis, max: u64) -> Limits {
    let store = Resilient::redis(&*server.url, "shop").expect("an address");
    let store = store.timeout(2 * SECOND).processes(1);
    limits(max).store(store.probe_every(millis(100)))
}

/// Tells a turn that it is refused for so many seconds.
fn refuse(turn: Turn, seconds: u64) {
    let fields = HeaderMap::from_iter([(http::header::RETRY_AFTER, seconds.into())]);
    turn.observe_response(StatusCode::TOO_MANY_REQUESTS, &fields);
}

async fn settle() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

/// Takes a turn of this key, and drops it.
async fn pass(limits: &Limits, key: &str) {
    drop(limits.outgoing("partner").ready(key).await.expect("a turn"));
}

async fn hold(limits: &Limits, key: impl Into<Key>, time: Duration) -> Duration {
    limits.hold("partner", key, time).await.expect("held")
}

async fn reset(limits: &Limits, key: &str) -> bool {
    limits.reset("partner", key).await.expect("an answer")
}

/// For how long a key is held; `None` if it gets a turn.
async fn held(limits: &Limits, key: impl Into<Key>) -> Option<Duration> {
    let refused = limits.outgoing("partner").ready(key).await.err()?;
    let is_on_hold = refused.decision().is_some_and(|it| it.is_on_hold());
    assert!(is_on_hold, "{refused}");
    refused.retry_after()
}

async fn is_held(limits: &Limits, key: impl Into<Key>) -> bool {
    held(limits, key).await.is_some()
}
