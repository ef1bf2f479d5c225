use std::time::Duration;

#[cfg(feature = "metrics")]
use ::metrics::Label;

#[cfg(feature = "metrics")]
use super::publisher::Metric;
use crate::decision::{Decision, Source, Verdict};
use crate::error::{KeyErrorKind, StoreErrorKind};

/// What the layers of one path have counted since they were made.
///
/// The numbers only grow, except for [`waiting`](Self::waiting). Each is read by itself: a request
/// may be in one of them and not in another yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSnapshot {
    /// The path of the rule.
    pub path: String,
    pub(super) decisions: [[u64; Source::ALL.len()]; DecisionOutcome::ALL.len()],
    /// The name of each quota of the rule, and how many denied requests it had no room for. A
    /// request may be denied by several quotas.
    pub denials: Vec<(String, u64)>,
    /// The name of each quota of a [shadow rule](crate::Rule::into_shadow), and how many requests
    /// it would have denied.
    pub shadow_denials: Vec<(String, u64)>,
    /// The decisions about requests with each [plan](crate::Rule::with_plan) of the rule. They are
    /// among those of the rule.
    pub plans: Vec<PlanSnapshot>,
    /// Units that allowed requests were charged.
    pub units: u64,
    /// Allowed requests after which a quota was used to 80 %, or
    /// [another part](crate::Limits::near_limit_ratio). Requests [at a
    /// time](crate::Rule::with_max_concurrent) are no such quota.
    pub near_limit: u64,
    /// Charges that were [given back](crate::store::Charge::refund), wholly or in part.
    pub refunds: u64,
    /// Units that were given back.
    pub refunded_units: u64,
    /// Units that were used beyond a reservation, and [charged](crate::store::Charge::settle).
    /// They are not among the [units](Self::units) of allowed requests.
    pub owed_units: u64,
    /// Units that were used beyond a reservation, and not charged: more than a key
    /// [may owe](crate::Rule::with_owe_at_most).
    pub forgiven_units: u64,
    /// Charges that were to be given back [by their
    /// outcome](crate::Rule::with_refund_on), or settled later, or beyond the
    /// reservation, and stay as they are: the store failed, gave no answer in
    /// 10 s or still had 4,096 refunds to answer, or the runtime has ended. The store may have
    /// given back those whose answers were lost.
    pub refunds_lost: u64,
    pub(super) store_errors: [u64; StoreErrorKind::ALL.len()],
    pub(super) key_errors: [u64; KeyErrorKind::ALL.len()],
    /// Takes of a shadow rule that got no answer. They are not among the
    /// [errors](Self::store_errors) of the store, and their times are not in the
    /// [latency](Self::latency).
    pub shadow_errors: u64,
    /// Decisions of Redis that came after the time-out and still count, because this process was
    /// late to send the take or to read the reply. They are not among the errors.
    pub lagged: u64,
    /// Requests of keys that were let through for a while, as the page lets an operator do: they
    /// were admitted without a question, and charged nothing.
    pub let_through: u64,
    /// Requests of keys that were blocked for a while, as the page lets an operator do: they were
    /// denied without a question. They are among the [decisions](Self::decisions).
    pub blocked: u64,
    /// Requests that were admitted without a decision, because the rule or an error callback says
    /// so, as [`FailOpen`](crate::FailOpen) does.
    pub proceeded: u64,
    /// Requests with a plan that the rule does not have, or that does not fit it: its own quotas applied.
    pub unknown_plans: u64,
    /// Requests that wait for units now.
    pub waiting: u64,
    /// Requests that waited for units, or still do.
    pub waited: u64,
    /// Uploads that a layer answered and that were not
    /// [read to their end](crate::RateLimitLayer::close_denied_uploads): too long, too slow, or too
    /// many at a time. Their connections, or streams of HTTP/2, were closed.
    pub closed_uploads: u64,
    /// How long the store took to answer.
    pub latency: LatencySnapshot,
}

impl RuleSnapshot {
    /// Requests with this outcome, whichever store decided.
    #[must_use]
    pub fn decisions(&self, outcome: DecisionOutcome) -> u64 {
        self.decisions[outcome as usize].iter().sum()
    }

    /// Requests with this outcome that this kind of store decided about.
    #[must_use]
    pub fn decisions_by(&self, outcome: DecisionOutcome, source: Source) -> u64 {
        self.decisions[outcome as usize][source as usize]
    }

    /// Requests that were denied by a quota, or by requests in progress.
    #[cfg(any(feature = "page", feature = "tracing"))]
    pub(crate) fn denied(&self) -> u64 {
        use DecisionOutcome::{Busy, Denied, Never};
        let outcomes = [Denied, Busy, Never].into_iter();
        outcomes.map(|outcome| self.decisions(outcome)).sum()
    }

    /// Failures of the store by their kinds, also where a fallback decided.
    #[must_use]
    pub fn store_errors(&self, kind: StoreErrorKind) -> u64 {
        self.store_errors[kind as usize]
    }

