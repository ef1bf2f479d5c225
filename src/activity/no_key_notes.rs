use std::sync::Arc;

use crate::decision::Verdict;
use crate::key::Key;
use crate::rule::Rule;

#[derive(Debug, Default)]
pub(crate) struct LimitedKeys;

impl LimitedKeys {
    pub(crate) const fn forget(&self, _path: &str, _key: &str) {}
}

/// Without the feature `page` nothing is noted of keys.
#[derive(Debug, Default)]
pub(crate) struct KeyNotes;

impl KeyNotes {
    pub(crate) const fn new(_: &Arc<LimitedKeys>) -> Self {
        Self
    }

    pub(crate) const fn are_on(&self) -> bool {
        false
    }

    pub(crate) const fn chose(&self, _: &Arc<Rule>, _: &Key) {}

    pub(crate) const fn denied(&self, _: &Rule, _: &Key, _: Verdict) {}

    pub(crate) const fn last_rule(&self, _: &Key) -> Option<Arc<Rule>> {
        None
    }
}
