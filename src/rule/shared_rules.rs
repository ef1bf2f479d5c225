use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::Rules;

/// The rules as they stand now, shared by all layers that use them.
///
/// Replacing them takes effect at each layer's next request, for all paths at once; requests under
/// way go on with the rule that they started with. Counts are kept: they belong to the store.
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

    /// The rules as they stand now.
    #[must_use]
    pub fn load(&self) -> Arc<Rules> {
        self.0.load_full()
    }

    /// The same without touching a shared counter, for the way of a request.
    pub(crate) fn peek(&self) -> Guard<Arc<Rules>> {
        self.0.load()
    }
}