    /// Requests without a key, by whose mistake it was.
    #[must_use]
    pub fn key_errors(&self, kind: KeyErrorKind) -> u64 {
        self.key_errors[kind as usize]
    }

    /// All errors by the names of their kinds: those of the store such as `timeout`, and
    /// `key_absent`, `key_malformed` and `key_server`.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let store = StoreErrorKind::ALL.map(|kind| (kind.name(), self.store_errors(kind)));
        let key = KeyErrorKind::ALL.map(|kind| (kind.name(), self.key_errors(kind)));
        store.into_iter().chain(key)
    }
}

/// Reads the numbers of a metric: one for each set of labels, which come beside the rule's.
#[cfg(feature = "metrics")]
type Samples = fn(&RuleSnapshot, &mut dyn FnMut(Vec<Label>, u64));

#[cfg(feature = "metrics")]
const fn counter(name: &'static str, help: &'static str, samples: Samples) -> (Metric, Samples) {
    (Metric::counter(name, help), samples)
}

/// The metrics of a rule.
#[cfg(feature = "metrics")]
pub(super) const METRICS: [(Metric, Samples); 21] = [
    counter(
        "tidegate_decisions_total",
        "Requests by rule, by what became of them, and by who decided.",
        |rule, publish| {
            for outcome in DecisionOutcome::ALL {
                for source in Source::ALL {
                    let labels = [
                        label("outcome", outcome.name()),
                        label("source", source.name()),
                    ];
                    publish(labels.into(), rule.decisions_by(outcome, source));
                }
            }
        },
    ),
    counter(
        "tidegate_plan_decisions_total",
        "Decisions about requests with a plan of the rule: a part of tidegate_decisions_total.",
        |rule, publish| {
            for plan in &rule.plans {
                let numbers = [
                    (DecisionOutcome::Allowed, plan.allowed),
                    (DecisionOutcome::Denied, plan.denied),
                ];
                for (outcome, number) in numbers {
                    let plan = Label::new("plan", plan.name.clone());
                    publish(vec![plan, label("outcome", outcome.name())], number);
                }
            }
        },
    ),
    counter(
        "tidegate_unknown_plans_total",
        "Requests with a plan that the rule does not have, or that does not fit it: its own quotas applied.",
        |rule, publish| {
            if !rule.plans.is_empty() || rule.unknown_plans > 0 {
                publish(Vec::new(), rule.unknown_plans);
            }
        },
    ),
    counter(
        "tidegate_denials_total",
        "Denied requests by the quota that had no room for them.",
        |rule, publish| by_quota(&rule.denials, publish),
    ),
    counter(
        "tidegate_shadow_denials_total",
        "Requests that a quota of a shadow rule would have denied.",
        |rule, publish| by_quota(&rule.shadow_denials, publish),
    ),
    counter(
        "tidegate_errors_total",
        "Failures of the store, and requests without a key, by kind.",
        |rule, publish| {
            for (kind, number) in rule.errors() {
                publish(vec![label("kind", kind)], number);
            }
        },
    ),
    counter(
        "tidegate_shadow_errors_total",
        "Takes of a shadow rule that got no answer.",
        |rule, publish| publish(Vec::new(), rule.shadow_errors),
    ),
    counter(
        "tidegate_lagged_decisions_total",
        "Decisions that came after the time-out because this process was slow, not the store.",
        |rule, publish| publish(Vec::new(), rule.lagged),
    ),
    counter(
        "tidegate_units_total",
        "Units that allowed requests were charged.",
        |rule, publish| publish(Vec::new(), rule.units),
    ),
    counter(
        "tidegate_near_limit_total",
        "Allowed requests after which a quota was nearly used up.",
        |rule, publish| publish(Vec::new(), rule.near_limit),
    ),
    counter(
        "tidegate_refunds_total",
        "Charges that were given back, wholly or in part.",
        |rule, publish| publish(Vec::new(), rule.refunds),
    ),
    counter(
        "tidegate_refunded_units_total",
        "Units that were given back.",
        |rule, publish| publish(Vec::new(), rule.refunded_units),
    ),
    counter(
        "tidegate_owed_units_total",
        "Units that were used beyond a reservation, and charged.",
        |rule, publish| publish(Vec::new(), rule.owed_units),
    ),
    counter(
        "tidegate_forgiven_units_total",
        "Units that were used beyond a reservation, and are more than a key may owe.",
        |rule, publish| publish(Vec::new(), rule.forgiven_units),
    ),
    counter(
        "tidegate_refunds_lost_total",
        "Charges that were to be given back or settled later, and stay as they are.",
        |rule, publish| publish(Vec::new(), rule.refunds_lost),
    ),
    counter(
        "tidegate_admitted_without_decision_total",
        "Requests that were admitted although no store decided.",
        |rule, publish| publish(Vec::new(), rule.proceeded),
    ),
    counter(
        "tidegate_let_through_total",
        "Requests of keys that an operator lets through: admitted without a question.",
        |rule, publish| publish(Vec::new(), rule.let_through),
    ),
    counter(
        "tidegate_blocked_total",
        "Requests of keys that an operator blocks: denied without a question.",
        |rule, publish| publish(Vec::new(), rule.blocked),
    ),
    counter(
        "tidegate_waited_requests_total",
        "Requests that waited for units, or still do.",
        |rule, publish| publish(Vec::new(), rule.waited),
    ),
    counter(
        "tidegate_closed_uploads_total",
        "Uploads that were answered and not read to their end: too long, too slow or too many.",
        |rule, publish| publish(Vec::new(), rule.closed_uploads),
    ),
    (
        Metric::gauge(
            "tidegate_waiting_requests",
            "Requests that wait for units now.",
        ),
        |rule, publish| publish(Vec::new(), rule.waiting),
    ),
];

