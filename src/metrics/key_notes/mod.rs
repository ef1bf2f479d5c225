mod last_rules;
mod limited_keys;

use std::sync::{Arc, Mutex, Weak};

use self::last_rules::LastRules;
pub(crate) use self::limited_keys::{KeyNamer, LimitedKey, LimitedKeys, RECENT};
use crate::decision::Verdict;
use crate::key::{Key, KeyExtractor};
use crate::rule::Rule;
use crate::sync::lock;

/// What the counters of a path note of keys, for pages and the fleet. While nobody watches, it is
/// nothing but the extractors.
#[derive(Debug, Default)]
pub(crate) struct KeyNotes {
    limited: Option<Arc<LimitedKeys>>,
    last_rules: LastRules,
    /// What makes the keys of layers that have a key of their own.
    extractors: Mutex<Vec<Weak<dyn KeyExtractor>>>,
}

impl KeyNotes {
    /// Notes whose keys are among the most denied ones of all paths.
    pub(crate) fn new(limited: &Arc<LimitedKeys>) -> Self {
        Self {
            limited: Some(Arc::clone(limited)),
            ..Self::default()
        }
    }

    /// A layer has this key of its own.
    pub(crate) fn add_extractor(&self, extractor: &Arc<dyn KeyExtractor>) {
        let mut extractors = lock(&self.extractors);
        extractors.retain(|known| known.strong_count() > 0);
        extractors.push(Arc::downgrade(extractor));
    }

    /// The keys that layers have of their own.
    pub(crate) fn extractors(&self) -> Vec<Arc<dyn KeyExtractor>> {
        let extractors = lock(&self.extractors);
        extractors.iter().filter_map(Weak::upgrade).collect()
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

    /// What a page calls a key of a path; `None` without a page.
    pub(crate) fn name(&self, path: &str, key: &Key) -> Option<String> {
        let namer = self.limited.as_ref()?.namer.get()?;
        Some(namer.0(path, key))
    }

    /// The rule by which this key was decided last, if a request has chosen its quotas.
    pub(crate) fn last_rule(&self, key: &Key) -> Option<Arc<Rule>> {
        self.last_rules.get(key)
    }
}
