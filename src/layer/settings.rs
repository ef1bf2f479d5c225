use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Request};

use super::action::Action;
use super::decide::Decider;
use super::defaults::Defaults;
use super::headers::Headers;
use super::inspector::{Inspector, Warnings};
use super::responder::Responder;
use crate::callback::{Panicked, caught};
use crate::key::ip::PeerHook;
use crate::key::{Key, KeyExtractor, PeerAddr};
use crate::metrics::{RuleCounters, RuleSnapshot};
use crate::rule::{Exemptions, Plan, Quotas, Rule, SharedRules};
use crate::store::{RefundQueue, Store, Take};
use crate::warning::{Warning, WarningKind};

/// The settings of a layer, shared by all services that it made.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(super) rule: RuleSource,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) plan: Option<Arc<ChoosePlan>>,
    pub(super) quotas: Option<Arc<ChooseQuotas>>,
    /// Any one of them exempts a request.
    pub(super) exempt: Vec<Arc<Exempt>>,
    pub(super) peer: Option<PeerHook>,
    pub(super) decider: Arc<Decider>,
    pub(super) responder: Arc<Responder>,
    pub(super) inspector: Arc<Inspector>,
    /// Keys that an operator lets through.
    #[cfg(feature = "page")]
    pub(super) let_through: Option<Arc<super::KeysLetThrough>>,
}

/// Computes the cost of a request from its head.
type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
/// The plan of a request with this head.
pub(crate) type ChoosePlan = dyn Fn(&Parts) -> Option<&str> + Send + Sync;
/// The quotas of a request with this head.
type ChooseQuotas = dyn Fn(&Parts) -> Option<Arc<Quotas>> + Send + Sync;
/// Whether a request with this head passes without being limited.
pub(crate) type Exempt = dyn Fn(&Parts) -> bool + Send + Sync;

/// Where a layer's rule comes from.
#[derive(Debug, Clone)]
pub(super) enum RuleSource {
    Fixed(Arc<Rule>),
    Named { rules: SharedRules, path: Arc<str> },
}

impl Settings {
    pub(super) fn new(rule: RuleSource) -> Self {
        let inspector = Inspector::default();
        let mut responder = Responder::new(Headers::default().writer());
        responder.outcome.warnings = Arc::clone(&inspector.warnings);
        let decider = Decider::new();
        responder.counters = Arc::clone(&decider.counters);
        Self {
            rule,
            cost: None,
            plan: None,
            quotas: None,
            exempt: Vec::new(),
            peer: None,
            decider: Arc::new(decider),
            responder: Arc::new(responder),
            inspector: Arc::new(inspector),
            #[cfg(feature = "page")]
            let_through: None,
        }
    }

    /// Those of a layer of [`Limits`](crate::Limits), with the counters of its path.
    pub(crate) fn of_limits(
        rules: &SharedRules,
        path: &str,
        store: Arc<dyn Store>,
        refunds: &RefundQueue,
        counters: Arc<RuleCounters>,
        warnings: &Arc<Warnings>,
        defaults: Defaults,
    ) -> Self {
        let mut decider = Decider::new();
        decider.set_store(store);
        decider.refunds = refunds.clone();
        decider.counters = Arc::clone(&counters);
        let mut responder = Responder::new(defaults.headers.writer());
        responder.store = decider.shared_store();
        responder.outcome.queue = refunds.clone();
        responder.outcome.warnings = Arc::clone(warnings);
        responder.counters = counters;
        responder.default_key = defaults.key;
        responder.degrade = defaults.degrade;
        responder.on_error = defaults.on_error;
        Self {
            plan: defaults.plan,
            exempt: defaults.exempt,
            peer: defaults.peer,
            decider: Arc::new(decider),
            responder: Arc::new(responder),
            inspector: Arc::new(Inspector::new(warnings)),
            #[cfg(feature = "page")]
            let_through: Some(defaults.let_through),
            ..Self::new(RuleSource::Named {
                rules: rules.clone(),
                path: path.into(),
            })
        }
    }

    /// The path's rule now; without one nothing is limited.
    pub(super) fn rule(&self) -> Option<Arc<Rule>> {
        match &self.rule {
            RuleSource::Fixed(rule) => Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => rules.peek().get(path).cloned(),
        }
    }

    /// Looks for mistakes in the set-up that a request with these fields shows, if it is one of the
    /// first requests. Code that asks without a request has no fields.
    #[inline]
    pub(super) fn inspect(&self, rule: &Rule, fields: Option<&HeaderMap>) {
        let rules = || match &self.rule {
            RuleSource::Fixed(_) => None,
            RuleSource::Named { rules, .. } => Some(rules.downgrade()),
        };
        if self.inspector.is_due(rules) {
            self.inspect_all(rule, fields);
        }
    }

    #[cold]
    fn inspect_all(&self, rule: &Rule, fields: Option<&HeaderMap>) {
        let warnings = &self.inspector.warnings;
        let extractor = self.responder.extractor(rule);
        let warning = |(extractor, fields): (&dyn KeyExtractor, _)| {
            let found = caught("key extractor", rule.path(), || extractor.warning(fields));
            found.ok().flatten()
        };
        let of_key = extractor.zip(fields).and_then(warning);
        let exemptions = rule.exemptions().zip(fields);
        let of_exemptions = exemptions.and_then(|(it, fields)| it.warning(fields));
        let of_log = rule
            .has_large_log()
            .then(|| Warning::named(WarningKind::LargeLog, "max"));
        let has_leases = || self.decider.store().has_leases();
        let of_lease = rule.lease().and_then(|_| {
            let has_leases = caught("store", rule.path(), has_leases).ok()?;
            (!has_leases).then(|| Warning::new(WarningKind::UnusedLease))
        });
        let is_check = fields.is_none() && rule.outcomes().is_some();
        let of_check = is_check.then(|| Warning::named(WarningKind::OutcomeOfCheck, "refund-on"));
        let found = [of_key, of_exemptions, of_log, of_lease, of_check];
        for found in found.into_iter().flatten() {
            warnings.add(found.about(rule.path()));
        }
        // The store logs by itself what it finds later.
        let of_store = || self.decider.store().warnings();
        for found in caught("store", rule.path(), of_store).unwrap_or_default() {
            if found.kind == WarningKind::DefaultPrefix {
                warnings.add(found);
            }
        }
    }

