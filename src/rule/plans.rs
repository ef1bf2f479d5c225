use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::policy::Policy;
use super::quotas::Quotas;
use super::rule::{Rule, RuleSettings};
use super::rule_error::RuleError;
use super::share::Share;
use super::subject::Subject;
use crate::algorithm::Algorithm;
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
    /// let pro = Arc::new(rule).of_plan("pro").expect("it was added");
    /// assert_eq!((pro.plan(), pro.quotas()[0].max()), (Some("pro"), 600));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the name is empty, if there is a plan of this name, if the rule has a
    /// lease that makes a window of ten years longer, or if a quota is of a subject that the rule
    /// does not have.
    pub fn with_plan(self, name: &str, quotas: Quotas) -> Result<Self, RuleError> {
        self.with_plans([(name, quotas)])
    }

    /// Adds several [plans](Self::with_plan) together: thousands of them in a moment, where adding
    /// each by itself takes time by the square of their number.
    ///
    /// # Errors
    ///
    /// As [`with_plan`](Self::with_plan).
    pub fn with_plans<Name: AsRef<str>>(
        self,
        plans: impl IntoIterator<Item = (Name, Quotas)>,
    ) -> Result<Self, RuleError> {
        let new = plans.into_iter().map(|(name, quotas)| PlanQuotas {
            name: name.as_ref().into(),
            quotas,
        });
        let mut plans: Vec<_> = self.settings.plans.iter().cloned().chain(new).collect();
        plans.sort_by(|one, other| one.name.cmp(&other.name));
        if plans.first().is_some_and(|first| first.name.is_empty()) {
            return Err(RuleError::EmptyPlan);
        }
        if let Some(same) = plans.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(RuleError::SamePlan(same[0].name.to_string()));
        }
        for plan in &plans {
            self.settings.check_subjects(plan.quotas.given())?;
            if !self.settings.has_certain_subject(plan.quotas.given()) {
                return Err(RuleError::NoCertainSubjectOfPlan(plan.name.to_string()));
            }
        }
        let rule = self.with(|it| it.plans = plans.into());
        rule.with_counts_of_permits()?.checked_life()
    }

    pub(crate) fn has_plans(&self) -> bool {
        !self.settings.plans.is_empty()
    }

    /// The names of its plans, in alphabetical order.
    pub fn plans(&self) -> impl Iterator<Item = &str> {
        self.settings.plans.iter().map(|plan| &*plan.name)
    }

    /// The names of its policies, and of those of its plans.
    pub(crate) fn all_policy_names(&self) -> Vec<String> {
        let of_plans = self.settings.plans.iter();
        let of_plans = of_plans.flat_map(|plan| plan.quotas.policies(self.path()));
        let all = self.policies().iter().cloned().chain(of_plans);
        let names = all.map(|policy| policy.name().to_owned());
        let mut known = HashSet::new();
        names.filter(|name| known.insert(name.clone())).collect()
    }

    /// The plan that this rule is made for; `None` for a rule with its own quotas.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        match &self.settings.chosen {
            Chosen::Plan(plan) => Some(&plan.name),
            Chosen::Own | Chosen::Given(_) => None,
        }
    }

    fn derived(&self) -> &DerivedRules {
        self.computed().derived.get_or_init(|| {
            let of_plans = self.settings.plans.iter().map(|_| OnceLock::new());
            Arc::new(DerivedRules {
                of_plans: of_plans.collect(),
                ..DerivedRules::default()
            })
        })
    }

    /// The rule that a request without a plan is decided by.
    #[inline]
    pub(crate) fn for_no_plan(self: Arc<Self>) -> Arc<Self> {
        match self.computed().derived.get() {
            Some(derived) if derived.is_given() => derived.rule(&self, Chosen::Own),
            _ => self,
        }
    }

    /// The rule that decides by the quotas of this plan, for code that asks a store by itself;
    /// `None` if there is no such plan.
    #[must_use]
    pub fn of_plan(self: &Arc<Self>, name: &str) -> Option<Arc<Self>> {
        let (plans, derived) = (&self.settings.plans, self.derived());
        let at = plans.binary_search_by(|plan| (*plan.name).cmp(name)).ok()?;
        let chosen = || Chosen::Plan(plans[at].clone());
        if derived.is_given() {
            return Some(derived.rule(self, chosen()));
        }
        let of_plan = derived.of_plans.get(at)?;
        let made = of_plan.get_or_init(|| self.with_chosen(chosen(), &self.computed().others));
        Some(Arc::clone(made))
    }

    /// The rule that decides by other quotas, as
    /// [`RateLimitLayer::quotas`](crate::RateLimitLayer::quotas) does, for code that asks a store
    /// by itself. Ask about the rule's own quotas by `of_quotas`, too: takes under this rule itself
    /// do not count for the others.
    ///
    /// A [joint](Self::joint) rule, and one with [permits](Self::with_max_concurrent), has its own
    /// quotas alone, and quotas with permits are for plans, so this is the rule itself.
    #[must_use]
    pub fn of_quotas(self: &Arc<Self>, quotas: Arc<Quotas>) -> Arc<Self> {
        if !self.may_have(&quotas) {
            return Arc::clone(self);
        }
        let derived = self.derived();
        derived.is_given.store(true, Ordering::Relaxed);
        derived.rule(self, Chosen::Given(quotas))
    }

    /// Whether quotas from code can decide in place of its own.
    pub(crate) fn may_have(&self, quotas: &Quotas) -> bool {
        !self.is_joint() && !quotas.given().iter().any(Policy::is_concurrent)
    }

    /// Whether a request has chosen its quotas: a plan, or quotas from code.
    #[cfg(feature = "page")]
    pub(crate) fn is_chosen(&self) -> bool {
        self.settings.chosen != Chosen::Own
    }

    /// The rule with what a request has chosen under `last`, which was made of it or of an earlier
    /// rule of its path.
    #[cfg(feature = "page")]
    pub(crate) fn chosen_as(self: &Arc<Self>, last: &Self) -> Option<Arc<Self>> {
        match &last.settings.chosen {
            Chosen::Given(quotas) => Some(self.of_quotas(Arc::clone(quotas))),
            Chosen::Plan(plan) => self.of_plan(&plan.name),
            Chosen::Own => None,
        }
    }

    /// Whether this request is the first one that has an unknown plan.
    pub(crate) fn is_first_unknown_plan(&self) -> bool {
        let is_known = &self.derived().has_had_unknown_plan;
        !is_known.swap(true, Ordering::Relaxed)
    }

    /// The first plan that leaves the count of everyone out, which the rule has: its requests are
    /// without the bound of the whole service.
    pub(crate) fn plan_without_everyone(&self) -> Option<&str> {
        let subjects = self.subjects();
        let first = subjects.first().map(Subject::name);
        let limits = |plan: &PlanQuotas, name| {
            let mut policies = plan.quotas.given().iter();
            policies.any(|policy| policy.subject().or(first) == Some(name))
        };
        let mut of_everyone = subjects.iter().filter(|subject| subject.is_everyone());
        let name = of_everyone.next()?.name();
        let mut plans = self.settings.plans.iter();
        Some(&plans.find(|plan| !limits(plan, name))?.name)
    }

    /// The quotas of the rule and of its plans that count the cost of a request.
    pub(crate) fn quotas_at_cost(&self) -> impl Iterator<Item = Quota> {
        let all = self.settings.given_policies();
        let at_cost = all.filter(|policy| policy.cost().is_none() && !policy.is_concurrent());
        at_cost.map(Policy::quota)
    }

    /// The settings of a rule that is made of this one, and counts under these quotas, too.
    pub(super) fn made_of(&self, others: Arc<OtherQuotas>) -> RuleSettings {
        let (settings, computed) = (&self.settings, self.computed());
        let exemptions = computed.exemptions.as_ref();
        RuleSettings {
            plans: Arc::default(),
            others: Some(others),
            others_of_counts: computed.others_of_counts.clone(),
            exemptions: Arc::clone(exemptions.unwrap_or(&settings.exemptions)),
            file: None,
            lease: computed.lease.unwrap_or_default(),
            is_shadow: computed.is_shadow,
            shadow: computed.shadow.clone(),
            ..settings.clone()
        }
    }

    /// This rule with other quotas. Takes count under `others`, too.
    fn with_chosen(&self, chosen: Chosen, others: &Arc<OtherQuotas>) -> Arc<Self> {
        let mut made = self.made_of(Arc::clone(others));
        let (quotas, is_plan) = match &chosen {
            Chosen::Own => (None, false),
            Chosen::Plan(plan) => (Some(&plan.quotas), true),
            Chosen::Given(quotas) => (Some(&**quotas), false),
        };
        if let Some(quotas) = quotas {
            made.policies = quotas.policies(self.path());
        }
        let is_own = !is_plan && made.policies == self.settings.policies;
        made.shadow = made.shadow.filter(|_| is_own);
        made.chosen = chosen;
        Arc::new(Self::of(made))
    }
}

