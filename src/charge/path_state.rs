use std::sync::Arc;

use crate::metrics::{RuleCounters, RuleSnapshot};
use crate::rule::Rule;
use crate::waiting::OpenCharges;

/// What all layers of one path share: what they count, and which of its charges are open.
#[derive(Debug, Default)]
pub(crate) struct PathState {
    pub(crate) counters: RuleCounters,
    pub(crate) open: OpenCharges,
}

impl PathState {
    /// With these counters, without an open charge.
    pub(crate) fn new(counters: RuleCounters) -> Arc<Self> {
        let open = OpenCharges::default();
        Arc::new(Self { counters, open })
    }

    /// The numbers that were counted under this rule, with those of the requests that wait.
    pub(crate) fn snapshot(&self, rule: &Rule) -> RuleSnapshot {
        self.with_waiting(self.counters.snapshot(rule))
    }

    /// A snapshot without what rules give names to: quotas and plans.
    #[cfg(feature = "page")]
    pub(crate) fn numbers(&self, path: &str) -> RuleSnapshot {
        self.with_waiting(self.counters.numbers(path))
    }

    fn with_waiting(&self, mut counted: RuleSnapshot) -> RuleSnapshot {
        [counted.waiting, counted.waited] = self.open.queues().numbers();
        counted
    }
}
