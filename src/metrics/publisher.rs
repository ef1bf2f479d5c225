use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use super::latency::Latency;
use super::rule_snapshot::{LatencySnapshot, Snapshot};
use super::table::{METRICS, Numbers};
use crate::sync::lock;

/// How many latencies one publication records: more than a process has answers in a second. An
/// exporter may keep each of them until it is asked. The rest is recorded later.
const MAX_LATENCIES: u64 = 250_000;

const UNMATCHED: Metric = Metric::Counter(
    "tidegate_unmatched_requests_total",
    "Requests of layers whose path has no rule.",
);
/// More unused rules than an application has that forgot to declare its checks.
const MAX_UNUSED: usize = 100;
/// With these alerts see failures.
const ERRORS: &str = "tidegate_errors_total";
const ADMITTED: &str = "tidegate_admitted_without_decision_total";
const STORE_DURATION: &str = "tidegate_store_duration_seconds";

/// Publishes snapshots to the recorder that is installed at that time.
///
/// A counter grows by what was counted since it was published last: not every exporter can set it
/// to its whole number, and two publishers of one series add up. No handle is kept, since a handle
/// that was made before the recorder was installed never does anything.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    /// The counters above 0 that were published, by their names and labels.
    counters: Mutex<HashMap<(&'static str, Vec<Label>), u64>>,
    /// The latencies that were recorded, by the paths of rules. A path stays when its rule is
    /// removed, since its numbers continue if the rule comes back.
    latencies: Mutex<HashMap<Box<str>, LatencySnapshot>>,
    is_periodic: AtomicBool,
}

impl Publisher {
    /// Publishes a snapshot, which is taken while no other publication runs.
    pub(crate) fn publish(&self, take_snapshot: impl FnOnce() -> Snapshot) {
        // A latency is marked as recorded before the recorder, which may panic, gets it.
        let mut latencies = lock(&self.latencies);
        let snapshot = take_snapshot();
        // The recorder may have been installed since the last publication.
        METRICS.iter().for_each(|(one, _)| one.describe());
        UNMATCHED.describe();
        describe_histogram!(
            STORE_DURATION,
            Unit::Seconds,
            "How long the store took to answer."
        );
        self.set(&UNMATCHED, Vec::new(), snapshot.unmatched);
        let mut remaining = MAX_LATENCIES;
        for rule in &snapshot.rules {
            let path = SharedString::from_shared(rule.path.as_str().into());
            let label = Label::new("rule", path);
            for (metric, samples) in METRICS {
                samples(rule, &mut |mut labels, number| {
                    labels.insert(0, label.clone());
                    self.set(metric, labels, number);
                });
            }
            if rule.latency.count() > 0 {
                let histogram = histogram!(target: TARGET, STORE_DURATION, vec![label]);
                let published = latencies.entry(rule.path.as_str().into());
                let published = published.or_insert_with(|| Latency::default().snapshot());
                let record = |seconds, number| histogram.record_many(seconds, number);
                remaining -= record_new(published, &rule.latency, remaining, record);
            }
        }
    }

    /// Publishes that rules that nothing has used yet have no failures. A check may use one with its
    /// first failure, and only what grows from 0 is an increase.
    pub(crate) fn publish_unused(&self, paths: Vec<String>) {
        for path in paths.into_iter().take(MAX_UNUSED) {
            let unused = Numbers::default().snapshot(&path);
            let is_shown = |it: &&_| matches!(it, &&(Metric::Counter(ERRORS | ADMITTED, _), _));
            for (metric, samples) in METRICS.iter().filter(is_shown) {
                samples(&unused, &mut |mut labels, none| {
                    labels.insert(0, Label::new("rule", path.clone()));
                    self.set(metric, labels, none);
                });
            }
        }
    }

    /// Publishes that what has these labels has a number, which for a counter never falls. One that
    /// has not grown is told, too: else an exporter may drop it as idle.
    pub(crate) fn set(&self, metric: &Metric, labels: Vec<Label>, number: u64) {
        let (Metric::Counter(name, _) | Metric::Gauge(name, _)) = *metric;
        if let Metric::Gauge(..) = metric {
            return gauge!(target: TARGET, name, labels).set(number as f64);
        }
        // Before a number is marked as published, since the recorder may panic.
        let counter = counter!(target: TARGET, name, labels.clone());
        let (mut counters, series) = (lock(&self.counters), (name, labels));
        let published = counters.get(&series).copied().unwrap_or_default();
        // Most series of a rule stay 0, and need no memory.
        if number > published {
            counters.insert(series, number);
        }
        counter.increment(number.saturating_sub(published));
    }

    /// Notes that snapshots are published every second. Returns false if they already were.
    pub(crate) fn set_periodic(&self) -> bool {
        !self.is_periodic.swap(true, Ordering::Relaxed)
    }
}

