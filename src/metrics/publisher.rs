use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::{
    Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit, with_recorder,
};

use super::latency::BOUNDS;
use super::rule_snapshot::{DecisionOutcome, LatencySnapshot, RuleSnapshot, Snapshot};
use crate::decision::Source;
use crate::sync::lock;

/// How many latencies one publication records: more than a process has answers in a second. An
/// exporter may keep each of them until it is asked. The rest is recorded later.
const MAX_LATENCIES: u64 = 250_000;

const DECISIONS: Metric = Metric::counter(
    "tidegate_decisions_total",
    "Requests by rule, by what became of them, and by who decided.",
);
const DENIALS: Metric = Metric::counter(
    "tidegate_denials_total",
    "Denied requests by the quota that had no room for them.",
);
const SHADOW_DENIALS: Metric = Metric::counter(
    "tidegate_shadow_denials_total",
    "Requests that a quota of a shadow rule would have denied.",
);
const SHADOW_ERRORS: Metric = Metric::counter(
    "tidegate_shadow_errors_total",
    "Takes of a shadow rule that got no answer.",
);
const UNITS: Metric = Metric::counter(
    "tidegate_units_total",
    "Units that allowed requests were charged.",
);
const NEAR_LIMIT: Metric = Metric::counter(
    "tidegate_near_limit_total",
    "Allowed requests after which a quota was nearly used up.",
);
const REFUNDS: Metric = Metric::counter(
    "tidegate_refunds_total",
    "Charges that were given back, wholly or in part.",
);
const REFUNDED_UNITS: Metric = Metric::counter(
    "tidegate_refunded_units_total",
    "Units that were given back.",
);
const REFUNDS_LOST: Metric = Metric::counter(
    "tidegate_refunds_lost_total",
    "Charges that were to be given back by their outcome, and stay charged.",
);
const ERRORS: Metric = Metric::counter(
    "tidegate_errors_total",
    "Failures of the store, and requests without a key, by kind.",
);
const WITHOUT_DECISION: Metric = Metric::counter(
    "tidegate_admitted_without_decision_total",
    "Requests that were admitted although no store decided.",
);
const LET_THROUGH: Metric = Metric::counter(
    "tidegate_let_through_total",
    "Requests of keys that an operator lets through: admitted without a question.",
);
const WAITED: Metric = Metric::counter(
    "tidegate_waited_requests_total",
    "Requests that waited for units, or still do.",
);
const WAITING: Metric = Metric::gauge(
    "tidegate_waiting_requests",
    "Requests that wait for units now.",
);
const PLAN_DECISIONS: Metric = Metric::counter(
    "tidegate_plan_decisions_total",
    "Decisions about requests with a plan of the rule: a part of tidegate_decisions_total.",
);
const UNKNOWN_PLANS: Metric = Metric::counter(
    "tidegate_unknown_plans_total",
    "Requests with a plan that the rule does not have: its own quotas applied.",
);
const STORE_DURATION: Metric = Metric::histogram(
    "tidegate_store_duration_seconds",
    "How long the store took to answer.",
);
const UNMATCHED: Metric = Metric::counter(
    "tidegate_unmatched_requests_total",
    "Requests of layers whose path has no rule.",
);

const ALL: [&Metric; 18] = [
    &DECISIONS,
    &PLAN_DECISIONS,
    &UNKNOWN_PLANS,
    &DENIALS,
    &SHADOW_DENIALS,
    &SHADOW_ERRORS,
    &UNITS,
    &NEAR_LIMIT,
    &REFUNDS,
    &REFUNDED_UNITS,
    &REFUNDS_LOST,
    &ERRORS,
    &WITHOUT_DECISION,
    &LET_THROUGH,
    &WAITED,
    &WAITING,
    &STORE_DURATION,
    &UNMATCHED,
];

/// Publishes snapshots to the recorder that is installed at that time.
///
/// Each time, a counter is set to its whole number: a recorder may come late, and a number that is
/// published twice counts once. No handle is kept, since a handle that was made before the recorder
/// was installed never does anything.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    /// The latencies that were recorded, by the paths of rules. A path stays when its rule is
    /// removed, since its numbers continue if the rule comes back.
    latencies: Mutex<HashMap<Box<str>, PublishedLatency>>,
    is_periodic: AtomicBool,
}

