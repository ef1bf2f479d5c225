//! What the feature `metrics` publishes, as the text that Prometheus reads.

mod dashboard;
mod exposition;
mod histogram;
mod hostile;
mod names;
mod over_time;
mod size;
mod values;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use exposition::Exposition;
use http::{Request, StatusCode};
use kit::Redis;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use tidegate::metrics::LATENCY_BUCKETS;
use tidegate::{Limits, RedisStore, Rule};
use tower::ServiceExt;

use kit::{app, per_hour};

const MAX_DELAY: Duration = Duration::from_secs(20);

/// The exporter as docs/metrics.md sets it up.
fn exporter() -> PrometheusBuilder {
    let duration = Matcher::Full("tidegate_store_duration_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(duration, LATENCY_BUCKETS);
    builder.expect("there are buckets")
}

/// What a new exporter shows after one publication.
fn published(limits: &Limits) -> Exposition {
    published_to(&exporter().build_recorder(), limits)
}

/// What this exporter shows after one more publication.
fn published_to(recorder: &PrometheusRecorder, limits: &Limits) -> Exposition {
    metrics::with_local_recorder(recorder, || limits.publish_metrics());
    Exposition::parse(&recorder.handle().render())
}

fn limits<const N: usize>(rules: [Rule; N]) -> Limits {
    Limits::new(rules)
}

async fn send(app: &Router, request: Request<Body>) -> StatusCode {
    let response = app.clone().oneshot(request).await;
    response.expect("axum does not fail").status()
}

/// Sends requests one after the other, and returns how many were allowed.
async fn send_many(app: &Router, number: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..number {
        let request = Request::get("/").body(Body::empty());
        allowed += usize::from(send(app, request.expect("valid")).await.is_success());
    }
    allowed
}

/// A store whose answers a request has to wait for.
async fn redis_store() -> (RedisStore, Redis) {
    let server = Redis::start();
    let store = RedisStore::connect(&server.url).await;
    // Only a hanging server exceeds it, not a busy machine.
    let store = store.expect("a running server").timeout(MAX_DELAY);
    (store, server)
}
