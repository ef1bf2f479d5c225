//! Recorders that come late, that panic, and that forget. The interval is of a second, by the wall
//! clock.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use metrics_util::MetricKindMask;
use tidegate::metrics::LATENCY_BUCKETS;

use crate::*;

/// The exporter as docs/metrics.md sets it up.
fn exporter() -> PrometheusBuilder {
    let duration = Matcher::Full("tidegate_store_duration_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(duration, LATENCY_BUCKETS);
    builder.expect("there are buckets")
}

/// All samples of a metric that are of this rule, added up.
fn sum(text: &str, metric: &str, rule: &str) -> f64 {
    let (metric, rule) = (format!("{metric}{{"), format!("rule=\"{rule}\""));
    let lines = text.lines();
    let lines = lines.filter(|line| line.starts_with(&metric) && line.contains(&rule));
    let values = lines.map(|line| line.rsplit(' ').next().expect("a value"));
    values.map(|it| it.parse::<f64>().expect("a number")).sum()
}

async fn send_many(app: &Router, number: usize) {
    for _ in 0..number {
        assert_eq!(kit::http::status(app, "/").await, 200);
    }
}

/// The only test that installs a recorder for the process.
#[tokio::test(flavor = "multi_thread")]
async fn every_second_whenever_a_recorder_comes_and_as_long_as_a_layer_lives() {
    let server = Redis::start();
    let limits = Limits::new([per_hour("late", 100)]).store(store_on(&server).await);
    let app = app(limits.layer("late"));
    limits.publish_metrics_every_second();
    limits.clone().publish_metrics_every_second();
    send_many(&app, 3).await;
    // Published to nobody, at least once.
    sleep(Duration::from_millis(2_500)).await;

    let exporter = exporter().build_recorder();
    let prometheus = exporter.handle();
    let panics = Arc::new(AtomicBool::new(false));
    let recorder = PanicsAtTimes {
        inner: exporter,
        panics: Arc::clone(&panics),
    };
    metrics::set_global_recorder(recorder).expect("the first one");
    // Waits until the exporter shows these numbers. Durations are published behind the decisions.
    let until = async |decisions: f64, durations: Option<f64>| {
        let shown = |metric: &str| sum(&prometheus.render(), metric, "late");
        let is_so = async || {
            let of_store = shown("tidegate_store_duration_seconds_count");
            let are_there = durations.is_none_or(|number| of_store == number);
            are_there && shown("tidegate_decisions_total") == decisions
        };
        eventually("it is published", is_so).await;
    };
    send_many(&app, 2).await;
    until(5.0, Some(5.0)).await;

    panics.store(true, Ordering::Relaxed);
    send_many(&app, 1).await;
    sleep(Duration::from_millis(2_500)).await;
    panics.store(false, Ordering::Relaxed);
    until(6.0, None).await;

    // An app often keeps its layers alone.
    drop(limits);
    sleep(Duration::from_millis(1_500)).await;
    send_many(&app, 1).await;
    until(7.0, None).await;

    send_many(&app, 1).await;
    drop(app);
    until(8.0, Some(8.0)).await;
}

/// A counter that was idle for long is dropped by the exporter. What is published is never idle.
#[tokio::test]
async fn an_idle_timeout_drops_removed_rules_and_nothing_else() {
    const IDLE: Duration = Duration::from_secs(1);
    let exporter = exporter().idle_timeout(MetricKindMask::ALL, Some(IDLE));
    let recorder = exporter.build_recorder();
    let limits = Limits::new([per_hour("stays", 5), per_hour("goes", 5)]);
    let stays = app(limits.layer("stays"));
    let _goes = limits.layer("goes");
    let published = || {
        metrics::with_local_recorder(&recorder, || limits.publish_metrics());
        recorder.handle().render()
    };
    let goes = |text: String| text.contains("rule=\"goes\"");
    send_many(&stays, 2).await;
    assert!(goes(published()));

    let rules = [per_hour("stays", 5)];
    limits.rules().replace(rules.into_iter().collect());
    assert!(goes(published()));
    sleep(IDLE * 2).await;
    let text = published();
    assert_eq!(sum(&text, "tidegate_decisions_total", "stays"), 2.0);
    assert!(!goes(text));
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