/// The quotas that the charges of a rule have to count under, beside those of its policies. The
/// rules of all its plans share them.
#[derive(Debug, Default)]
pub(super) struct OtherQuotas {
    all: Box<[Quota]>,
    /// At most 16, under which a charge counts as it does under all.
    summary: Box<[Quota]>,
    /// With a fallback's share of each, for the share and the cost that were asked for first.
    shared: OnceLock<((Share, u64), Arc<Self>)>,
}

impl OtherQuotas {
    pub(super) fn new(all: Box<[Quota]>, algorithm: Algorithm) -> Arc<Self> {
        let summary = algorithm.shared_counters(&[], &all).into();
        Arc::new(Self {
            all,
            summary,
            shared: OnceLock::new(),
        })
    }

    /// Those that a take under `own` quotas is charged to along with these.
    pub(super) fn shared_counters(&self, own: &[Quota], algorithm: Algorithm) -> Vec<Quota> {
        algorithm.shared_counters(own, &self.summary)
    }

    /// A share of each, for requests of this cost.
    pub(super) fn of_share(&self, share: Share, algorithm: Algorithm, cost: u64) -> Arc<Self> {
        let share_of = |quota: &Quota| {
            let shared = share.quota(quota, algorithm, cost);
            match quota.bounds() {
                true => shared.bounding(),
                false => shared,
            }
        };
        let make = || Self::new(self.all.iter().map(share_of).collect(), algorithm);
        let (known, shared) = self.shared.get_or_init(|| ((share, cost), make()));
        match *known == (share, cost) {
            true => Arc::clone(shared),
            false => make(),
        }
    }
}

