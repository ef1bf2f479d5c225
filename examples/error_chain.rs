//! Error callbacks answer requests without a decision: by priority, and by the type of the error.
//!
//! `cargo run --example error_chain`

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use support::show;
use tidegate::key::KeyError;
use tidegate::{
    ErrorCallbackChain, FailOpen, Failed, Header, MemoryStore, RateLimitLayer, StoreError,
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let chain = ErrorCallbackChain::new()
        // The request has no key, by the client's mistake.
        .on::<KeyError>(async |failed: Failed| (StatusCode::BAD_REQUEST, failed.to_string()))
        // The store is down: the request goes on to the handler, unlimited.
        .on::<StoreError>(FailOpen)
        // Tried last, whatever the order here.
        .any_with_priority(99, async |_: Failed| StatusCode::INTERNAL_SERVER_ERROR);

    let tenant = Header::new("x-tenant");
    // This store has no room for any key, so every decision fails.
    let store = Arc::new(MemoryStore::with_max_keys(0));
    let limited = RateLimitLayer::new("orders", Duration::from_secs(1), 10)
        .store(store)
        .key(tenant)
        .on_error(chain);
    let app = Router::new().route("/orders", get(|| async { "the orders" }).layer(limited));

    show(&app, support::get("/orders")).await;
    show(&app, support::get("/orders").header("x-tenant", "acme")).await;
}
