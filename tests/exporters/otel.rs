use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use metrics_exporter_otel::OpenTelemetryRecorder;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk_31::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk_31::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use tidegate_exporter_tests::{Counters, counted, note};

const DOCS: &str = include_str!("../../docs/metrics.md");

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_what_the_snapshots_count_by_the_names_of_the_docs() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone());
    let provider = provider.build();
    let recorder = OpenTelemetryRecorder::new(provider.meter("limits"));
    let install = || {
        metrics::set_global_recorder(recorder)
            .map_err(drop)
            .expect("the first one")
    };
    let expected = counted(install).await;
    provider.force_flush().expect("it is exported");

    let exports = exporter.get_finished_metrics().expect("no panic");
    let scopes = exports.last().expect("an export").scope_metrics();
    let all: Vec<_> = scopes.flat_map(|scope| scope.metrics()).collect();
    let mut counters = Counters::new();
    for metric in &all {
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

    let names = names(&all);
    let of_kind = |kind: &str| -> BTreeSet<String> {
        let rows = DOCS
            .lines()
            .filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
        let rows = rows.filter(|(_, rest)| rest.starts_with(kind));
        rows.map(|(name, _)| name.to_owned()).collect()
    };
    let (gauges, counters) = (of_kind("gauge"), of_kind("counter"));
    assert!(gauges.is_subset(&names), "{gauges:?} in {names:?}");
    let documented = gauges.union(&counters).cloned().collect();
    assert!(names.is_subset(&documented), "{names:?} in {documented:?}");
}

/// The name that the metric has in Prometheus, by the translator that Prometheus and the collector
/// of OpenTelemetry use.
fn names(metrics: &[&Metric]) -> BTreeSet<String> {
    let lines = metrics.iter().map(|metric| {
        let kind = match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(_)) => "counter",
            AggregatedMetrics::F64(MetricData::Gauge(_)) => "gauge",
            other => panic!("{other:?}"),
        };
        format!("{} {} {kind}\n", metric.name(), metric.unit())
    });
    let mut translator = Command::new("go")
        .args(["run", "."])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/names"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Go is installed");
    let mut input = translator.stdin.take().expect("is piped");
    input
        .write_all(lines.collect::<String>().as_bytes())
        .expect("is read");
    drop(input);
    let told = translator.wait_with_output().expect("our child");
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stdout).expect("text");
    told.lines().map(str::to_owned).collect()
}
