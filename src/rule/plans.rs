use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::policy::{Per, Policy};
use super::quotas::{Quotas, check_policies};
use super::raise::Factors;
use super::resolved::Choice;
use super::rule::Rule;
use super::rule_error::RuleError;
use super::settings::RuleSettings;
use super::subject::Subject;
use crate::algorithm::period::Period;
use crate::quota::Quota;
use crate::sync::lock;

/// What a request is limited by: a plan of its rule, by its [name](Self::new), or quotas of its
/// own, as a [value](Self::of). It is cheap to clone.
///
/// [`plan`](crate::RateLimitLayer::plan) of a layer or of [`Limits`](crate::Limits) chooses a name
/// by the head of the request; without it the request has the name that authentication has put
/// into its extensions. A value is for one path, which
/// [`Limits::plan_value`](crate::Limits::plan_value) says, or for one layer. Among the extensions
/// it is unused, with a [warning](crate::warning::WarningKind::UnfitPlan), until a path takes it
/// from there:
///
/// ```
/// use axum::extract::Request;
/// use tidegate::rule::{Plan, Policy, RuleError};
/// use tidegate::{Limits, Quota, Rule};
///
/// /// Part of a middleware that has found out who asks, and what they bought.
/// fn authenticated(mut request: Request, a_minute: u32) -> Result<Request, RuleError> {
///     // A cache of the table of customers keeps such plans.
///     let plan = Plan::of([Policy::from(Quota::per_minute(a_minute)), Policy::concurrent(4)])?;
///     request.extensions_mut().insert(plan);
///     Ok(request)
/// }
/// let limits = Limits::new([Rule::new("api", [Quota::per_minute(60)])?])
///     .plan_value("api", |head| head.extensions.get::<Plan>().cloned());
/// # let _ = (authenticated, limits);
/// # Ok::<(), RuleError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan(PlanOf);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PlanOf {
    Name(Arc<str>),
    Value(Quotas),
}

impl Plan {
    /// The [plan](Rule::with_plan) of the rule that has this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(PlanOf::Name(name.into()))
    }

    /// A plan that is a value: these quotas, in place of those that the rule has for the same
    /// subjects. Policies say [of which subject](Policy::with_subject) they are, and may limit
    /// [requests at a time](Policy::concurrent). What they do not name stays the rule's: other
    /// [subjects](super::Subject), and requests at a time beside quotas. To lift that, make it of
    /// [`Quotas`] with [`unlimited`](Quotas::unlimited), which are `Into<Plan>`.
    ///
    /// A request whose plan does not fit its rule (a subject that the rule lacks, more than 16
    /// quotas together) is limited by the rule's own quotas, which is counted and logged once.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if there are no quotas or more than 16, or if two have the same name.
    pub fn of(policies: impl IntoIterator<Item = impl Into<Policy>>) -> Result<Self, RuleError> {
        Quotas::with_policies(policies.into_iter().map(Into::into)).map(Self::from)
    }

    /// Its name; `None` for a value.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            PlanOf::Name(name) => Some(name),
            PlanOf::Value(_) => None,
        }
    }
}

impl From<Quotas> for Plan {
    fn from(quotas: Quotas) -> Self {
        Self(PlanOf::Value(quotas))
    }
}