#[cfg(feature = "metrics")]
fn label(name: &'static str, value: &'static str) -> Label {
    Label::from_static_parts(name, value)
}

#[cfg(feature = "metrics")]
fn by_quota(denials: &[(String, u64)], publish: &mut dyn FnMut(Vec<Label>, u64)) {
    for (quota, number) in denials {
        publish(vec![Label::new("quota", quota.clone())], *number);
    }
}

/// What the layers of one path have counted of the requests with one plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanSnapshot {
    /// The plan.
    pub name: String,
    /// Requests that were admitted.
    pub allowed: u64,
    /// Requests that were denied, also those that no wait would have helped.
    pub denied: u64,
}

/// What the layers of [`Limits`](crate::Limits) have counted since they were made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The rules that a layer was made for, in alphabetical order of their paths. Rules that no
    /// layer uses are not among them, nor are rules that were removed.
    pub rules: Vec<RuleSnapshot>,
    /// Requests that no rule matched: they passed without being limited. Those of a rule that is
    /// switched off are not among them.
    pub unmatched: u64,
}

impl Snapshot {
    /// The rule of this path; `None` if there is none, or no layer was made for it.
    #[must_use]
    pub fn rule(&self, path: &str) -> Option<&RuleSnapshot> {
        let at = self.rules.binary_search_by(|rule| (*rule.path).cmp(path));
        at.ok().map(|at| &self.rules[at])
    }
}

/// What became of a request that a store decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionOutcome {
    /// The request was admitted, and charged.
    Allowed,
    /// The request was denied, at the end of its wait if it waited.
    Denied,
    /// The request was denied by nothing but requests in progress: as many as may run [at a
    /// time](crate::Rule::with_max_concurrent).
    Busy,
    /// The request was denied because its key is [held](crate::Limits::hold).
    OnHold,
    /// The request was denied because it costs more than a quota's max: no wait helps.
    Never,
    /// A [shadow rule](crate::Rule::into_shadow) would have denied the request.
    ShadowDenied,
}

impl DecisionOutcome {
    /// All outcomes.
    pub const ALL: [Self; 6] = [
        Self::Allowed,
        Self::Denied,
        Self::Busy,
        Self::OnHold,
        Self::Never,
        Self::ShadowDenied,
    ];

    pub(crate) fn of(decision: &Decision) -> Self {
        match decision.verdict() {
            Verdict::Allowed => Self::Allowed,
            Verdict::Denied { .. } => Self::Denied,
            Verdict::Busy { .. } => Self::Busy,
            Verdict::OnHold { .. } => Self::OnHold,
            Verdict::Never => Self::Never,
        }
    }

    /// The outcome in metrics: `allowed`, `denied`, `busy`, `on_hold`, `never`, `shadow_denied`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Busy => "busy",
            Self::OnHold => "on_hold",
            Self::Never => "never",
            Self::ShadowDenied => "shadow_denied",
        }
    }
}

/// How long a store took to answer, as a histogram.
///
/// Only answers that a request had to wait for are in it. A memory store answers immediately,
/// and the clock is not read for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencySnapshot(Vec<LatencyBucket>);

/// The answers of a [`LatencySnapshot`] that took longer than the bucket before says, and at most
/// as long as this one says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyBucket {
    /// The longest time in this bucket; `None` for the last one, which has no bound.
    pub at_most: Option<Duration>,
    /// How many answers took so long. Answers in shorter buckets are not in it.
    pub count: u64,
    /// How long these answers took together.
    pub sum: Duration,
}

impl LatencySnapshot {
    pub(super) const fn new(buckets: Vec<LatencyBucket>) -> Self {
        Self(buckets)
    }

    /// The buckets, the shortest latencies first: 100 µs, 250 µs, 500 µs, and so on up to 1 s, and
    /// one without a bound.
    #[must_use]
    pub fn buckets(&self) -> &[LatencyBucket] {
        &self.0
    }

    /// How many answers there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.count).sum()
    }

    /// How long all of them took together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        let micros = self.0.iter().map(|bucket| bucket.sum.as_micros() as u64);
        Duration::from_micros(micros.fold(0, u64::saturating_add))
    }
}
