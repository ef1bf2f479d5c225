use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::policy::Policy;
use super::quotas::Quotas;
use super::rule::{Made, Rule, RuleError, longest_life};
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

impl Rule {
    /// Adds a plan: other quotas for the requests that say its name, by
    /// [`RateLimitLayer::plan`](crate::RateLimitLayer::plan) or a [`Plan`](crate::rule::Plan)
    /// among their extensions. All else stays: path, key, cost, algorithm. A charge counts in every
    /// window of every quota of the rule and of its plans. So an upgrade keeps what was used, a
    /// downgrade denies until it fits, and no plan admits more than its max where a key is asked
    /// about under several. Default: none.
    ///
    /// A plan that the rule does not have is an unknown one, also if it is meant to have the rule's
    /// own quotas: requests that have these say no plan.
    ///
    /// Under GCRA a bucket is never more than full: after a downgrade it drains as from its burst.
    ///
    /// The rule's [candidate](Self::with_shadow) is for requests without a plan only. Of more than
    /// 16 quotas with different windows (under GCRA: different rates), a key whose plan changes may
    /// be denied longer than it would be with fewer of them, never less.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::rule::Quotas;
    /// use tidegate::{Quota, Rule};
    ///
    /// let pro = Quotas::new([Quota::per_minute(600)])?;
    /// let rule = Rule::new("api", [Quota::per_minute(10)])?.with_plan("pro", pro)?;
    /// let pro = Arc::new(rule).of_plan("pro").expect("it stands above");
    /// assert_eq!((pro.plan(), pro.quotas()[0].max()), (Some("pro"), 600));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the name is empty, if there is a plan of this name, or if the rule has a
    /// lease that makes a window of ten years longer.
    pub fn with_plan(mut self, name: &str, quotas: Quotas) -> Result<Self, RuleError> {
        if name.is_empty() {
            return Err(RuleError::EmptyPlan);
        }
        let Err(at) = self.plans.binary_search_by(|plan| (*plan.name).cmp(name)) else {
            return Err(RuleError::SamePlan(name.to_owned()));
        };
        let mut plans = std::mem::take(&mut self.plans).into_vec();
        let name = name.into();
        plans.insert(at, PlanQuotas { name, quotas });
        self.plans = plans.into();
        self.count_along(&[]);
        self.checked_life()
    }

    pub(crate) const fn has_plans(&self) -> bool {
        !self.plans.is_empty()
    }

    /// The names of its plans, in alphabetical order.
    pub fn plans(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(|plan| &*plan.name)
    }

    /// The names of its policies, and of those of its plans.
    pub(crate) fn all_policy_names(&self) -> Vec<String> {
        let of_plans = self.plans.iter();
        let of_plans = of_plans.flat_map(|plan| plan.quotas.policies(&self.path));
        let all = self.policies.iter().cloned().chain(of_plans);
        let mut names: Vec<String> = Vec::new();
        for policy in all {
            if !names.iter().any(|known| known == policy.name()) {
                names.push(policy.name().to_owned());
            }
        }
        names
    }

    /// The plan that this rule is made for; `None` for a rule with its own quotas.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    fn derived(&self) -> &DerivedRules {
        self.made
            .derived
            .get_or_init(|| Arc::new(DerivedRules::of(self)))
    }

    /// The rule that a request without a plan is decided by.
    #[inline]
    pub(crate) fn for_no_plan(self: Arc<Self>) -> Arc<Self> {
        let of_given = self.made.derived.get().and_then(|it| it.own(&self));
        of_given.unwrap_or(self)
    }

    /// The rule that decides by the quotas of this plan, for code that asks a store by itself;
    /// `None` if there is no such plan.
    #[must_use]
    pub fn of_plan(self: &Arc<Self>, name: &str) -> Option<Arc<Self>> {
        self.derived().plan(self, name)
    }

    /// The rule that decides by other quotas, as
    /// [`RateLimitLayer::quotas`](crate::RateLimitLayer::quotas) does, for code that asks a store
    /// by itself. Ask about the rule's own quotas by `of_quotas`, too: takes under this rule itself
    /// do not count for the others.
    #[must_use]
    pub fn of_quotas(self: &Arc<Self>, quotas: Arc<Quotas>) -> Arc<Self> {
        self.derived().given(self, quotas)
    }

    /// Whether this request is the first one that has an unknown plan.
    pub(crate) fn is_first_unknown_plan(&self) -> bool {
        let is_known = &self.derived().has_had_unknown_plan;
        !is_known.swap(true, Ordering::Relaxed)
    }

    /// The quotas of the rule, and those of its plans.
    pub(crate) fn all_quotas(&self) -> impl Iterator<Item = Quota> {
        let of_plans = self
            .plans
            .iter()
            .flat_map(|plan| plan.quotas.iter().copied());
        self.quotas().iter().copied().chain(of_plans)
    }

    /// Makes takes count under `others`, too; without others, under the quotas of all plans.
    pub(super) fn count_along(&mut self, others: &[Quota]) {
        self.others = match others {
            [] => self.all_quotas().collect(),
            others => others.into(),
        };
        self.charge_along();
        self.shorten_lease(others);
    }

    /// Finds the quotas that takes are charged to along with the policies' own.
    pub(super) fn charge_along(&mut self) {
        let own: Vec<_> = self.policies.iter().map(Policy::quota).collect();
        let along = self.counting.algorithm().counted_along(&own, &self.others);
        self.quotas = own.into_iter().chain(along).collect();
        self.life = longest_life(self.counting, &self.quotas);
    }

    /// This rule with the quotas of a plan, or with quotas from code. Takes count under `others`,
    /// too; without others, under the quotas of all plans.
    fn with_other_quotas(
        &self,
        policies: Box<[Policy]>,
        plan: Option<Arc<str>>,
        others: &[Quota],
    ) -> Self {
        let all: Vec<_> = self.all_quotas().collect();
        let is_own = plan.is_none() && policies == self.policies;
        let mut rule = self.clone();
        rule.shadow = rule.shadow.filter(|_| is_own);
        (rule.policies, rule.plan) = (policies, plan);
        (rule.plans, rule.made) = (Box::default(), Made::default());
        rule.count_along(if others.is_empty() { &all } else { others });
        rule
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
    pub(super) has_had_unknown_plan: AtomicBool,
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
        lock(&self.given).rule(rule, Chosen::Given(quotas))
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
        if let Chosen::Given(quotas) = &chosen {
            self.use_quotas(rule, quotas);
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