impl Rule {
    /// Adds a plan: other quotas for the requests that say its name, by
    /// [`RateLimitLayer::plan`](crate::RateLimitLayer::plan) or a [`Plan`](crate::rule::Plan)
    /// among their extensions. All else stays: path, key, cost, algorithm. Quotas of one window
    /// count together, whatever their max: an upgrade keeps what was used, and a downgrade denies
    /// until it fits. A plan with another window begins empty (under the sliding log with what
    /// still counts): who changes plans at will gets in a window at most what each admits,
    /// together. Default: none.
    ///
    /// What a plan does not name stays the rule's: the quotas of other subjects of a
    /// [joint](Self::joint) rule, [requests at a time](Self::with_max_concurrent) beside a plan of
    /// quotas, and quotas beside a plan of nothing else. [`Quotas::unlimited`] lifts it.
    ///
    /// A plan that the rule does not have is an unknown one, also if it is meant to have the rule's
    /// own quotas: requests that have these say no plan.
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
    /// [`RuleError`] if the name is empty, if there is a plan of this name, or if a quota is of a
    /// subject that the rule does not have.
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
            let no_certain_subject = || RuleError::NoCertainSubjectOfPlan(plan.name.to_string());
            self.settings
                .policies_of(&plan.quotas, no_certain_subject)?;
        }
        self.with(|it| it.plans = plans.into()).checked_outgoing()
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
        let of_plans = of_plans.flat_map(|plan| self.settings.merged(&plan.quotas));
        let all = self.policies().iter().cloned().chain(of_plans);
        let names = all.map(|policy| policy.name().to_owned());
        let mut known = HashSet::new();
        names.filter(|name| known.insert(name.clone())).collect()
    }

    /// The plan that this rule is made for; `None` for a rule with its own quotas.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        match &self.choice.chosen {
            Chosen::Plan(plan) => Some(&plan.name),
            Chosen::Own | Chosen::Value(_) => None,
        }
    }

    /// That of the plan, which a request of this rule has in its lane.
    pub(crate) fn fair_weight(&self) -> u16 {
        match &self.choice.chosen {
            Chosen::Own => 1,
            Chosen::Plan(PlanQuotas { quotas, .. }) | Chosen::Value(quotas) => quotas.fair_weight(),
        }
    }

    pub(super) fn derived(&self) -> &DerivedRules {
        self.resolved().derived.get_or_init(|| {
            let of_plans = self.settings.plans.iter().map(|_| OnceLock::new());
            Arc::new(DerivedRules {
                of_plans: of_plans.collect(),
                ..DerivedRules::default()
            })
        })
    }

    /// The rule that decides by the quotas of the plan of this name, for code that asks a store by
    /// itself; `None` if there is no such plan.
    #[must_use]
    pub fn of_plan(self: &Arc<Self>, name: &str) -> Option<Arc<Self>> {
        let (plans, derived) = (&self.settings.plans, self.derived());
        let at = plans.binary_search_by(|plan| (*plan.name).cmp(name)).ok()?;
        let of_plan = derived.of_plans.get(at)?;
        let made = of_plan.get_or_init(|| self.choosing(Chosen::Plan(plans[at].clone())));
        Some(Arc::clone(made))
    }

    /// The rule that decides by the quotas of this plan, for code that asks a store by itself.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule has no plan of this name, or if the value does not fit the rule:
    /// see [`Plan::of`].
    pub fn under(self: &Arc<Self>, plan: &Plan) -> Result<Arc<Self>, RuleError> {
        match &plan.0 {
            PlanOf::Name(name) => {
                let unknown = || RuleError::UnknownPlan(name.to_string());
                self.of_plan(name).ok_or_else(unknown)
            }
            PlanOf::Value(quotas) => {
                lock(&self.derived().of_values).try_rule(quotas, || self.for_value(quotas))
            }
        }
    }

    /// The rules of plans from code that are kept, without those whose counts others have.
    pub(crate) fn values_with_counts(&self) -> Vec<Arc<Self>> {
        let derived = self.resolved().derived.get();
        let rules = derived.map(|derived| lock(&derived.of_values));
        let rules = rules.iter().flat_map(|it| it.rules.values());
        let mut known = HashSet::new();
        let mut has_new = |rule: &Rule| {
            let ids = rule.ids_of_counts().into_iter();
            ids.filter(|id| known.insert(id.clone())).count() > 0
        };
        let rules = rules.filter(|(rule, _)| has_new(rule));
        rules.map(|(rule, _)| Arc::clone(rule)).collect()
    }

    /// The rule that counts the cost of a request in a window and in each period, of each subject.
    pub(crate) fn for_all_periods(&self) -> Arc<Self> {
        let mut all = Vec::new();
        for own in &self.settings.policies {
            let periods = Period::ALL.map(|period| Policy::calendar(period, 1));
            for mut policy in [Quota::per_day(1).into()].into_iter().chain(periods) {
                policy.subject = own.subject.clone();
                all.push(policy);
            }
        }
        self.choosing(Chosen::Value(Quotas::hashed(all.into(), Arc::default(), 1)))
    }

    /// Whether a plan may say this time zone for a quota.
    #[cfg(feature = "config")]
    pub(crate) fn check_zone(&self, policy: &Policy, zone: &str) -> Result<(), RuleError> {
        self.settings.check_zone(policy, zone)
    }

    /// Whether a request has chosen its quotas, by a plan.
    #[cfg(feature = "page")]
    pub(crate) fn is_chosen(&self) -> bool {
        self.choice.chosen != Chosen::Own
    }

    /// The rule with what a request has chosen under `last`, which was made of it or of an earlier
    /// rule of its path.
    pub(crate) fn chosen_as(self: &Arc<Self>, last: &Self) -> Option<Arc<Self>> {
        match &last.choice.chosen {
            Chosen::Value(quotas) => self.under(&Plan::from(quotas.clone())).ok(),
            Chosen::Plan(plan) => self.of_plan(&plan.name),
            Chosen::Own => None,
        }
    }

    /// Whether this request is the first one with a plan that the rule lacks, or, as a value, with
    /// one that does not fit it.
    pub(crate) fn is_first_unknown_plan(&self, is_value: bool) -> bool {
        let have_been = &self.derived().have_been_unknown;
        !have_been[usize::from(is_value)].swap(true, Ordering::Relaxed)
    }

    /// The quotas of the rule and of its plans that count the cost of a request.
    pub(crate) fn quotas_at_cost(&self) -> impl Iterator<Item = Quota> {
        let all = self.settings.given_policies();
        let at_cost = all.filter(|policy| policy.cost().is_none() && !policy.is_concurrent());
        at_cost.map(Policy::quota)
    }

    fn for_value(&self, quotas: &Quotas) -> Result<Arc<Self>, RuleError> {
        let no_certain_subject = || RuleError::NoCertainSubjectOfPlan("custom".to_owned());
        self.settings.policies_of(quotas, no_certain_subject)?;
        Ok(self.choosing(Chosen::Value(quotas.clone())))
    }

    fn choosing(&self, chosen: Chosen) -> Arc<Self> {
        let factors = Factors::default();
        self.under_choice(Choice { chosen, factors })
    }
}

