use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::policy::Policy;
use super::rule_error::RuleError;
use crate::algorithm::period::Period;
use crate::quota::{MAX_QUOTAS, Quota};

/// The quotas of a plan or a customer, in place of those of a rule: 1 to 16, with or without names.
///
/// Two are equal if they have the same quotas with the same names, in the same order.
///
/// ```
/// use tidegate::rule::{Policy, Quotas};
/// use tidegate::Quota;
///
/// let pro = Quotas::new([Quota::per_second(50), Quota::per_day(100_000)])?;
/// let named = Quotas::with_policies([Policy::new("daily", Quota::per_day(100_000))])?;
/// assert_ne!(pro, named);
/// assert_eq!(pro.iter().count(), 2);
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Quotas {
    policies: Arc<[Policy]>,
    /// Subjects that have no quotas.
    unlimited: Arc<[Arc<str>]>,
    fair_weight: u16,
    /// Of all that tells them apart: plans are looked up for each request.
    hash: u64,
}

impl PartialEq for Quotas {
    fn eq(&self, other: &Self) -> bool {
        let is_same = Arc::ptr_eq(&self.policies, &other.policies);
        (is_same || self.hash == other.hash && self.policies == other.policies)
            && (&self.unlimited, self.fair_weight) == (&other.unlimited, other.fair_weight)
    }
}

impl Eq for Quotas {}

impl Hash for Quotas {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Quotas {
    /// Quotas that clients see under the names that those of a [`Rule`](crate::Rule) have: the
    /// rule's path, or of several the path and the window.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if there are no quotas or more than 16, or if two have the same window.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, RuleError> {
        Self::for_rule("quota", quotas.into_iter().map(Policy::from).collect())
    }

    /// Quotas with names.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if there are no quotas or more than 16, or if two have the same name or, of
    /// one subject and cost, the same window.
    pub fn with_policies(policies: impl IntoIterator<Item = Policy>) -> Result<Self, RuleError> {
        Self::for_rule("quota", policies.into_iter().collect())
    }

    /// Quotas of which some have names. Errors name the others as in a rule of this path.
    pub(crate) fn for_rule(path: &str, quotas: Arc<[Policy]>) -> Result<Self, RuleError> {
        let quotas = Self::hashed(quotas, Arc::default(), 1);
        check_policies(&quotas.policies(path))?;
        Ok(quotas)
    }

    pub(super) fn hashed(
        policies: Arc<[Policy]>,
        unlimited: Arc<[Arc<str>]>,
        fair_weight: u16,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        (&policies, &unlimited, fair_weight).hash(&mut hasher);
        let hash = hasher.finish();
        Self {
            policies,
            unlimited,
            fair_weight,
            hash,
        }
    }

    /// These quotas as a plan that lifts what it else keeps of its rule: the quotas of the
    /// [subjects](super::Subject) of these names, under `"max-concurrent"` all bounds of [requests
    /// at a time](super::Policy::concurrent), and under `"max-count"` all others. Default: nothing.
    /// A rule without such a subject refuses them; so does one whose only key has quotas here of a
    /// kind that is unlimited.
    ///
    /// ```
    /// use tidegate::rule::{Policy, Quotas};
    /// use tidegate::Quota;
    ///
    /// let of_user = Policy::from(Quota::per_minute(600)).with_subject("user");
    /// // The bound of the whole service is not for these customers.
    /// let internal = Quotas::with_policies([of_user])?.unlimited(["everyone"]);
    /// # let _ = internal;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn unlimited<Name: Into<Arc<str>>>(self, subjects: impl IntoIterator<Item = Name>) -> Self {
        let unlimited = subjects.into_iter().map(Into::into).collect();
        Self::hashed(self.policies, unlimited, self.fair_weight)
    }

    /// A plan that leaves all quotas of its rule as they are: its requests have this
    /// [weight](Self::with_fair_weight).
    ///
    /// ```
    /// use tidegate::rule::Quotas;
    /// use tidegate::{Header, Quota, Rule};
    ///
    /// let rule = Rule::new("model", [Quota::per_second(100)])?
    ///     .with_fair_by(Header::new("x-tenant"))
    ///     .with_plan("pro", Quotas::of_fair_weight(3)?)?;
    /// # let _ = rule;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`with_fair_weight`](Self::with_fair_weight).
    pub fn of_fair_weight(weight: u16) -> Result<Self, RuleError> {
        Self::hashed(Arc::default(), Arc::default(), 1).with_fair_weight(weight)
    }

    /// How much more the requests of this plan are served than those of one with the weight 1, where
    /// lanes take [turns](crate::Rule::with_fair_by): 1 to 1,000. A lane that always waits gets its
    /// weight of the sum of all that do. Default: 1.
    ///
    /// # Errors
    ///
    /// [`RuleError::FairWeight`] for another number.
    pub fn with_fair_weight(self, weight: u16) -> Result<Self, RuleError> {
        match weight {
            1..=MAX_FAIR_WEIGHT => Ok(Self::hashed(self.policies, self.unlimited, weight)),
            _ => Err(RuleError::FairWeight(weight)),
        }
    }

    pub(super) fn fair_weight(&self) -> u16 {
        self.fair_weight
    }

    pub(super) fn unlimited_subjects(&self) -> &[Arc<str>] {
        &self.unlimited
    }

    /// The quotas.
    pub fn iter(&self) -> impl Iterator<Item = &Quota> {
        self.policies.iter().map(|policy| &policy.quota)
    }

    /// These quotas with what clients see, as far as it was said.
    pub(super) fn given(&self) -> &[Policy] {
        &self.policies
    }

    /// The quotas with the names that they have in a rule of this path.
    pub(crate) fn policies(&self, path: &str) -> Box<[Policy]> {
        let mut policies: Box<[_]> = self.policies.iter().cloned().collect();
        Policy::name_all(path, &mut policies);
        policies
    }
}

pub(crate) const MAX_FAIR_WEIGHT: u16 = 1_000;

/// Whether these can be the policies of one rule.
pub(super) fn check_policies(policies: &[Policy]) -> Result<(), RuleError> {
    if !(1..=MAX_QUOTAS).contains(&policies.len()) {
        return Err(RuleError::NumberOfQuotas(policies.len()));
    }
    for (at, policy) in policies.iter().enumerate() {
        let name = policy.name();
        let is_same = |other: &Policy| other.is_concurrent() && other.subject == policy.subject;
        if policy.is_concurrent() && policies[..at].iter().any(is_same) {
            return Err(RuleError::SameMaxConcurrent(name.to_owned()));
        }
        if policies[..at].iter().any(|other| other.name() == name) {
            return Err(RuleError::SameName(name.to_owned()));
        }
        let period = |it: &Policy| it.period().map(Period::name);
        let is_of_same_count = |other: &&Policy| {
            let is_alike = other.subject == policy.subject && other.cost() == policy.cost();
            is_alike && !other.is_concurrent() && period(other) == period(policy)
        };
        let mut others = policies[..at].iter().filter(is_of_same_count);
        let window = policy.quota.window();
        if !policy.is_concurrent() && others.any(|other| other.quota.window() == window) {
            return Err(RuleError::SameWindow(name.to_owned()));
        }
        if policy.is_concurrent() && policy.cost().is_some() {
            return Err(RuleError::CostOfPermits(name.to_owned()));
        }
        if policy.cost() == Some(0) {
            return Err(RuleError::NoCost(name.to_owned()));
        }
    }
    Ok(())
}
