//! What is given back by the outcome of a request, in all subjects, at each cost.

use axum::Router;
use axum::routing::{MethodRouter, any};
use http::StatusCode;
use kit::Redis;
use tidegate::store::Charges;
use tidegate::{Limits, MemoryStore, Store};

use super::{DENIED, OK, ask, header, left};
use kit::store_on;
use std::sync::Arc;

const FILE: &str = r#"
[rules.api]
cost = 30
refund-on = ["5xx", "denied"]
quotas = [
    { max-count = 300, window = "1h", key = "header:x-user", subject = "user", absent = "skip" },
    { max-count = 8, window = "1h", key = "header:x-user", subject = "user", cost = 2 },
    { max-count = 900, window = "1h", key = "header:x-address", subject = "address" },
]
[rules.inner]
max-count = 1
window = "1h"
key = "header:x-inner"
"#;

async fn stores() -> (Redis, [Arc<dyn Store>; 2]) {
    let server = Redis::start();
    let redis = store_on(&server).await;
    (server, [Arc::new(redis), Arc::new(MemoryStore::new())])
}

fn keys(user: &str) -> [(&'static str, tidegate::Key); 2] {
    [
        ("user", header("x-user", user)),
        ("address", header("x-address", "1")),
    ]
}

/// Until the refunds, for which nobody waits, have come.
async fn settled(limits: &Limits, user: &str, expected: &[u64]) {
    let began = std::time::Instant::now();
    loop {
        let left = left(limits, keys(user)).await;
        if left == expected {
            return;
        }
        let is_late = began.elapsed() > std::time::Duration::from_secs(10);
        assert!(!is_late, "{left:?}, expected {expected:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn outcomes_give_back_in_all_subjects() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = Limits::from_toml(FILE).unwrap_or_else(|error| panic!("{error}"));
        let limits = limits.store(store);
        let fails = async |head: http::HeaderMap| match head.contains_key("x-fails") {
            true => StatusCode::BAD_GATEWAY,
            false => OK,
        };
        let app = Router::new().route("/", any(fails).layer(limits.layer("api")));
        assert_eq!(ask(&app, "x-user: a, x-address: 1").await, OK);
        settled(&limits, "a", &[270, 6, 870]).await;
        for _ in 0..20 {
            let status = ask(&app, "x-user: a, x-address: 1, x-fails: 1").await;
            assert_eq!(status, StatusCode::BAD_GATEWAY);
            settled(&limits, "a", &[270, 6, 870]).await;
        }
        // Without a user.
        assert_eq!(ask(&app, "x-address: 1, x-fails: 1").await.as_u16(), 502);
        settled(&limits, "a", &[270, 6, 870]).await;
        for at in 0..5 {
            let status = ask(&app, "x-user: a, x-address: 1").await;
            assert_eq!(status, if at < 3 { OK } else { DENIED }, "{at}");
        }
        settled(&limits, "a", &[180, 0, 780]).await;
        settled(&limits, "b", &[300, 8, 780]).await;
    }
}

/// An inner layer denies: what the outer one charged is given back in all of its subjects.
#[tokio::test]
async fn an_inner_denial_gives_back_in_all_subjects() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = Limits::from_toml(FILE).unwrap_or_else(|error| panic!("{error}"));
        let limits = limits.store(store);
        let inner: MethodRouter = any(async || "1").layer(limits.layer("inner"));
        let app = Router::new().route("/", inner.layer(limits.layer("api")));
        for at in 0..6 {
            let status = ask(&app, "x-user: a, x-address: 1, x-inner: i").await;
            assert_eq!(status, if at < 1 { OK } else { DENIED }, "{at}");
        }
        settled(&limits, "a", &[270, 6, 870]).await;
    }
}

/// A handler settles, and its response is one that gives back: one of both counts.
#[tokio::test]
async fn a_settlement_before_an_outcome() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = Limits::from_toml(FILE).unwrap_or_else(|error| panic!("{error}"));
        let limits = limits.store(store);
        let handler = async |charges: Charges| {
            assert_eq!(charges.settle(10).await.expect("an answer").given_back, 20);
            assert_eq!(charges.refund().await.expect("an answer"), 0);
            StatusCode::BAD_GATEWAY
        };
        let app = Router::new().route("/", any(handler).layer(limits.layer("api")));
        assert_eq!(ask(&app, "x-user: a, x-address: 1").await.as_u16(), 502);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        settled(&limits, "a", &[290, 6, 890]).await;
    }
}