impl Publisher {
    /// Publishes a snapshot, which is taken while no other publication runs.
    pub(crate) fn publish(&self, take_snapshot: impl FnOnce() -> Snapshot) {
        // A latency is marked as recorded before the recorder, which may panic, gets it.
        let mut latencies = lock(&self.latencies);
        let snapshot = take_snapshot();
        with_recorder(|recorder| {
            // The recorder may have been installed since the last publication.
            ALL.iter().for_each(|metric| metric.describe(recorder));
            UNMATCHED.count(recorder, Vec::new(), snapshot.unmatched);
            let mut remaining = MAX_LATENCIES;
            for rule in &snapshot.rules {
                let label =
                    Label::new("rule", SharedString::from_shared(rule.path.as_str().into()));
                publish_counters(recorder, &label, rule);
                if rule.latency.count() > 0 {
                    let published = latencies.entry(rule.path.as_str().into()).or_default();
                    remaining -= publish_latency(recorder, label, rule, published, remaining);
                }
            }
        });
    }

    /// Notes that snapshots are published every second. Returns false if they already were.
    pub(crate) fn set_periodic(&self) -> bool {
        !self.is_periodic.swap(true, Ordering::Relaxed)
    }
}

fn publish_counters(recorder: &dyn Recorder, rule: &Label, counted: &RuleSnapshot) {
    for outcome in DecisionOutcome::ALL {
        for source in Source::ALL {
            let labels = vec![
                rule.clone(),
                Label::from_static_parts("outcome", outcome.name()),
                Label::from_static_parts("source", source.name()),
            ];
            DECISIONS.count(recorder, labels, counted.decisions_by(outcome, source));
        }
    }
    let by_quota = [
        (DENIALS, &counted.denials),
        (SHADOW_DENIALS, &counted.shadow_denials),
    ];
    for (metric, denials) in by_quota {
        for (quota, number) in denials {
            let labels = vec![rule.clone(), Label::new("quota", quota.clone())];
            metric.count(recorder, labels, *number);
        }
    }
    if !counted.plans.is_empty() {
        UNKNOWN_PLANS.count(recorder, vec![rule.clone()], counted.unknown_plans);
    }
    for plan in &counted.plans {
        let outcomes = [
            (DecisionOutcome::Allowed, plan.allowed),
            (DecisionOutcome::Denied, plan.denied),
        ];
        for (outcome, number) in outcomes {
            let labels = vec![
                rule.clone(),
                Label::new("plan", plan.name.clone()),
                Label::from_static_parts("outcome", outcome.name()),
            ];
            PLAN_DECISIONS.count(recorder, labels, number);
        }
    }
    for (kind, number) in counted.errors() {
        let labels = vec![rule.clone(), Label::from_static_parts("kind", kind)];
        ERRORS.count(recorder, labels, number);
    }
    let by_rule = [
        (SHADOW_ERRORS, counted.shadow_errors),
        (UNITS, counted.units),
        (NEAR_LIMIT, counted.near_limit),
        (REFUNDS, counted.refunds),
        (REFUNDED_UNITS, counted.refunded_units),
        (REFUNDS_LOST, counted.refunds_lost),
        (WITHOUT_DECISION, counted.proceeded),
        (LET_THROUGH, counted.let_through),
        (WAITED, counted.waited),
    ];
    for (metric, number) in by_rule {
        metric.count(recorder, vec![rule.clone()], number);
    }
    WAITING.set(recorder, vec![rule.clone()], counted.waiting as f64);
}

/// Returns how many latencies were recorded, at most `max`.
fn publish_latency(
    recorder: &dyn Recorder,
    rule: Label,
    counted: &RuleSnapshot,
    published: &mut PublishedLatency,
    max: u64,
) -> u64 {
    let histogram = STORE_DURATION.histogram_of(recorder, vec![rule]);
    published.record_new(&counted.latency, max, |seconds, number| {
        histogram.record_many(seconds, number);
    })
}

/// A metric that is published: its name, and what it counts or measures.
#[derive(Debug)]
pub(crate) struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

#[derive(Debug)]
enum Kind {
    Counter,
    Gauge,
    /// The unit is seconds.
    Histogram,
}

const METADATA: Metadata<'static> =
    Metadata::new("tidegate", Level::INFO, Some("tidegate::metrics"));

impl Metric {
    pub(crate) const fn counter(name: &'static str, help: &'static str) -> Self {
        let kind = Kind::Counter;
        Self { name, kind, help }
    }

    pub(crate) const fn gauge(name: &'static str, help: &'static str) -> Self {
        let kind = Kind::Gauge;
        Self { name, kind, help }
    }

    pub(crate) const fn histogram(name: &'static str, help: &'static str) -> Self {
        let kind = Kind::Histogram;
        Self { name, kind, help }
    }

    /// Tells a recorder the unit and the meaning. Recorders keep the first that they are told.
    pub(crate) fn describe(&self, recorder: &dyn Recorder) {
        let (name, help) = (KeyName::from_const_str(self.name), self.help.into());
        match self.kind {
            Kind::Counter => recorder.describe_counter(name, Some(Unit::Count), help),
            Kind::Gauge => recorder.describe_gauge(name, Some(Unit::Count), help),
            Kind::Histogram => recorder.describe_histogram(name, Some(Unit::Seconds), help),
        }
    }