/// A plan of a rule: its name and its quotas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PlanQuotas {
    pub(super) name: Arc<str>,
    pub(super) quotas: Quotas,
}

/// Which quotas apply to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) enum Chosen {
    /// Those of the rule.
    #[default]
    Own,
    /// Those of a plan of the rule.
    Plan(PlanQuotas),
    /// Others, from code.
    Given(Arc<Quotas>),
}

/// More rules for quotas from code are not kept: those not used for longest are made anew.
const MAX_KEPT: usize = 1_024;

/// The rules that are made of one rule for other quotas than its own. They go with the rule.
#[derive(Default)]
pub(super) struct DerivedRules {
    /// The rule of each plan, in the order of the plans, made when it is asked for first.
    of_plans: Box<[OnceLock<Arc<Rule>>]>,
    /// Whether code has given quotas.
    is_given: AtomicBool,
    given: Mutex<GivenQuotas>,
    has_had_unknown_plan: AtomicBool,
}

/// What quotas code has given, and the rules that count for these as well.
#[derive(Default)]
struct GivenQuotas {
    /// What every charge has to count under: see [`Algorithm::bound`](crate::Algorithm).
    in_use: Option<Arc<OtherQuotas>>,
    /// With the number of their last use.
    rules: HashMap<Chosen, (Arc<Rule>, u64)>,
    uses: u64,
}

impl DerivedRules {
    fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// The rule for what a request has chosen, which counts for quotas from code as well.
    fn rule(&self, rule: &Arc<Rule>, chosen: Chosen) -> Arc<Rule> {
        lock(&self.given).rule(rule, chosen)
    }
}

impl GivenQuotas {
    /// Every charge counts from now on for these quotas, too.
    fn use_quotas(&mut self, rule: &Rule, quotas: &Quotas) {
        let in_use = self.in_use.iter().flat_map(|it| &it.all);
        let all = rule.computed().others.summary.iter().chain(in_use);
        let all: Vec<_> = all.chain(quotas.iter()).copied().collect();
        let algorithm = rule.algorithm().algorithm();
        let bound = algorithm.bound(&[], &all).into_boxed_slice();
        if self.in_use.as_ref().is_none_or(|it| it.all != bound) {
            // The rules that were made before count too little.
            self.rules.clear();
            self.in_use = Some(OtherQuotas::new(bound, algorithm));
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
        let others = self.in_use.as_ref().unwrap_or(&rule.computed().others);
        let made = rule.with_chosen(chosen.clone(), others);
        if self.rules.len() >= MAX_KEPT {
            let oldest = self.rules.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(oldest) = oldest.map(|(chosen, _)| chosen.clone()) {
                self.rules.remove(&oldest);
            }
        }
        self.rules.insert(chosen, (Arc::clone(&made), self.uses));
        made
    }
}
