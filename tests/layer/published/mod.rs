//! What the feature `metrics` publishes, as the text that Prometheus reads.

mod dashboard;
mod exposition;
mod first_failures;
mod histogram;
mod hostile;
mod names;
mod size;
mod values;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use tidegate::metrics::LATENCY_BUCKETS;

use crate::*;
use exposition::Exposition;

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

/// Sends requests one after the other, and returns how many were allowed.
async fn send_many(app: &Router, number: usize) -> usize {
    let statuses = statuses(app, "/", "", number).await;
    statuses.iter().filter(|status| **status == 200).count()
}

/// A store whose answers a request has to wait for.
async fn redis_store() -> (RedisStore, Redis) {
    let server = Redis::start();
    (store_on(&server).await, server)
}
