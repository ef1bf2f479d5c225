//! Recorders that come late, that panic, and that forget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;

use super::exposition::Exposition;
use super::{app, exporter, limits, per_hour, published_to, redis_store, send_many};

/// Waits until the exporter shows this number of decisions about the rule.
async fn until(prometheus: &PrometheusHandle, decisions: f64) -> Exposition {
    let started = Instant::now();
    loop {
        let text = Exposition::parse(&prometheus.render());
        let shown = text.sum("tidegate_decisions_total", &[("rule", "late")]);
        if shown == decisions {
            return text;
        }
        let elapsed = started.elapsed();
        assert!(
            elapsed < Duration::from_secs(20),
            "{shown}, not {decisions}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the exporter shows so many durations: they are published behind the decisions.
async fn until_durations(prometheus: &PrometheusHandle, number: f64) {
    let started = Instant::now();
    loop {
        let text = Exposition::parse(&prometheus.render());
        let name = "tidegate_store_duration_seconds_count";
        let shown = text.get(name, &[("rule", "late")]);
        if shown == Some(number) {
            return;
        }
        let elapsed = started.elapsed();
        assert!(elapsed < Duration::from_secs(20), "{shown:?}, not {number}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The only test that installs a recorder for the process.
#[tokio::test(flavor = "multi_thread")]
async fn every_second_whenever_a_recorder_comes_and_as_long_as_a_layer_lives() {
    let (store, _server) = redis_store().await;
    let limits = limits([per_hour("late", 100)]).store(store);
    let app = app(limits.layer("late"));
    limits.publish_metrics_every_second();
    limits.clone().publish_metrics_every_second();
    send_many(&app, 3).await;
    // Published to nobody, at least once.
    tokio::time::sleep(Duration::from_millis(2_500)).await;

    let exporter = exporter().build_recorder();
    let prometheus = exporter.handle();
    let panics = Arc::new(AtomicBool::new(false));
    let recorder = PanicsAtTimes {
        inner: exporter,
        panics: Arc::clone(&panics),
    };
    metrics::set_global_recorder(recorder).expect("the first one");
    send_many(&app, 2).await;
    until(&prometheus, 5.0).await;
    // The histogram starts with the recorder.
    until_durations(&prometheus, 2.0).await;

    panics.store(true, Ordering::Relaxed);
    send_many(&app, 1).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    panics.store(false, Ordering::Relaxed);
    until(&prometheus, 6.0).await;

    // An app often keeps its layers alone.
    drop(limits);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    send_many(&app, 1).await;
    until(&prometheus, 7.0).await;

    send_many(&app, 1).await;
    drop(app);
    until(&prometheus, 8.0).await;
    until_durations(&prometheus, 5.0).await;
}

/// A counter that was idle for long is dropped by the exporter. What is published is never idle.
#[tokio::test]
async fn an_idle_timeout_drops_removed_rules_and_nothing_else() {
    const IDLE: Duration = Duration::from_millis(300);
    let exporter = exporter().idle_timeout(MetricKindMask::ALL, Some(IDLE));
    let recorder = exporter.build_recorder();
    let limits = limits([per_hour("stays", 5), per_hour("goes", 5)]);
    let stays = app(limits.layer("stays"));
    let _goes = limits.layer("goes");
    send_many(&stays, 2).await;
    assert!(published_to(&recorder, &limits).series_with("rule", "goes") > 0);

    limits
        .rules()
        .replace([per_hour("stays", 5)].into_iter().collect());
    assert!(published_to(&recorder, &limits).series_with("rule", "goes") > 0);
    tokio::time::sleep(IDLE * 2).await;
    let text = published_to(&recorder, &limits);
    assert_eq!(text.series_with("rule", "goes"), 0);
    assert_eq!(
        text.sum("tidegate_decisions_total", &[("rule", "stays")]),
        2.0
    );
}

/// Panics on every counter while it is told to.
struct PanicsAtTimes {
    inner: PrometheusRecorder,
    panics: Arc<AtomicBool>,
}

impl Recorder for PanicsAtTimes {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_counter(name, unit, help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_histogram(name, unit, help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        assert!(!self.panics.load(Ordering::Relaxed), "told to");
        self.inner.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.inner.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.inner.register_histogram(key, metadata)
    }
}