    /// Sets the counter with these labels to a number that never falls.
    pub(crate) fn count(&self, recorder: &dyn Recorder, labels: Vec<Label>, number: u64) {
        let counter = recorder.register_counter(&self.key(labels), &METADATA);
        counter.absolute(number);
    }

    /// Sets the gauge with these labels.
    pub(crate) fn set(&self, recorder: &dyn Recorder, labels: Vec<Label>, value: f64) {
        let gauge = recorder.register_gauge(&self.key(labels), &METADATA);
        gauge.set(value);
    }

    /// The histogram with these labels. It exists from now on, also if nothing is recorded.
    pub(crate) fn histogram_of(
        &self,
        recorder: &dyn Recorder,
        labels: Vec<Label>,
    ) -> ::metrics::Histogram {
        recorder.register_histogram(&self.key(labels), &METADATA)
    }

    fn key(&self, labels: Vec<Label>) -> Key {
        Key::from_parts(KeyName::from_const_str(self.name), labels)
    }
}

/// Which of a rule's latencies were published.
#[derive(Debug, Default)]
pub(super) struct PublishedLatency {
    buckets: [PublishedBucket; BOUNDS.len() + 1],
}

#[derive(Debug, Clone, Copy, Default)]
struct PublishedBucket {
    count: u64,
    micros: u64,
}

impl PublishedLatency {
    /// Calls `record` with the latencies of a snapshot that were not published yet: for each bucket
    /// with their mean in seconds, and with their number. Returns how many these were, at most
    /// `max`. The rest is recorded the next time.
    pub(super) fn record_new(
        &mut self,
        latency: &LatencySnapshot,
        max: u64,
        mut record: impl FnMut(f64, usize),
    ) -> u64 {
        let (mut recorded, mut shortest) = (0, 0);
        for (bucket, published) in latency.buckets().iter().zip(&mut self.buckets) {
            let longest = bucket.at_most.map_or(u64::MAX, micros);
            let new = PublishedBucket {
                count: bucket.count.saturating_sub(published.count),
                micros: micros(bucket.sum).saturating_sub(published.micros),
            };
            let count = new.count.min(max - recorded);
            if count > 0 {
                // The sum and the number are read one after the other: the sum may be without a
                // request that the number has, or the other way round. It is made up for later.
                let mean = new.micros as f64 / new.count as f64;
                let mean = mean.clamp(shortest as f64, longest as f64);
                published.count += count;
                let micros = (mean * count as f64).round() as u64;
                published.micros = published.micros.saturating_add(micros);
                recorded += count;
                record(mean / 1e6, usize::try_from(count).unwrap_or(usize::MAX));
            }
            shortest = longest.saturating_add(1);
        }
        recorded
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::LATENCY_BUCKETS;
    use crate::metrics::latency::Latency;

    #[test]
    fn each_latency_is_recorded_once() {
        let (latency, mut published) = (Latency::default(), PublishedLatency::default());
        let mut new = |micros: &[u64]| {
            for micros in micros {
                latency.add(Duration::from_micros(*micros));
            }
            let mut recorded = Vec::new();
            published.record_new(&latency.snapshot(), 100, |mean, count| {
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
            let (latency, mut published) = (Latency::default(), PublishedLatency::default());
            for _ in 0..3 {
                latency.add(Duration::from_secs_f64(bound));
            }
            published.record_new(&latency.snapshot(), 100, |mean, _| {
                assert_eq!(mean, bound, "the bound of bucket {at} is in it");
            });
        }
    }

    #[test]
    fn what_is_too_much_at_once_is_recorded_later() {
        let (latency, mut published) = (Latency::default(), PublishedLatency::default());
        for micros in [50, 50, 50, 50, 50, 800] {
            latency.add(Duration::from_micros(micros));
        }
        let mut counts = Vec::new();
        for _ in 0..4 {
            counts.push(published.record_new(&latency.snapshot(), 2, |mean, _| {
                assert!(mean == 0.000_05 || mean == 0.000_8, "{mean}");
            }));
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
            LatencySnapshot::new(buckets)
        };
        let mut published = PublishedLatency::default();
        let mut recorded = Vec::new();
        for (count, micros) in [(1, 0), (2, 400), (2, 400)] {
            published.record_new(&bucket(count, micros), 100, |mean, count| {
                recorded.push((mean, count));
            });
        }
        assert_eq!(recorded, [(0.000_101, 1), (0.000_25, 1)]);
    }
}
