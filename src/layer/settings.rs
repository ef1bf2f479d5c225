use std::fmt;
use std::sync::{Arc, OnceLock};

use http::request::Parts;

use super::Headers;
use crate::admission::{Options, WaitLimits};
use crate::decision::{Decision, Source};
use crate::error::StoreError;
use crate::log_on_change::LogOnChange;
use crate::metrics::RuleSnapshot;
use crate::rule::{OnError, Rule, SharedRules};
use crate::store::{MemoryStore, Store};
use crate::trace;

/// The settings of a layer, shared by all services that it made.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) rule: RuleSource,
    /// Empty until it is needed where nothing else was said: a memory store takes a while to make.
    pub(super) store: Arc<OnceLock<Arc<dyn Store>>>,
    pub(super) options: Options,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) exempt: Option<Arc<Exempt>>,
    pub(super) waiting: WaitLimits,
    pub(super) log: Arc<StoreLog>,
    /// Whether events contain the hashes of keys.
    #[cfg(feature = "tracing")]
    pub(super) traces_keys: bool,
}

/// Computes the cost of a request from its head.
type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
/// Whether a request with this head passes without being limited.
type Exempt = dyn Fn(&Parts) -> bool + Send + Sync;

/// Where a layer's rule comes from.
#[derive(Debug, Clone)]
pub(super) enum RuleSource {
    Fixed(Arc<Rule>),
    Named { rules: SharedRules, path: Arc<str> },
}

/// What was logged about a store. Another store has failures of its own.
#[derive(Default)]
pub(super) struct StoreLog {
    failures: LogOnChange,
    is_missing_fallback_logged: OnceLock<()>,
}

impl Settings {
    pub(super) fn new(rule: RuleSource) -> Self {
        Self {
            rule,
            store: Arc::default(),
            options: Options::new(Headers::default().writer()),
            cost: None,
            exempt: None,
            waiting: WaitLimits::default(),
            log: Arc::default(),
            #[cfg(feature = "tracing")]
            traces_keys: false,
        }
    }

    /// The path's rule now; without one nothing is limited.
    pub(super) fn rule(&self) -> Option<Arc<Rule>> {
        match &self.rule {
            RuleSource::Fixed(rule) => Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => rules.peek().get(path).cloned(),
        }
    }

    /// Counts a request without a rule, unless limiting is disabled.
    pub(super) fn count_unmatched(&self) {
        if self.known_rule().is_none() {
            self.options.counters.unmatched();
        }
    }

    /// The path's rule now, also while limiting is disabled.
    fn known_rule(&self) -> Option<Arc<Rule>> {
        match &self.rule {
            RuleSource::Fixed(rule) => Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => rules.peek().find(path).cloned(),
        }
    }

    /// The counters of the path, read now; `None` without a rule.
    pub(super) fn snapshot(&self) -> Option<RuleSnapshot> {
        let rule = self.known_rule()?;
        Some(self.options.counters.snapshot(&rule))
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.store.get_or_init(|| Arc::new(MemoryStore::new()))
    }

    /// Logs that decisions begin to fail, and that they are made again: only the changes.
    pub(super) fn log_answer(&self, path: &str, answer: &Result<Decision, StoreError>) {
        match answer {
            // A cached denial does not mean that the store answers again.
            Ok(decision) if decision.source() == Source::Cache => {}
            Ok(_) if self.log.failures.worked() => {
                trace::event!(warn: path, "decisions are made again");
            }
            Err(error) if self.log.failures.failed() => {
                let error = error.to_string();
                trace::event!(warn: path, error, "no decisions: the error callbacks answer");
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// The rule leaves failures to a fallback, and there may be none.
    pub(super) fn log_missing_fallback(&self, rule: &Rule) {
        if rule.on_error() == Some(OnError::Fallback) && !self.store().has_fallback() {
            self.log.is_missing_fallback_logged.get_or_init(|| {
                let path = rule.path();
                trace::event!(warn: path, "the rule says \"fallback\", but its store has none");
            });
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rule", &self.rule)
            .field("store", &self.store.get())
            .finish_non_exhaustive()
    }
}
