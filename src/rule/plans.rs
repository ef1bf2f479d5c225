use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::quotas::Quotas;
use super::rule::Rule;
use crate::quota::Quota;
use crate::sync::lock;

/// The plan of a request, which authentication puts into its extensions: it chooses among the
/// [plans](Rule::with_plan) of a rule.
///
/// A layer's own [`plan`](crate::RateLimitLayer::plan), or that of
/// [`Limits`](crate::Limits::plan), comes before it.
///
/// ```
/// use axum::extract::Request;
/// use tidegate::rule::Plan;
///
/// /// Part of a middleware that has found out who asks.
/// fn authenticated(mut request: Request, plan: &str) -> Request {
///     request.extensions_mut().insert(Plan::new(plan));
///     request
/// }
/// # let _ = authenticated;
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan(Arc<str>);

impl Plan {
    /// The plan of this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A plan of a rule: its name and its quotas.
#[derive(Debug, Clone)]
pub(super) struct PlanQuotas {
    pub(super) name: Arc<str>,
    pub(super) quotas: Quotas,
}

/// Which quotas apply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Chosen {
    /// Those of the rule.
    Own,
    /// Those of a plan of the rule.
    Plan(Arc<str>),
    /// Others, from code.
    Given(Arc<Quotas>),
}

/// More rules for quotas from code are not kept, but made anew for each request.
const MAX_KEPT: usize = 1_024;

/// The rules that are made of one rule for other quotas than its own. They go with the rule.
#[derive(Default)]
pub(super) struct DerivedRules {
    /// The rule of each plan, in the order of the plans.
    of_plans: Box<[Arc<Rule>]>,
    /// Whether code has given quotas.
    is_given: AtomicBool,
    given: Mutex<GivenQuotas>,
    pub(super) is_unknown_plan_logged: AtomicBool,
}

/// What quotas code has given, and the rules that count for these as well.
#[derive(Default)]
struct GivenQuotas {
    /// What every charge has to count under: see [`Algorithm::bound`](crate::Algorithm).
    in_use: Vec<Quota>,
    /// With the number of their last use.
    rules: HashMap<Chosen, (Arc<Rule>, u64)>,
    uses: u64,
}

impl DerivedRules {
    /// Those of a rule.
    pub(super) fn of(rule: &Rule) -> Self {
        let made = rule.plans.iter().map(|plan| {
            let (policies, name) = (plan.quotas.policies(rule.path()), Arc::clone(&plan.name));
            Arc::new(rule.with_other_quotas(policies, Some(name), &[]))
        });
        Self {
            of_plans: made.collect(),
            ..Self::default()
        }
    }

    /// The rule that these are made of, which counts for quotas from code as well; `None` if there
    /// are none, so that it is the rule itself.
    pub(super) fn own(&self, rule: &Arc<Rule>) -> Option<Arc<Rule>> {
        let is_given = self.is_given.load(Ordering::Relaxed);
        is_given.then(|| lock(&self.given).rule(rule, Chosen::Own))
    }

    /// The rule of a plan, which counts for quotas from code as well.
    pub(super) fn plan(&self, rule: &Arc<Rule>, name: &str) -> Option<Arc<Rule>> {
        let of_plan = self.of_plan(name)?;
        match (self.is_given.load(Ordering::Relaxed), &of_plan.plan) {
            (true, Some(name)) => {
                let chosen = Chosen::Plan(Arc::clone(name));
                Some(lock(&self.given).rule(rule, chosen))
            }
            _ => Some(Arc::clone(of_plan)),
        }
    }

    /// The rule with quotas from code.
    pub(super) fn given(&self, rule: &Arc<Rule>, quotas: Arc<Quotas>) -> Arc<Rule> {
        self.is_given.store(true, Ordering::Relaxed);
        let mut given = lock(&self.given);
        given.use_quotas(rule, &quotas);
        given.rule(rule, Chosen::Given(quotas))
    }

    pub(super) fn of_plan(&self, name: &str) -> Option<&Arc<Rule>> {
        let order = |rule: &Arc<Rule>| rule.plan().cmp(&Some(name));
        let at = self.of_plans.binary_search_by(order);
        at.ok().map(|at| &self.of_plans[at])
    }
}

impl GivenQuotas {
    /// Every charge counts from now on for these quotas, too.
    fn use_quotas(&mut self, rule: &Rule, quotas: &Quotas) {
        let mut all: Vec<Quota> = rule.all_quotas().collect();
        all.extend(self.in_use.iter().chain(quotas.iter()));
        let bound = rule.algorithm().algorithm().bound(&[], &all);
        if bound != self.in_use {
            // The rules that were made before count too little.
            self.rules.clear();
            self.in_use = bound;
        }
    }

    fn rule(&mut self, rule: &Arc<Rule>, chosen: Chosen) -> Arc<Rule> {
        self.uses += 1;
        if let Some((known, last_use)) = self.rules.get_mut(&chosen) {
            *last_use = self.uses;
            return Arc::clone(known);
        }
        let (policies, plan) = match &chosen {
            Chosen::Own => (rule.policies().into(), None),
            Chosen::Plan(name) => {
                let quotas = rule.plans.iter().find(|plan| plan.name == *name);
                let policies = quotas.map(|plan| plan.quotas.policies(rule.path()));
                let policies = policies.unwrap_or_else(|| rule.policies().into());
                (policies, Some(Arc::clone(name)))
            }
            Chosen::Given(quotas) => (quotas.policies(rule.path()), None),
        };
        let made = Arc::new(rule.with_other_quotas(policies, plan, &self.in_use));
        if self.rules.len() >= MAX_KEPT {
            let last_uses = self
                .rules
                .iter()
                .map(|(chosen, (_, last_use))| (last_use, chosen));
            if let Some(oldest) = last_uses.min_by_key(|(last_use, _)| **last_use) {
                let oldest = oldest.1.clone();
                self.rules.remove(&oldest);
            }
        }
        self.rules.insert(chosen, (Arc::clone(&made), self.uses));
        made
    }
}

impl fmt::Debug for DerivedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedRules").finish_non_exhaustive()
    }
}
