use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::rules::Rules;

/// Rules that all layers of a service share, and that can be replaced at any time.
///
/// New rules apply to every path from the next request on. Requests in progress keep the rule that
/// they began with. Counts stay, because they belong to the store. Clones share the rules.
#[derive(Debug, Clone, Default)]
pub struct SharedRules(Arc<ArcSwap<Rules>>);

impl SharedRules {
    /// Shares these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(rules)))
    }

    /// Replaces all rules at once.
    pub fn replace(&self, rules: Rules) {
        self.0.store(Arc::new(rules));
    }

    /// The current rules.
    #[must_use]
    pub fn load(&self) -> Arc<Rules> {
        self.0.load_full()
    }

    /// The current rules, without the reference count that [`load`](Self::load) increments:
    /// requests of all threads read the rules.
    pub(crate) fn peek(&self) -> Guard<Arc<Rules>> {
        self.0.load()
    }
}
