//! What is logged, and how often.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use http::Request;
use test_support::log::Log;
use tidegate::{Denied, Header, Key, MemoryStore, PeerIp, RateLimitLayer};
use tower::ServiceExt;

use crate::{WINDOW, send, status};

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/p", get(|| async { "" }).layer(layer))
}

#[tokio::test]
async fn a_panic_is_logged() {
    let log = Log::start();
    let layer =
        RateLimitLayer::new("p", WINDOW, 0).degrade(async |_: Denied| -> () { panic!("oops") });
    assert_eq!(status(&app(layer), "/p").await.as_u16(), 500);
    let [line] = &*log.lines() else {
        panic!("{:?}", log.lines());
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
    let app = app(RateLimitLayer::new("p", WINDOW, 5).key(PeerIp));
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
    let tenant = Header::new(http::HeaderName::from_static("x-tenant"));
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000)
        .store(Arc::new(MemoryStore::with_max_keys(1)))
        .key((tenant, |_: &http::request::Parts| Ok(Key::default())));
    let app = app(layer);
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
    let tenant = Header::new(http::HeaderName::from_static("x-tenant")).required();
    let app = app(RateLimitLayer::new("p", WINDOW, 1_000).key(tenant));
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
