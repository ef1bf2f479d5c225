//! What the layers count, as Prometheus reads it.
//!
//! `cargo run --features full --example metrics`

use std::future::ready;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::{Router, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tidegate::key::Everyone;
use tidegate::metrics::LATENCY_BUCKETS;
use tidegate::rule::Policy;
use tidegate::{Limits, Quota, Rule};
use tower::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quick = Policy::new("quick", Quota::per_second(3));
    let daily = Policy::new("daily", Quota::per_day(1_000));
    let rule = Rule::with_policies("search", [quick, daily])?;
    let limits = Limits::new([rule]).key(Everyone);

    let durations = Matcher::Full("tidegate_store_duration_seconds".to_owned());
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(durations, LATENCY_BUCKETS)?
        .install_recorder()?;
    // A service calls `publish_metrics_every_second` instead, once.
    let search = get(|| async { "found" }).layer(limits.layer("search"));
    let metrics = get(move || {
        limits.publish_metrics();
        ready(prometheus.render())
    });
    let app: Router = Router::new()
        .route("/search", search)
        .route("/metrics", metrics);

    for _ in 0..5 {
        let request = Request::get("/search").body(Body::empty())?;
        app.clone().oneshot(request).await?;
    }
    let request = Request::get("/metrics").body(Body::empty())?;
    let text = to_bytes(app.oneshot(request).await?.into_body(), 1_000_000).await?;
    print!("{}", String::from_utf8_lossy(&text));
    Ok(())
}
