//! Notes whose requests were denied, and under which quotas a key was decided about last, for
//! `src/page/` and `src/fleet/`.

mod last_rules;
mod limited_keys;

use std::sync::Arc;

use self::last_rules::LastRules;
pub(crate) use self::limited_keys::{LimitedKey, LimitedKeys, RECENT};
use crate::decision::Verdict;
use crate::key::Key;
use crate::rule::Rule;

/// Keeps notes of the keys of a path, for pages and the fleet. While nobody watches, it keeps
/// none.
#[derive(Debug, Default)]
pub(crate) struct KeyNotes {
    limited: Option<Arc<LimitedKeys>>,
    last_rules: LastRules,
}

impl KeyNotes {
    /// Notes whose keys are among the most denied ones of all paths.
    pub(crate) fn new(limited: &Arc<LimitedKeys>) -> Self {
        Self {
            limited: Some(Arc::clone(limited)),
            ..Self::default()
        }
    }

    /// Whether a page or the fleet shows whose requests were decided.
    #[inline]
    pub(crate) fn are_on(&self) -> bool {
        self.limited.as_ref().is_some_and(|it| it.is_on())
    }

    /// Notes by which quotas a request was decided, while they are on.
    #[inline]
    pub(crate) fn chose(&self, rule: &Arc<Rule>, key: &Key) {
        self.last_rules.note(rule, key);
    }

    /// Notes whose request was denied, and for how long, while they are on.
    #[inline]
    pub(crate) fn denied(&self, rule: &Rule, key: &Key, verdict: Verdict) {
        if let Some(limited) = &self.limited {
            limited.add(rule, key, verdict);
        }
    }

    /// The rule by which this key was decided last, if a request has chosen its quotas.
    pub(crate) fn last_rule(&self, key: &Key) -> Option<Arc<Rule>> {
        self.last_rules.get(key)
    }
}
