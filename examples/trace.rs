//! The log says of every response what was decided: `TraceLayer` reads the `Decision`.
//!
//! `cargo run --example trace --features tracing`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use support::show;
use tidegate::{Decision, RateLimitLayer};
use tower_http::trace::TraceLayer;
use tracing::Span;

fn log_response(response: &Response, latency: Duration, _: &Span) {
    let status = response.status().as_u16();
    match Decision::from_extensions(response.extensions()) {
        Some(decision) => tracing::info!(
            status,
            ?latency,
            allowed = decision.is_allowed(),
            remaining = decision.remaining(),
            source = decision.source().name(),
            "answered"
        ),
        None => tracing::info!(status, ?latency, "answered without a decision"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // The crate's own events: a line for each denial, and the span `tidegate.take`.
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    subscriber.without_time().init();

    let limited = RateLimitLayer::new("getId", Duration::from_secs(60), 2);
    let app = Router::new()
        .route("/getId", get(|| async { "1" }).layer(limited))
        .route("/about", get(|| async { "tidegate" }))
        // Outside of the limit, so that it sees denied requests, too.
        .layer(TraceLayer::new_for_http().on_response(log_response));

    for path in ["/getId", "/getId", "/getId", "/about"] {
        show(&app, support::get(path)).await;
    }
}
