//! What is logged, and how often.

use std::sync::Arc;

use http::Request;
use kit::log::Log;
use tidegate::key::Everyone;
use tidegate::rule::Policy;
use tidegate::{
    Denied, Header, Key, KeyExtractor, Limits, MemoryStore, PeerIp, Quota, RateLimitLayer, Rule,
};
use tower::ServiceExt;

use crate::{Stores, WINDOW, no_store, send, status};
use kit::app_at;

#[tokio::test]
async fn a_panic_is_logged() {
    let log = Log::start();
    let layer =
        RateLimitLayer::new("p", WINDOW, 0).degrade(async |_: Denied| -> () { panic!("oops") });
    assert_eq!(status(&app_at("/p", layer), "/p").await.as_u16(), 500);
    let mut lines = log.lines();
    lines.retain(|line| !line.contains("requests were denied"));
    let [line] = &*lines else {
        panic!("{lines:?}");
    };
    assert!(
        line.contains("ERROR") && line.contains("degrade callback") && line.contains("oops"),
        "{line}"
    );
}

/// A server without peer addresses: logged once, with what to do about it.
#[tokio::test]
async fn a_servers_mistake_is_logged_once() {
    let log = Log::start();
    let app = app_at("/p", RateLimitLayer::new("p", WINDOW, 5).key(PeerIp));
    for _ in 0..50 {
        assert_eq!(status(&app, "/p").await.as_u16(), 500);
    }
    let [line] = &*log.lines() else {
        panic!("{:?}", log.lines());
    };
    assert!(
        line.contains("WARN") && line.contains("into_make_service_with_connect_info"),
        "{line}"
    );
}

/// Decisions that come and go, as under a flood of keys, are not logged each time.
#[tokio::test]
async fn a_flood_of_failures_is_no_flood_of_lines() {
    let log = Log::start();
    let tenant = Header::new("x-tenant").or(Everyone);
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000)
        .store(Arc::new(MemoryStore::with_max_keys(1)))
        .key((tenant, |_: &http::request::Parts| Ok(Key::default())));
    let app = app_at("/p", layer);
    for number in 0..500 {
        send(&app, "/p").await;
        let request = Request::get("/p").header("x-tenant", number);
        let request = request.body(axum::body::Body::empty()).expect("valid");
        let response = app
            .clone()
            .oneshot(request)
            .await
            .expect("axum does not fail");
        assert_eq!(response.status().as_u16(), 503);
    }
    assert!(!log.lines().is_empty());
    assert!(log.lines().len() <= 10, "{} lines", log.lines().len());
}

/// A client that leaves its key out now and then is no failure of the store.
#[tokio::test]
async fn a_clients_mistake_is_not_logged() {
    let log = Log::start();
    let tenant = Header::new("x-tenant");
    let app = app_at("/p", RateLimitLayer::new("p", WINDOW, 1_000).key(tenant));
    for _ in 0..3 {
        assert_eq!(status(&app, "/p").await.as_u16(), 400);
        let request = Request::get("/p").header("x-tenant", "a");
        let request = request.body(axum::body::Body::empty()).expect("valid");
        let response = app.clone().oneshot(request).await;
        assert_eq!(response.expect("axum does not fail").status().as_u16(), 200);
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    }
    assert_eq!(log.lines(), Vec::<String>::new());
}