impl RuleSettings {
    /// The policies of a request with this plan, if it fits: those of the plan, and the rule's for
    /// subjects that the plan does not name.
    fn policies_of(
        &self,
        plan: &Quotas,
        no_certain_subject: impl FnOnce() -> RuleError,
    ) -> Result<Box<[Policy]>, RuleError> {
        self.check_subjects(plan.given())?;
        for policy in plan.given() {
            let zone = policy.period().and_then(Period::zone);
            zone.map_or(Ok(()), |zone| self.check_zone(policy, zone))?;
        }
        let first = self.subjects.first().map(Subject::name);
        for name in plan.unlimited_subjects() {
            let is_kind = Policy::KINDS.contains(&&**name);
            if !is_kind && self.subjects.iter().all(|it| it.name() != &**name) {
                return Err(RuleError::UnknownSubject(name.to_string()));
            }
            // Of several subjects, a kind may be lifted for those that the plan does not name.
            let is_of_it = |it: &Policy| match is_kind {
                true => self.subjects.len() < 2 && it.kind() == &**name,
                false => it.subject().or(first) == Some(&**name),
            };
            if plan.given().iter().any(is_of_it) {
                return Err(RuleError::UnlimitedQuota(name.to_string()));
            }
        }
        let policies = self.merged(plan);
        check_policies(&policies)?;
        self.check_lockout(&policies)?;
        self.check_outgoing(&policies)?;
        match self.has_certain_subject(&policies) {
            true => Ok(policies),
            false => Err(no_certain_subject()),
        }
    }

    /// The period of the rule whose time zone this quota of a plan has, and whose beginning, if it
    /// says none of its own.
    fn period_beside(&self, policy: &Policy) -> Option<&Period> {
        let name = |it: &Policy| it.period().map(Period::name);
        let own = self.policies.iter().filter(|it| it.period().is_some());
        let likeness = |own: &&Policy| (name(own) == name(policy), own.subject == policy.subject);
        own.max_by_key(likeness)?.period()
    }

