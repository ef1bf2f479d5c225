#!/usr/bin/env bash
# `Unit::Count` of the `metrics` facade: the name that Prometheus gives to a gauge described by it.
#
# Expected: a gauge `queue_length`, described as a count, is `queue_length` in Prometheus, whichever
#   exporter of the facade tells of it.
# Seen: the exporter for Prometheus shows `queue_length`. Through that for OpenTelemetry, whose unit
#   of a count is "1", the translator of Prometheus and of the collector names it
#   `queue_length_ratio`. Without a unit it is `queue_length` in both; a counter is never a ratio.
# With: metrics 0.24.6, metrics-exporter-prometheus 0.18.3, metrics-exporter-otel 0.3.1,
#   github.com/prometheus/otlptranslator 1.0.0; 30 November 2026
# Matters: who describes a gauge by `Unit::Count` has alerts that find nothing behind the other
#   exporter; a gauge of things needs no unit.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"

mkdir src names
cat >Cargo.toml <<'END'
[package]
name = "named"
version = "0.0.0"
edition = "2024"

[dependencies]
metrics = "=0.24.6"
metrics-exporter-otel = "=0.3.1"
metrics-exporter-prometheus = { version = "=0.18.3", default-features = false }
opentelemetry = { version = "0.31", default-features = false, features = ["metrics"] }
opentelemetry_sdk = { version = "0.31", default-features = false, features = ["metrics", "testing"] }
END
cat >src/main.rs <<'END'
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_otel::OpenTelemetryRecorder;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};

fn tell() {
    describe_gauge!("queue_length", Unit::Count, "how many wait");
    describe_gauge!("workers", "how many work");
    describe_counter!("jobs_total", Unit::Count, "how many there were");
    gauge!("queue_length").set(3);
    gauge!("workers").set(2);
    counter!("jobs_total").increment(5);
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("prometheus") {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new();
        let shown = recorder.install_recorder().unwrap();
        tell();
        for line in shown.render().lines().filter(|it| !it.is_empty() && !it.starts_with('#')) {
            println!("{}", line.split(' ').next().unwrap());
        }
        return;
    }
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    metrics::set_global_recorder(OpenTelemetryRecorder::new(provider.meter("named"))).ok().unwrap();
    tell();
    provider.force_flush().unwrap();
    let exports = exporter.get_finished_metrics().unwrap();
    for metric in exports.last().unwrap().scope_metrics().flat_map(|it| it.metrics()) {
        let kind = match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(_)) => "counter",
            _ => "gauge",
        };
        println!("{} {kind} {}", metric.name(), metric.unit());
    }
}
END
cat >names/go.mod <<'END'
module names

go 1.24

require github.com/prometheus/otlptranslator v1.0.0
END
cat >names/main.go <<'END'
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/otlptranslator"
)

func main() {
	namer := otlptranslator.MetricNamer{WithMetricSuffixes: true}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.SplitN(lines.Text(), " ", 3)
		metric := otlptranslator.Metric{Name: words[0], Unit: words[2]}
		metric.Type = otlptranslator.MetricTypeGauge
		if words[1] == "counter" {
			metric.Type = otlptranslator.MetricTypeMonotonicCounter
		}
		name, err := namer.Build(metric)
		if err != nil {
			panic(err)
		}
		fmt.Println(name)
	}
}
END
cargo build --quiet
(cd names && GOFLAGS=-mod=mod go build -o ../translate .)
{
  echo prometheus: $(target/debug/named prometheus | sort)
  echo opentelemetry: $(target/debug/named opentelemetry | ./translate | sort)
} | tee saw
diff - saw <<'END' || { echo "changed: see above" >&2; exit 1; }
prometheus: jobs_total queue_length workers
opentelemetry: jobs_total queue_length_ratio workers
END
