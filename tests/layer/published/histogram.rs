//! How long the store took: as many values as there were answers, each in its bucket.

use std::thread;

use tidegate::metrics::LATENCY_BUCKETS;

use super::exposition::Exposition;
use super::{app, exporter, limits, per_hour, published, published_to, redis_store, send_many};
use crate::*;

/// A sample of the histogram.
fn histogram(text: &Exposition, what: &str, labels: &[(&str, &str)]) -> Option<f64> {
    text.of("getId", &format!("store_duration_seconds_{what}"), labels)
}

fn count(text: &Exposition) -> Option<f64> {
    histogram(text, "count", &[])
}

#[tokio::test]
async fn the_exporter_has_the_buckets_of_the_snapshot() {
    let (store, _server) = redis_store().await;
    let limits = limits([per_hour("getId", 100)]).store(store);
    send_many(&app(limits.layer("getId")), 50).await;

    let text = published(&limits);
    let latency = &counted(&limits, "getId").latency;
    assert_eq!(latency.count(), 50);
    let mut below = 0;
    for (at, of_snapshot) in latency.buckets().iter().enumerate() {
        below += of_snapshot.count;
        let bound = LATENCY_BUCKETS.get(at);
        let bound = bound.map_or("+Inf".to_owned(), f64::to_string);
        let bucket = histogram(&text, "bucket", &[("le", &bound)]);
        assert_eq!(bucket, Some(below as f64), "up to {bound}");
    }
    assert_eq!(count(&text), Some(50.0));
    let sum = histogram(&text, "sum", &[]);
    let difference = sum.expect("a sum") - latency.sum().as_secs_f64();
    assert!(difference.abs() < 1e-6, "{difference}");
}

#[tokio::test]
async fn answers_that_are_there_at_once_have_no_histogram() {
    let limits = limits([per_hour("getId", 100)]);
    send_many(&app(limits.layer("getId")), 2).await;
    assert_eq!(count(&published(&limits)), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn publications_at_the_same_time_count_nothing_twice() {
    const REQUESTS: usize = 200;
    let (store, _server) = redis_store().await;
    let limits = limits([per_hour("getId", 10_000)]).store(store);
    let app = app(limits.layer("getId"));
    let recorder = exporter().build_recorder();
    let requests = tokio::spawn(async move { send_many(&app, REQUESTS).await });
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !requests.is_finished() {
                    published_to(&recorder, &limits);
                    thread::yield_now();
                }
            });
        }
    });
    assert_eq!(requests.await.expect("no panic"), REQUESTS);
    let text = published_to(&recorder, &limits);
    assert_eq!(count(&text), Some(REQUESTS as f64));
    assert_eq!(text.decisions("getId"), REQUESTS as f64);
}
