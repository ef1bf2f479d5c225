use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::metrics::{NearLimit, RuleCounters, Snapshot};
use crate::rule::Rules;
use crate::sync::lock;

/// More paths than an application has routes; paths beyond it are not remembered.
const MAX_PATHS: usize = 10_000;

/// The paths that layers were made for.
#[derive(Debug, Default)]
pub(super) struct Paths(Mutex<BTreeMap<Box<str>, PathEntry>>);

#[derive(Debug)]
struct PathEntry {
    /// Whether a warning was given that the path has no rule.
    is_warned: bool,
    counters: Arc<RuleCounters>,
}

impl Paths {
    /// Remembers a path. Returns the counters that all its layers share; a path too many has
    /// counters that nobody reads.
    pub(super) fn add(&self, path: &str, near_limit: NearLimit) -> Arc<RuleCounters> {
        let mut paths = lock(&self.0);
        if let Some(known) = paths.get(path) {
            return Arc::clone(&known.counters);
        }
        let counters = Arc::new(RuleCounters::new(near_limit));
        if paths.len() < MAX_PATHS {
            let entry = PathEntry {
                is_warned: false,
                counters: Arc::clone(&counters),
            };
            paths.insert(path.into(), entry);
        }
        counters
    }

    /// Whether to warn that a path has no rule: once for each path.
    pub(super) fn warns_of(&self, path: &str) -> bool {
        let mut paths = lock(&self.0);
        let known = paths.get_mut(path);
        known.is_some_and(|known| !std::mem::replace(&mut known.is_warned, true))
    }

    /// What the layers have counted under these rules.
    pub(super) fn snapshot(&self, rules: &Rules) -> Snapshot {
        let paths = lock(&self.0);
        let counted = paths.iter().filter_map(|(path, entry)| {
            let rule = rules.find(path)?;
            Some(entry.counters.snapshot(rule))
        });
        Snapshot {
            rules: counted.collect(),
            unmatched: paths
                .values()
                .map(|entry| entry.counters.number_of_unmatched())
                .sum(),
        }
    }

    /// The paths that this is true of, in alphabetical order.
    pub(super) fn filter(&self, mut is_wanted: impl FnMut(&str) -> bool) -> Vec<String> {
        let paths = lock(&self.0);
        let wanted = paths.keys().filter(|path| is_wanted(path));
        wanted.map(ToString::to_string).collect()
    }

    /// Whether this is the last owner of the paths, and no layer of them is left.
    #[cfg(feature = "metrics")]
    pub(super) fn are_unused(self: &Arc<Self>) -> bool {
        // Without another owner, no layer can be made any more.
        let is_only_owner = Arc::strong_count(self) == 1;
        let is_unused = |entry: &PathEntry| Arc::strong_count(&entry.counters) == 1;
        is_only_owner && lock(&self.0).values().all(is_unused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_for_each_path() {
        let paths = Paths::default();
        assert!(!paths.warns_of("a"), "it is not known");
        let counters = paths.add("a", NearLimit::default());
        assert!(paths.warns_of("a"));
        assert!(!paths.warns_of("a"));
        paths.add("b", NearLimit::default());
        assert!(Arc::ptr_eq(
            &counters,
            &paths.add("a", NearLimit::default())
        ));
        assert!(!paths.warns_of("a"));
        assert_eq!(paths.filter(|_| true), ["a", "b"]);
        assert_eq!(paths.filter(|path| path == "b"), ["b"]);
    }

    #[test]
    fn paths_are_bounded() {
        let paths = Paths::default();
        let warnings = (0..2 * MAX_PATHS).filter(|number| {
            let path = number.to_string();
            paths.add(&path, NearLimit::default());
            paths.warns_of(&path)
        });
        assert_eq!(warnings.count(), MAX_PATHS);
        assert_eq!(paths.filter(|_| true).len(), MAX_PATHS);
    }
}
