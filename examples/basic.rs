//! One limited route: 5 requests in any 10 seconds, counted in this process.
//!
//! `cargo run --example basic`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use support::show;
use tidegate::RateLimitLayer;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let limited = RateLimitLayer::new("getId", Duration::from_secs(10), 5);
    let app = Router::new()
        .route("/getId", get(|| async { "1" }).layer(limited))
        .route("/healthz", get(|| async { "ok" }));

    for _ in 0..7 {
        show(&app, support::get("/getId")).await;
    }
    show(&app, support::get("/healthz")).await;
}