/// A debug event for each denial says which quota had no room, and no key.
#[tokio::test(start_paused = true)]
async fn a_denial_is_a_debug_event() {
    let log = Log::start();
    let policies = [("burst", 2), ("daily", 5)]
        .map(|(name, max)| Policy::new(name, Quota::new(WINDOW, max).expect("valid")));
    let rule = Rule::with_policies("p", policies).expect("valid");
    let key = |_: &http::request::Parts| Ok(Key::from("alice"));
    let layer = RateLimitLayer::from_rule(rule)
        .key(key)
        .store(MemoryStore::new().tokio_clock());
    let app = app_at("/p", layer.clone());
    for _ in 0..2 {
        assert_eq!(status(&app, "/p").await.as_u16(), 200);
    }
    assert_eq!(denials(&log), Vec::<String>::new());
    assert_eq!(status(&app, "/p").await.as_u16(), 429);
    let [line] = &*denials(&log) else {
        panic!("one denial");
    };
    for part in [
        "path=\"p\"",
        "quotas=\"burst\"",
        "cost=1",
        "retry_after_seconds=60.0",
        "source=\"local\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("alice") && !line.contains("key"), "{line}");

    let app = app_at("/p", layer.trace_hashed_keys());
    assert_eq!(status(&app, "/p").await.as_u16(), 429);
    let [line] = &*denials(&log) else {
        panic!("one denial");
    };
    // The first 128 bits of SHA-256 of "alice".
    assert!(
        line.contains("key=#2bd806c97f0e00af1a1fc3328fa763a9"),
        "{line}"
    );
    assert!(!line.contains("alice"), "{line}");
}

fn denials(log: &Log) -> Vec<String> {
    let mut lines = log.lines_with_debug();
    lines.retain(|line| line.contains(": denied "));
    lines
}

/// However many requests are denied, and by however many layers of the rule.
#[tokio::test(start_paused = true)]
async fn a_summary_of_denials_at_most_every_ten_seconds() {
    let log = Log::start();
    let rule = Rule::new("p", [Quota::per_day(2)]).expect("valid");
    let limits = Limits::new([rule]);
    let apps = [
        app_at("/p", limits.layer("p")),
        app_at("/p", limits.layer("p")),
    ];
    for _ in 0..99 {
        for app in &apps {
            send(app, "/p").await;
        }
        tokio::time::advance(std::time::Duration::from_millis(100)).await;
    }
    let summaries = log.lines();
    assert_eq!(summaries.len(), 1, "in 9.8 s: {summaries:?}");
    let first = "path=\"p\" denied=1 allowed=2 since=\"the start\"";
    assert!(
        summaries[0].contains("INFO") && summaries[0].contains(first),
        "{summaries:?}"
    );
    tokio::time::advance(std::time::Duration::from_millis(200)).await;
    send(&apps[0], "/p").await;
    let summaries = log.lines();
    let [line] = &*summaries else {
        panic!("{summaries:?}");
    };
    assert!(
        line.contains("denied=196 allowed=0 since=\"10s ago\""),
        "{line}"
    );
    for (pause, said) in [(119, "119s"), (3_601, "60m"), (80_000, "22h")] {
        tokio::time::advance(std::time::Duration::from_secs(pause)).await;
        send(&apps[0], "/p").await;
        let line = log.lines().concat();
        let since = format!("denied=1 allowed=0 since=\"{said} ago\"");
        assert!(line.contains(&since), "{since}: {line}");
    }
}

/// The span ends with the answer, also if that had to be waited for.
#[tokio::test]
async fn a_span_around_the_call_of_the_store() {
    let stores = Stores::start().await;
    for (store, name) in stores.all.iter().zip(["memory", "redis"]) {
        let log = Log::start();
        let app = app_at(
            "/p",
            RateLimitLayer::new("p", WINDOW, 1).store(Arc::clone(store)),
        );
        for outcome in ["allowed", "denied"] {
            send(&app, "/p").await;
            let mut lines = log.lines_with_debug();
            lines.retain(|line| line.contains("tidegate.take") && line.contains("close"));
            let [line] = &*lines else {
                panic!("{lines:?}");
            };
            for part in ["path=\"p\"", name, &format!("outcome=\"{outcome}\"")] {
                assert!(line.contains(part), "{part} in {line}");
            }
        }
    }
    let log = Log::start();
    send(
        &app_at("/p", RateLimitLayer::new("p", WINDOW, 1).store(no_store())),
        "/p",
    )
    .await;
    let lines = log.lines_with_debug();
    assert!(
        lines.iter().any(|line| line.contains("error=")),
        "{lines:?}"
    );
}
