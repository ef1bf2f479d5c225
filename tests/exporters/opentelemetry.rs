use metrics_exporter_opentelemetry::Recorder;
use opentelemetry_sdk::metrics::InMemoryMetricExporter;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use tidegate_exporter_tests::{Counters, counted, note};

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_what_the_snapshots_count() {
    let exporter = InMemoryMetricExporter::default();
    let kept = exporter.clone();
    let recorder = Recorder::builder("limits");
    let recorder = recorder.with_meter_provider(|it| it.with_periodic_exporter(exporter));
    let mut provider = None;
    let install = || provider = Some(recorder.install().expect("the first one").0);
    let expected = counted(install).await;
    provider
        .expect("installed")
        .force_flush()
        .expect("it is exported");

    let mut counters = Counters::new();
    let exports = kept.get_finished_metrics().expect("no panic");
    let scopes = exports.last().expect("an export").scope_metrics();
    for metric in scopes.flat_map(|scope| scope.metrics()) {
        if let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() {
            for point in sum.data_points() {
                let labels: Vec<_> = point
                    .attributes()
                    .map(|it| (it.key.as_str(), it.value.as_str()))
                    .collect();
                let labels = labels.iter().map(|(key, value)| (*key, &**value));
                note(&mut counters, metric.name(), labels, point.value());
            }
        }
    }
    assert_eq!(counters, expected);
}
