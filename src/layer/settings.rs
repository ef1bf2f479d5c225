use std::fmt;
use std::sync::{Arc, Once};

use http::request::Parts;

use super::Headers;
use super::waiting::Waiting;
use crate::callback::{DegradeCallback, ErrorCallback};
use crate::key::KeyExtractor;
use crate::rule::{Rule, SharedRules};
use crate::store::Store;
use crate::trouble::Trouble;

/// What a layer was told, shared by all services that it made.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) rule: RuleSource,
    pub(super) store: Arc<dyn Store>,
    pub(super) key: Option<Arc<dyn KeyExtractor>>,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) exempt: Option<Arc<Exempt>>,
    pub(super) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(super) on_error: Option<Arc<dyn ErrorCallback>>,
    pub(super) headers: Headers,
    pub(super) waiting: Waiting,
    /// Of this store: another one has troubles of its own.
    pub(super) trouble: Arc<Trouble>,
    /// Whether it was told that a rule counts on a fallback that this store has not.
    pub(super) no_fallback: Arc<Once>,
}

type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
type Exempt = dyn Fn(&Parts) -> bool + Send + Sync;

#[derive(Debug, Clone)]
pub(super) enum RuleSource {
    Fixed(Arc<Rule>),
    Named { rules: SharedRules, path: Arc<str> },
}

impl Settings {
    /// The rule as it stands now; none means that nothing is limited.
    pub(super) fn rule(&self) -> Option<Arc<Rule>> {
        match &self.rule {
            RuleSource::Fixed(rule) => Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => rules.peek().get(path).cloned(),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rule", &self.rule)
            .field("store", &self.store)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
