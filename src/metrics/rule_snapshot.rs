use std::time::Duration;

use super::table::RuleSnapshot;
use crate::decision::{Decision, Source, Verdict};
use crate::error::{KeyErrorKind, StoreErrorKind};
use crate::named::named;

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

    /// Requests that were denied.
    #[cfg(any(feature = "page", feature = "tracing"))]
    pub(crate) fn denied(&self) -> u64 {
        let denials = DecisionOutcome::ALL.into_iter();
        let denials = denials.filter(|outcome| outcome.is_denial());
        denials.map(|outcome| self.decisions(outcome)).sum()
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

named! {
    /// What became of a request that a store decided about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum DecisionOutcome: "The outcome in metrics" {
        /// The request was admitted, and charged.
        Allowed = "allowed",
        /// The request was denied, at the end of its wait if it waited.
        Denied = "denied",
        /// The request was denied by nothing but requests in progress: as many as may run [at a
        /// time](crate::Rule::with_max_concurrent).
        Busy = "busy",
        /// The request was denied because its key is [held](crate::Limits::hold).
        OnHold = "on_hold",
        /// The request was denied because its key is [locked out](crate::rule::Lockout).
        LockedOut = "locked_out",
        /// The request was denied because it costs more than a quota's max: no wait helps.
        Never = "never",
        /// A [shadow rule](crate::Rule::into_shadow) would have denied the request.
        ShadowDenied = "shadow_denied",
    }
}

impl DecisionOutcome {
    /// Whether the request was denied, for whatever reason. A shadow rule denies nothing.
    #[must_use]
    pub const fn is_denial(self) -> bool {
        match self {
            Self::Denied | Self::Busy | Self::OnHold | Self::LockedOut | Self::Never => true,
            Self::Allowed | Self::ShadowDenied => false,
        }
    }

    pub(crate) fn from_decision(decision: &Decision) -> Self {
        match decision.verdict() {
            Verdict::Allowed => Self::Allowed,
            Verdict::Denied { .. } => Self::Denied,
            Verdict::Busy { .. } => Self::Busy,
            Verdict::OnHold { .. } => Self::OnHold,
            Verdict::LockedOut { .. } => Self::LockedOut,
            Verdict::Never => Self::Never,
        }
    }
}

/// How long a store took to answer, as a histogram.
///
/// Only answers that a request had to wait for are in it. A memory store answers immediately,
/// and the clock is not read for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencySnapshot(pub(super) Vec<LatencyBucket>);

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
        let sums = self.0.iter().map(|bucket| bucket.sum);
        sums.fold(Duration::ZERO, Duration::saturating_add)
    }
}