/// A metric that is published: its name, and what it counts or measures.
#[derive(Debug)]
pub(crate) enum Metric {
    Counter(&'static str, &'static str),
    Gauge(&'static str, &'static str),
}

const TARGET: &str = "tidegate";

impl Metric {
    /// Tells the recorder the unit and the meaning. Recorders keep the first that they are told.
    pub(crate) fn describe(&self) {
        match *self {
            Self::Counter(name, help) => describe_counter!(name, Unit::Count, help),
            Self::Gauge(name, help) if name.ends_with("_milliseconds") => {
                describe_gauge!(name, Unit::Milliseconds, help);
            }
            // Exporters take a gauge whose unit is a count for a ratio, and name it so.
            Self::Gauge(name, help) => describe_gauge!(name, help),
        }
    }
}

/// Calls `record` with the latencies of a snapshot that were not published yet: for each bucket with
/// their mean in seconds, and with their number. Returns how many these were, at most `max`. The rest
/// is recorded the next time.
fn record_new(
    published: &mut LatencySnapshot,
    latency: &LatencySnapshot,
    max: u64,
    mut record: impl FnMut(f64, usize),
) -> u64 {
    let (mut recorded, mut shortest) = (0, 0);
    for (bucket, published) in latency.buckets().iter().zip(&mut published.0) {
        let longest = bucket.at_most.map_or(u64::MAX, micros);
        let new = bucket.count.saturating_sub(published.count);
        let count = new.min(max - recorded);
        if count > 0 {
            // The sum and the number are read one after the other: the sum may be without a request
            // that the number has, or the other way round. It is made up for later.
            let mean = micros(bucket.sum.saturating_sub(published.sum)) as f64 / new as f64;
            let mean = mean.clamp(shortest as f64, longest as f64);
            let sum = Duration::from_micros((mean * count as f64).round() as u64);
            published.count += count;
            published.sum = published.sum.saturating_add(sum);
            recorded += count;
            record(mean / 1e6, usize::try_from(count).unwrap_or(usize::MAX));
        }
        shortest = longest.saturating_add(1);
    }
    recorded
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LATENCY_BUCKETS;

    #[test]
    fn each_latency_is_recorded_once() {
        let (latency, mut published) = (Latency::default(), Latency::default().snapshot());
        let mut new = |micros: &[u64]| {
            for micros in micros {
                latency.add(Duration::from_micros(*micros));
            }
            let mut recorded = Vec::new();
            record_new(&mut published, &latency.snapshot(), 100, |mean, count| {
                recorded.push((mean, count));
            });
            recorded
        };
        assert_eq!(new(&[200, 240, 3_000]), [(0.000_22, 2), (0.003, 1)]);
        assert_eq!(new(&[]), []);
        assert_eq!(new(&[240]), [(0.000_24, 1)]);
        assert_eq!(new(&[3_000_000]), [(3.0, 1)]);
    }

    #[test]
    fn a_latency_stays_in_its_bucket() {
        for (at, bound) in LATENCY_BUCKETS.iter().copied().enumerate() {
            let (latency, mut published) = (Latency::default(), Latency::default().snapshot());
            for _ in 0..3 {
                latency.add(Duration::from_secs_f64(bound));
            }
            record_new(&mut published, &latency.snapshot(), 100, |mean, _| {
                assert_eq!(mean, bound, "the bound of bucket {at} is in it");
            });
        }
    }

    #[test]
    fn what_is_too_much_at_once_is_recorded_later() {
        let (latency, mut published) = (Latency::default(), Latency::default().snapshot());
        for micros in [50, 50, 50, 50, 50, 800] {
            latency.add(Duration::from_micros(micros));
        }
        let mut counts = Vec::new();
        for _ in 0..4 {
            counts.push(record_new(
                &mut published,
                &latency.snapshot(),
                2,
                |mean, _| {
                    assert!(mean == 0.000_05 || mean == 0.000_8, "{mean}");
                },
            ));
        }
        assert_eq!(counts, [2, 2, 2, 0]);
    }

    /// The number and the sum are two numbers, and requests go on while they are read.
    #[test]
    fn a_sum_that_lags_behind_is_made_up_for() {
        let bucket = |count, micros| {
            let mut buckets = Latency::default().snapshot().buckets().to_vec();
            buckets[1].count = count;
            buckets[1].sum = Duration::from_micros(micros);
            LatencySnapshot(buckets)
        };
        let mut published = Latency::default().snapshot();
        let mut recorded = Vec::new();
        for (count, micros) in [(1, 0), (2, 400), (2, 400)] {
            record_new(
                &mut published,
                &bucket(count, micros),
                100,
                |mean, count| {
                    recorded.push((mean, count));
                },
            );
        }
        assert_eq!(recorded, [(0.000_101, 1), (0.000_25, 1)]);
    }
}
