use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use super::open_charges::OpenCharges;
use crate::activity::key_notes::KeyNotes;
use crate::decision::Source;
use crate::first_thousand::FirstThousand;
use crate::metrics::{DecisionOutcome, RuleCounters, RuleSnapshot};
use crate::rule::Rule;
use crate::store::Capabilities;
use crate::unawaited::{UnawaitedCall, UnawaitedCalls};

/// The counters, the notes of keys and the open charges of one path, which all its layers share.
#[derive(Debug, Default)]
pub(crate) struct PathState {
    pub(crate) counters: RuleCounters,
    pub(crate) notes: KeyNotes,
    pub(crate) open: OpenCharges,
    /// Callbacks of crossings and lock-outs that run, or that a look may begin: of all paths of the
    /// limits, and of this one.
    pub(crate) all_tellings: UnawaitedCalls,
    pub(crate) tellings: UnawaitedCalls,
    pub(crate) turns: Turns,
    /// Whether code settles or refunds what a rule that settles has charged.
    pub(crate) settlements: FirstThousand,
    /// What the store of the first layer can do.
    pub(crate) can: OnceLock<Capabilities>,
    /// The limits that made the layers, if it were some.
    pub(crate) owner: OnceLock<Box<dyn PathOwner>>,
}

/// A callback that runs, until this is dropped.
pub(crate) type Telling = [UnawaitedCall; 2];

/// What code says of turns at the layers, checks and calls of a path.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) has_layer: AtomicBool,
    /// Whether some layer says between whom those that wait are fair.
    pub(crate) has_fair_layer: AtomicBool,
    /// Whether requests of some layer may wait, or a check or call has.
    pub(crate) may_wait: AtomicBool,
}

/// What charges ask the limits that made the layers of their path.
pub(crate) trait PathOwner: Debug + Send + Sync {
    /// What the page calls a key of a path; `None` without a page.
    fn name(&self, path: &str, key: &str) -> Option<String>;

    /// Whether a rule or a layer has this path.
    fn knows(&self, path: &str) -> bool;

    /// Warns that a handler asks for the charges of a path that nobody knows.
    fn warn_of_charges(&self, path: &str);
}

impl PathState {
    /// One more callback.
    pub(crate) fn telling(&self) -> Telling {
        [&self.all_tellings, &self.tellings].map(UnawaitedCalls::add)
    }

    /// A snapshot of the counters under this rule, with the numbers of the requests that wait.
    pub(crate) fn snapshot(&self, rule: &Rule) -> RuleSnapshot {
        let mut counted = self.with_waiting(self.counters.snapshot(rule));
        counted.possible = possible(rule, self.can.get());
        counted
    }

    /// A snapshot without quotas and plans, which only a rule can name.
    #[cfg(feature = "page")]
    pub(crate) fn numbers(&self, path: &str) -> RuleSnapshot {
        self.with_waiting(self.counters.numbers(path))
    }

    fn with_waiting(&self, mut counted: RuleSnapshot) -> RuleSnapshot {
        let queues = self.open.queues();
        [counted.waiting, counted.waited] = queues.numbers();
        counted.longest_wait_ms = queues.longest().as_millis() as u64;
        counted
    }
}

/// What may be decided under this rule, and by whom, where the store can do this.
fn possible(rule: &Rule, can: Option<&Capabilities>) -> Vec<(DecisionOutcome, Source)> {
    use DecisionOutcome::{Allowed, Busy, Denied, LockedOut, Never, OnHold, ShadowDenied};
    let uncached = [Allowed, Busy, Never];
    let can = can.copied().unwrap_or_default();
    let has_rule = |outcome| match outcome {
        Allowed => true,
        ShadowDenied => rule.is_shadow(),
        _ if rule.is_shadow() => false,
        Denied | Never => true,
        Busy => rule.has_permits(),
        OnHold => rule.is_outgoing(),
        LockedOut => rule.counts_failures(),
    };
    let has_store = |outcome, source| match source {
        Source::Fallback => can.has_fallback,
        Source::Cache => can.has_denial_cache && !uncached.contains(&outcome),
        Source::Operator => outcome == Denied,
        own => can.source == Some(own),
    };
    let all = DecisionOutcome::ALL.map(|it| Source::ALL.map(|source| (it, source)));
    let mut all = all.concat();
    all.retain(|(outcome, source)| has_rule(*outcome) && has_store(*outcome, *source));
    all
}
