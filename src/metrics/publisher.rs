use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::{Label, Recorder, SharedString, with_recorder};

use super::decision_outcome::DecisionOutcome;
use super::metric::Metric;
use super::published_latency::PublishedLatency;
use super::rule_snapshot::RuleSnapshot;
use super::snapshot::Snapshot;
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
const ERRORS: Metric = Metric::counter(
    "tidegate_errors_total",
    "Failures of the store, and requests without a key, by kind.",
);
const WITHOUT_DECISION: Metric = Metric::counter(
    "tidegate_admitted_without_decision_total",
    "Requests that were admitted although no store decided.",
);
const WAITED: Metric = Metric::counter(
    "tidegate_waited_requests_total",
    "Requests that waited for units, or still do.",
);
const WAITING: Metric = Metric::gauge(
    "tidegate_waiting_requests",
    "Requests that wait for units now.",
);
const STORE_DURATION: Metric = Metric::histogram(
    "tidegate_store_duration_seconds",
    "How long the store took to answer.",
);
const UNMATCHED: Metric = Metric::counter(
    "tidegate_unmatched_requests_total",
    "Requests of layers whose path has no rule.",
);

const ALL: [&Metric; 14] = [
    &DECISIONS,
    &DENIALS,
    &SHADOW_DENIALS,
    &SHADOW_ERRORS,
    &UNITS,
    &NEAR_LIMIT,
    &REFUNDS,
    &REFUNDED_UNITS,
    &ERRORS,
    &WITHOUT_DECISION,
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
            UNMATCHED.count(recorder, Vec::new(), snapshot.unmatched());
            let mut remaining = MAX_LATENCIES;
            for rule in snapshot.rules() {
                let label = Label::new("rule", SharedString::from_shared(rule.path().into()));
                publish_counters(recorder, &label, rule);
                if rule.latency().count() > 0 {
                    let published = latencies.entry(rule.path().into()).or_default();
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
        (DENIALS, counted.denials()),
        (SHADOW_DENIALS, counted.shadow_denials()),
    ];
    for (metric, denials) in by_quota {
        for (quota, number) in denials {
            let labels = vec![rule.clone(), Label::new("quota", quota.clone())];
            metric.count(recorder, labels, *number);
        }
    }
    for (kind, number) in counted.errors() {
        let labels = vec![rule.clone(), Label::from_static_parts("kind", kind)];
        ERRORS.count(recorder, labels, number);
    }
    let by_rule = [
        (SHADOW_ERRORS, counted.shadow_errors()),
        (UNITS, counted.units()),
        (NEAR_LIMIT, counted.near_limit()),
        (REFUNDS, counted.refunds()),
        (REFUNDED_UNITS, counted.refunded_units()),
        (WITHOUT_DECISION, counted.proceeded()),
        (WAITED, counted.waited()),
    ];
    for (metric, number) in by_rule {
        metric.count(recorder, vec![rule.clone()], number);
    }
    WAITING.set(recorder, vec![rule.clone()], counted.waiting() as f64);
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
    published.record_new(counted.latency(), max, |seconds, number| {
        histogram.record_many(seconds, number);
    })
}