    /// Whether a plan's quota may have this time zone.
    fn check_zone(&self, policy: &Policy, zone: &str) -> Result<(), RuleError> {
        let own = self.period_beside(policy);
        match own.map(|own| own.zone().unwrap_or("UTC")) {
            Some(own) if own != zone => Err(RuleError::AnotherZone(zone.into(), own.into())),
            _ => Ok(()),
        }
    }

    /// What the plan says, and what it omits: quotas, or requests at a time, of a subject.
    pub(super) fn merged(&self, plan: &Quotas) -> Box<[Policy]> {
        let first = self.subjects.first().map(Subject::name);
        let mut policies = plan.given().to_vec();
        for policy in &mut policies {
            policy.subject = policy.subject.take().or(first.map(Into::into));
            let own = self.period_beside(policy);
            if let (Some(own), Per::Period(period)) = (own, &mut policy.per) {
                period.complete_by(own);
            }
        }
        let is_kept = |own: &&Policy| {
            let (subject, kind) = (own.subject().or(first), own.kind());
            let is_said = |it: &Policy| (it.subject(), it.kind()) == (subject, kind);
            let lifts = |name: &Arc<str>| subject == Some(name) || kind == &**name;
            !plan.unlimited_subjects().iter().any(lifts) && !policies.iter().any(is_said)
        };
        let kept: Vec<_> = self.policies.iter().filter(is_kept).cloned().collect();
        policies.extend(kept);
        Policy::name_all(&self.path, &mut policies);
        policies.into()
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
    /// Those of a plan that is a value.
    Value(Quotas),
}

/// More rules for values are not kept: those not used for longest are made anew.
const MAX_VALUES: usize = 10_000;

/// The same of the rules for raises: each plan has its own.
const MAX_RAISES: usize = 100;

/// The rules that are made of one rule for other quotas than its own. They go with the rule.
#[derive(Default)]
pub(super) struct DerivedRules {
    /// The rule of each plan, in the order of the plans, made when it is asked for first.
    of_plans: Box<[OnceLock<Arc<Rule>>]>,
    /// Of plans that are values: one for all equal ones.
    of_values: Mutex<KeptRules<Quotas, MAX_VALUES>>,
    /// Of the keys that an operator raises.
    pub(super) raised: Mutex<KeptRules<Factors, MAX_RAISES>>,
    /// Plans that it lacks, and values that do not fit it.
    have_been_unknown: [AtomicBool; 2],
}

/// At most so many rules, by what they are made for.
pub(super) struct KeptRules<K, const MAX: usize> {
    /// With the number of their last use.
    rules: HashMap<K, (Arc<Rule>, u64)>,
    uses: u64,
}

impl<K, const MAX: usize> Default for KeptRules<K, MAX> {
    fn default() -> Self {
        let (rules, uses) = (HashMap::new(), 0);
        Self { rules, uses }
    }
}

impl<K: Clone + Eq + Hash, const MAX: usize> KeptRules<K, MAX> {
    pub(super) fn rule(&mut self, of: &K, make: impl FnOnce() -> Arc<Rule>) -> Arc<Rule> {
        let Ok(rule) = self.try_rule(of, || Ok::<_, Infallible>(make()));
        rule
    }

    fn try_rule<E>(
        &mut self,
        of: &K,
        make: impl FnOnce() -> Result<Arc<Rule>, E>,
    ) -> Result<Arc<Rule>, E> {
        self.uses += 1;
        if let Some((known, last_use)) = self.rules.get_mut(of) {
            *last_use = self.uses;
            return Ok(Arc::clone(known));
        }
        let made = make()?;
        if self.rules.len() >= MAX {
            self.forget_half();
        }
        let kept = (Arc::clone(&made), self.uses);
        self.rules.insert(of.clone(), kept);
        Ok(made)
    }

    /// Forgets the half that was not used for longest, so that a search through all of them is
    /// rare.
    fn forget_half(&mut self) {
        let mut uses: Vec<_> = self.rules.values().map(|(_, last_use)| *last_use).collect();
        let middle = uses.len() / 2;
        let (_, since, _) = uses.select_nth_unstable(middle);
        let since = *since;
        self.rules.retain(|_, (_, last_use)| *last_use >= since);
    }
}