    /// Counts a request without a rule, unless limiting is disabled.
    pub(super) fn count_unmatched(&self) {
        if self.known_rule().is_none() {
            self.responder.counters.unmatched();
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
        Some(self.responder.counters.snapshot(&rule))
    }

    /// Whether an operator lets the key of this take through. Such a request is counted.
    #[inline]
    pub(super) fn let_through(&self, take: &Take) -> bool {
        #[cfg(feature = "page")]
        if self.let_through.as_ref().is_some_and(|it| it.contain(take)) {
            self.responder.counters.let_through();
            return true;
        }
        let _ = take;
        false
    }

    /// What the request asks of the store, or what becomes of it without a question.
    ///
    /// A request whose head is not read stays in one piece: taking it apart and putting it together
    /// again is a good part of what a decision costs.
    pub(super) fn take_for<B>(
        &self,
        rule: Arc<Rule>,
        request: Request<B>,
    ) -> (Result<Take, Box<Action>>, Request<B>) {
        let has_key = self.responder.extractor(&rule).is_some();
        let has_exemptions = !self.exempt.is_empty() || rule.exemptions().is_some();
        let has_choice = self.quotas.is_some() || rule.has_plans();
        if !has_key && self.cost.is_none() && !has_exemptions && !has_choice {
            return (Ok(Take::new(rule.for_no_plan(), Key::default())), request);
        }
        let (mut head, body) = request.into_parts();
        let take = self.read_head(rule, &mut head);
        (take, Request::from_parts(head, body))
    }

    /// Exemption, key, cost and quotas of the request with this head. Whatever fails, a shadow rule
    /// lets the request pass.
    fn read_head(&self, rule: Arc<Rule>, head: &mut Parts) -> Result<Take, Box<Action>> {
        let is_shadow = rule.is_shadow();
        let failed = |action| match is_shadow {
            true => Box::new(Action::Pass),
            false => Box::new(action),
        };
        for exempt in &self.exempt {
            match caught("exemption", rule.path(), || exempt(head)) {
                Ok(false) => {}
                Ok(true) => return Err(Box::new(Action::Pass)),
                Err(panicked) => return Err(failed(panicked.into())),
            }
        }
        let found = self.find_peer(&rule, head);
        found.map_err(|panicked| failed(panicked.into()))?;
        if rule.exemptions().is_some_and(|it| it.contain(head)) {
            return Err(Box::new(Action::Pass));
        }
        let key = self.responder.extract(&rule, head);
        let key = key.map_err(|action| failed(*action))?;
        let cost = match &self.cost {
            None => Ok(rule.cost()),
            Some(cost) => caught("cost", rule.path(), || cost(head)),
        };
        let cost = cost.map_err(|panicked| failed(panicked.into()))?;
        let rule = self.choose_quotas(rule, head);
        let rule = rule.map_err(|panicked| failed(panicked.into()))?;
        Ok(Take::new(rule, key).with_cost(cost))
    }

    /// The rule with the quotas of the request with this head.
    fn choose_quotas(&self, rule: Arc<Rule>, head: &Parts) -> Result<Arc<Rule>, Panicked> {
        let quotas = |choose: &Arc<ChooseQuotas>| caught("quotas", rule.path(), || choose(head));
        if let Some(quotas) = self.quotas.as_ref().map(quotas).transpose()?.flatten() {
            return Ok(rule.of_quotas(quotas));
        }
        let name = match &self.plan {
            _ if !rule.has_plans() => None,
            Some(choose) => caught("plan", rule.path(), || choose(head))?,
            None => head.extensions.get::<Plan>().map(Plan::name),
        };
        Ok(self.with_plan(rule, name))
    }

    /// The rule with the quotas of this plan. For an unknown plan it is the rule with its own.
    pub(super) fn with_plan(&self, rule: Arc<Rule>, name: Option<&str>) -> Arc<Rule> {
        let Some(name) = name.filter(|_| rule.has_plans()) else {
            return rule.for_no_plan();
        };
        if let Some(of_plan) = rule.of_plan(name) {
            return of_plan;
        }
        self.responder.counters.unknown_plan();
        if rule.is_first_unknown_plan() {
            let warning = Warning::unknown_plan(name).about(rule.path());
            self.inspector.warnings.add(warning);
        }
        rule.for_no_plan()
    }

    /// Puts what the hook finds where the rule's extractor and its exemptions look for it.
    fn find_peer(&self, rule: &Rule, head: &mut Parts) -> Result<(), Panicked> {
        let has_exempt_networks = rule.exemptions().is_some_and(Exemptions::needs_address);
        if let Some(hook) = &self.peer
            && (has_exempt_networks || self.responder.extractor(rule).is_some())
            && let Some(peer) = caught("peer hook", rule.path(), || hook.find(&head.extensions))?
        {
            head.extensions.insert(PeerAddr(peer));
        }
        Ok(())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rule", &self.rule)
            .field("store", &self.decider.known_store())
            .finish_non_exhaustive()
    }
}
