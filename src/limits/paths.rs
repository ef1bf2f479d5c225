use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::metrics::{NearLimit, RuleCounters, Snapshot};
use crate::rule::Rules;
use crate::sync::lock;

/// More paths than an application has routes; paths beyond it are not remembered.
pub(super) const MAX_PATHS: usize = 10_000;

/// What the layers count, by their paths.
#[derive(Debug, Default)]
pub(super) struct Paths(Mutex<BTreeMap<Box<str>, Arc<RuleCounters>>>);

impl Paths {
    /// Whether neither a layer nor a check has asked for counters yet.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// The counters that all layers of a path share; a path too many has counters that nobody
    /// reads.
    pub(super) fn add(&self, path: &str, near_limit: NearLimit) -> Arc<RuleCounters> {
        let mut paths = lock(&self.0);
        if let Some(known) = paths.get(path) {
            return Arc::clone(known);
        }
        let counters = Arc::new(RuleCounters::new(near_limit));
        if paths.len() < MAX_PATHS {
            paths.insert(path.into(), Arc::clone(&counters));
        }
        counters
    }

    /// What the layers have counted under these rules.
    pub(super) fn snapshot(&self, rules: &Rules) -> Snapshot {
        let paths = lock(&self.0);
        let counted = paths.iter().filter_map(|(path, counters)| {
            let rule = rules.find(path)?;
            Some(counters.snapshot(rule))
        });
        let unmatched = paths.values().map(|it| it.number_of_unmatched());
        Snapshot {
            rules: counted.collect(),
            unmatched: unmatched.sum(),
        }
    }

    /// Whether this is the last owner of the paths, and no layer of them is left.
    #[cfg(feature = "metrics")]
    pub(super) fn are_unused(self: &Arc<Self>) -> bool {
        // Without another owner, no layer can be made any more.
        let is_only_owner = Arc::strong_count(self) == 1;
        is_only_owner && lock(&self.0).values().all(|it| Arc::strong_count(it) == 1)
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
        assert_eq!(lock(&paths.0).len(), MAX_PATHS);
        assert!(Arc::ptr_eq(&add(0), &add(0)), "layers of a path share them");
    }
}
