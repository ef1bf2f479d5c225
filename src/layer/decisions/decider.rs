use std::sync::{Arc, OnceLock};

use super::listeners::Listeners;
use super::{StoreLog, Warnings, capabilities};
use crate::charge::{PathState, RefundQueue};
use crate::fleet::OperatorKeys;
use crate::in_flight_counter::InFlightCounter;
use crate::rule::{Rule, SharedRules};
use crate::store::{Capabilities, Store, default_store};
use crate::waiting::WaitLimits;

/// Decides about the takes of a path: the owner of what that needs, which all layers, functions and
/// checks of the path bring.
#[derive(Clone)]
pub(crate) struct Decider {
    pub(crate) rule: RuleSource,
    /// Empty until it is needed where nothing else was said: a memory store takes a while to make.
    pub(crate) store: Arc<OnceLock<Arc<dyn Store>>>,
    /// What the store can do. It is kept, because a router may make a service for each request.
    capabilities: OnceLock<Capabilities>,
    /// The counters, notes and open charges of the path.
    pub(crate) path: Arc<PathState>,
    /// Gives back what no caller waits for.
    pub(crate) refunds: RefundQueue,
    /// Keys that an operator lets through, blocks or raises.
    pub(crate) operator_keys: Arc<OperatorKeys>,
    pub(crate) waiting: WaitLimits,
    /// Takes of shadow rules that wait for an answer.
    pub(super) shadows: InFlightCounter,
    /// The code that is told of crossings and lock-outs, if there is some.
    pub(crate) listeners: Option<Arc<Listeners>>,
    /// Whether responses give back, beside what the rule says.
    pub(crate) gives_back: bool,
    /// Whether an error callback answers where there is no decision.
    pub(crate) recovers: bool,
    /// Whether events contain the hashes of keys.
    #[cfg(feature = "tracing")]
    pub(crate) traces_keys: bool,
    /// Mistakes in the set-up that were found.
    pub(crate) warnings: Arc<Warnings>,
    pub(crate) log: Arc<PathLog>,
    pub(crate) store_log: Arc<StoreLog>,
}

/// Where the rule of a path comes from.
#[derive(Debug, Clone)]
pub(crate) enum RuleSource {
    Fixed(Arc<Rule>),
    Named { rules: SharedRules, path: Arc<str> },
}

/// Remembers what was logged, so that it is logged once. Another store has failures of its own.
#[derive(Default)]
pub(crate) struct PathLog {
    /// The rule wants a fallback that the store does not have.
    pub(super) missing_fallback: OnceLock<()>,
    /// A status in trailers comes too late.
    pub(crate) trailers: OnceLock<()>,
    /// Something lets requests under a lock-out through without a decision.
    pub(super) open_lockout: OnceLock<()>,
}

impl Decider {
    pub(crate) fn new(rule: RuleSource) -> Self {
        Self {
            rule,
            store: Arc::default(),
            capabilities: OnceLock::new(),
            path: Arc::default(),
            refunds: RefundQueue::default(),
            operator_keys: Arc::default(),
            waiting: WaitLimits::default(),
            shadows: InFlightCounter::default(),
            listeners: None,
            gives_back: false,
            recovers: false,
            #[cfg(feature = "tracing")]
            traces_keys: false,
            warnings: Arc::default(),
            log: Arc::default(),
            store_log: Arc::default(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.store.get_or_init(default_store)
    }

    /// What the store can do. The store makes its parts for that.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let asked = || capabilities(self.store());
        let can = *self.capabilities.get_or_init(asked);
        let _ = self.path.can.set(can);
        can
    }

    /// Asks this store from now on.
    pub(crate) fn set_store(&mut self, store: Arc<dyn Store>) {
        self.store = Arc::new(store.into());
        self.capabilities = OnceLock::new();
        self.refunds = RefundQueue::default();
        self.log = Arc::default();
        self.store_log = Arc::default();
    }

    /// The path's rule now; without one nothing is limited.
    pub(crate) fn rule(&self) -> Option<Arc<Rule>> {
        match &self.rule {
            RuleSource::Fixed(rule) => Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => rules.guard().get(path).cloned(),
        }
    }
}
