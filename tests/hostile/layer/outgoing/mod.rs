//! Calls to a partner under attack: hostile answers, clients that misbehave, holds beside all other
//! features, servers that lose them.

mod answers;
mod asked;
mod clients;
mod histories;
mod holds;
mod operators;
mod reloads;
mod runtimes;
mod servers;
mod slots;
mod waiting;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tidegate::limits::Outgoing;
use tidegate::{Key, Limits, Rule};

use kit::{millis, per_minute};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn partner(max: u64) -> Rule {
    let rule = per_minute("partner", max).with_outgoing();
    rule.expect("one subject")
}

fn limits(max: u64) -> Limits {
    Limits::new([partner(max)])
}

/// Fields in this order, also several of one name.
fn fields(all: &[(&'static str, &[u8])]) -> HeaderMap {
    let all = all.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value).expect("a value");
        (HeaderName::from_static(name), value)
    });
    let mut map = HeaderMap::new();
    for (name, value) in all {
        map.append(name, value);
    }
    map
}

/// One call that is answered so, and what it leads to.
async fn hear(partner: &Outgoing, key: &str, status: u16, fields: &HeaderMap) {
    let turn = partner.ready(key).await.expect("a turn");
    turn.heard(StatusCode::from_u16(status).expect("a status"), fields);
    settle().await;
}

async fn settle() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

/// For how long a key is held; `None` if it gets a turn.
async fn held(limits: &Limits, key: impl Into<Key>) -> Option<Duration> {
    let refused = limits.outgoing("partner").ready(key).await.err()?;
    let is_on_hold = refused.decision().is_some_and(|it| it.is_on_hold());
    assert!(is_on_hold, "{refused}");
    refused.retry_after()
}
