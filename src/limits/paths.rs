use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::metrics::{NearLimit, RuleCounters, Snapshot};
use crate::rule::Rules;
use crate::sync::lock;

/// More paths than an application has routes; paths beyond it are not remembered.
pub(super) const MAX_PATHS: usize = 10_000;

/// What the layers count, by their paths.
#[derive(Debug, Default)]
pub(super) struct Paths {
    counters: Mutex<BTreeMap<Box<str>, Arc<RuleCounters>>>,
    /// Questions about paths that have no counters.
    unmatched: AtomicU64,
}

impl Paths {
    /// Whether neither a layer nor a check has asked for counters yet.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.counters).is_empty()
    }

    /// The counters that all layers of a path share; a path too many has counters that nobody
    /// reads.
    pub(super) fn add(&self, path: &str, near_limit: NearLimit) -> Arc<RuleCounters> {
        let mut paths = lock(&self.counters);
        if let Some(known) = paths.get(path) {
            return Arc::clone(known);
        }
        let counters = Arc::new(RuleCounters::new(near_limit));
        if paths.len() < MAX_PATHS {
            paths.insert(path.into(), Arc::clone(&counters));
        }
        counters
    }

    /// Counts a question about a path that has neither a rule nor counters.
    pub(super) fn count_unmatched(&self) {
        self.unmatched.fetch_add(1, Ordering::Relaxed);
    }

    /// What the layers have counted under these rules.
    pub(super) fn snapshot(&self, rules: &Rules) -> Snapshot {
        let paths = lock(&self.counters);
        let counted = paths.iter().filter_map(|(path, counters)| {
            let rule = rules.find(path)?;
            Some(counters.snapshot(rule))
        });
        let unmatched = paths.values().map(|it| it.number_of_unmatched());
        Snapshot {
            rules: counted.collect(),
            unmatched: unmatched.sum::<u64>() + self.unmatched.load(Ordering::Relaxed),
        }
    }

    /// Whether this is the last owner of the paths, and no layer of them is left.
    #[cfg(feature = "metrics")]
    pub(super) fn are_unused(self: &Arc<Self>) -> bool {
        // Without another owner, no layer can be made any more.
        let is_only_owner = Arc::strong_count(self) == 1;
        is_only_owner
            && lock(&self.counters)
                .values()
                .all(|it| Arc::strong_count(it) == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_bounded() {
        let paths = Paths::default();
        let add = |number: usize| paths.add(&number.to_string(), NearLimit::default());
        (0..2 * MAX_PATHS).for_each(|number| drop(add(number)));
        assert_eq!(lock(&paths.counters).len(), MAX_PATHS);
        assert!(Arc::ptr_eq(&add(0), &add(0)), "layers of a path share them");
    }
}
