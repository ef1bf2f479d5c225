use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::key::Key;
use crate::rule::Rule;
use crate::sync::lock;

/// By which quotas the keys of a path were decided last, where requests choose them: the plan, or
/// a plan from code. It knows at least the last [`MAX_KEYS`](Self::MAX_KEYS) keys.
#[derive(Debug, Default)]
pub(crate) struct LastRules {
    /// Whether a request has chosen.
    is_on: AtomicBool,
    /// By the hashes of the keys: the newer ones, and the older ones.
    rules: Mutex<[HashMap<u64, Arc<Rule>>; 2]>,
}

impl LastRules {
    const MAX_KEYS: usize = 5_000;

    /// A request was decided.
    #[inline]
    pub(crate) fn note(&self, rule: &Arc<Rule>, key: &Key) {
        if rule.is_chosen() {
            self.is_on.store(true, Ordering::Relaxed);
        }
        if self.is_on.load(Ordering::Relaxed) {
            let mut rules = lock(&self.rules);
            if rules[0].len() >= Self::MAX_KEYS {
                rules[1] = std::mem::take(&mut rules[0]);
            }
            rules[0].insert(key.hash_in_names(), Arc::clone(rule));
        }
    }

    /// The rule by which this key was decided last.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Rule>> {
        let hash = key.hash_in_names();
        let rules = lock(&self.rules);
        rules.iter().find_map(|rules| rules.get(&hash).cloned())
    }
}
