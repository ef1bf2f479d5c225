#!/usr/bin/env bash
# `Counter::absolute` of the `metrics` facade: what exporters make of a total that is told three times.
#
# Expected: a counter that is told 5, 5 and 8 as its absolute value is 8 in each exporter.
# Seen: one for Prometheus shows 8. One for OpenTelemetry adds what it is told to a sum: 18. One for
#   DogStatsD takes the first value as where the counting began, and sends 3. One for StatsD sends
#   nothing at all. The same told as increments (5, 0, 3) is 8 in all four.
# With: metrics 0.24.6, metrics-exporter-prometheus 0.18.3, metrics-exporter-opentelemetry 0.2.2,
#   metrics-exporter-dogstatsd 0.9.8, metrics-exporter-statsd 0.9.0; 29 November 2026
# Matters: a library that keeps totals of its own and publishes them by `absolute` is right in one
#   exporter alone; whoever remembers what was published, and increments by the rest, is right in all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

mkdir src
cat >Cargo.toml <<'END'
[package]
name = "told"
version = "0.0.0"
edition = "2024"

[dependencies]
metrics = "=0.24.6"
metrics-exporter-dogstatsd = "=0.9.8"
metrics-exporter-opentelemetry = "=0.2.2"
metrics-exporter-prometheus = { version = "=0.18.3", default-features = false }
metrics-exporter-statsd = "=0.9.0"
opentelemetry_sdk = { version = "0.33", default-features = false, features = ["metrics", "testing"] }
END
cat >src/main.rs <<'END'
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use metrics::counter;
use opentelemetry_sdk::metrics::InMemoryMetricExporter;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};

fn tell() {
    for (total, more) in [(5, 5), (5, 0), (8, 3)] {
        counter!("by_total").absolute(total);
        counter!("by_rest").increment(more);
        // Exporters that send by themselves do so in between.
        std::thread::sleep(Duration::from_millis(1_500));
    }
}

/// The sum of a counter in the datagrams that come, such as `by_rest:3|c`.
fn sent(daemon: &UdpSocket) -> [u64; 2] {
    let (mut sums, mut bytes) = ([0; 2], [0; 65_536]);
    daemon.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        let length = daemon.recv(&mut bytes).unwrap_or(0);
        for line in String::from_utf8_lossy(&bytes[..length]).lines() {
            for (at, name) in ["by_total:", "by_rest:"].into_iter().enumerate() {
                let value = line.strip_prefix(name).and_then(|it| it.split('|').next());
                sums[at] += value.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
            }
        }
    }
    sums
}

fn main() {
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = daemon.local_addr().unwrap().port();
    let name = std::env::args().nth(1).unwrap();
    let [total, rest] = match &*name {
        "prometheus" => {
            let recorder = metrics_exporter_prometheus::PrometheusBuilder::new();
            let shown = recorder.install_recorder().unwrap();
            tell();
            let shown = shown.render();
            ["by_total ", "by_rest "].map(|name| {
                let line = shown.lines().find_map(|line| line.strip_prefix(name));
                line.map_or(0, |it| it.parse().unwrap())
            })
        }
        "opentelemetry" => {
            let exporter = InMemoryMetricExporter::default();
            let kept = exporter.clone();
            let recorder = metrics_exporter_opentelemetry::Recorder::builder("told");
            let recorder = recorder.with_meter_provider(|it| it.with_periodic_exporter(exporter));
            let (provider, _) = recorder.install().unwrap();
            tell();
            provider.force_flush().unwrap();
            let exports = kept.get_finished_metrics().unwrap();
            let scopes = exports.last().unwrap().scope_metrics();
            let metrics: Vec<_> = scopes.flat_map(|scope| scope.metrics()).collect();
            ["by_total", "by_rest"].map(|name| {
                let metric = metrics.iter().find(|it| it.name() == name).unwrap();
                match metric.data() {
                    AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                        sum.data_points().map(|it| it.value()).sum()
                    }
                    _ => 0,
                }
            })
        }
        "dogstatsd" => {
            let builder = metrics_exporter_dogstatsd::DogStatsDBuilder::default();
            let builder = builder.with_remote_address(format!("127.0.0.1:{port}")).unwrap();
            builder.install().unwrap();
            tell();
            sent(&daemon)
        }
        _ => {
            let recorder = metrics_exporter_statsd::StatsdBuilder::from("127.0.0.1", port);
            let recorder = recorder.with_buffer_size(1);
            metrics::set_global_recorder(recorder.build(None).unwrap()).ok().unwrap();
            tell();
            sent(&daemon)
        }
    };
    println!("{name}: by total {total}, by the rest {rest}");
}
END
cargo build --quiet
for exporter in prometheus opentelemetry dogstatsd statsd; do
  target/debug/told $exporter
done | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
prometheus: by total 8, by the rest 8
opentelemetry: by total 18, by the rest 8
dogstatsd: by total 3, by the rest 8
statsd: by total 0, by the rest 8
END
