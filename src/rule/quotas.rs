use std::sync::Arc;

use super::policy::Policy;
use super::rule_error::RuleError;
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Quotas(Arc<[(Option<Box<str>>, Quota)]>);

impl Quotas {
    /// Quotas that clients see under the names that those of a [`Rule`](crate::Rule) have: the
    /// rule's path, or of several the path and the window.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if there are no quotas or more than 16, or if two have the same window.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Result<Self, RuleError> {
        let quotas = quotas.into_iter().map(|quota| (None, quota));
        Self::of("quota", quotas.collect())
    }

    /// Quotas with names.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if there are no quotas or more than 16, or if two have the same name.
    pub fn with_policies(policies: impl IntoIterator<Item = Policy>) -> Result<Self, RuleError> {
        let named = |policy: Policy| (Some(policy.name().into()), policy.quota());
        Self::of("quota", policies.into_iter().map(named).collect())
    }

    /// Quotas of which some have names. Errors name the others as in a rule of this path.
    pub(crate) fn of(
        path: &str,
        quotas: Arc<[(Option<Box<str>>, Quota)]>,
    ) -> Result<Self, RuleError> {
        let quotas = Self(quotas);
        check_policies(&quotas.policies(path))?;
        Ok(quotas)
    }

    /// The quotas.
    pub fn iter(&self) -> impl Iterator<Item = &Quota> {
        self.0.iter().map(|(_, quota)| quota)
    }

    /// The quotas with the names that they have in a rule of this path.
    pub(crate) fn policies(&self, path: &str) -> Box<[Policy]> {
        let only = self.0.len() == 1;
        let policies = self.0.iter().map(|(name, quota)| match name {
            Some(name) => Policy::new(name, *quota),
            None => Policy::unnamed(path, *quota, only),
        });
        policies.collect()
    }
}

/// Whether these can be the policies of one rule.
pub(super) fn check_policies(policies: &[Policy]) -> Result<(), RuleError> {
    if !(1..=MAX_QUOTAS).contains(&policies.len()) {
        return Err(RuleError::NumberOfQuotas(policies.len()));
    }
    for (at, policy) in policies.iter().enumerate() {
        let name = policy.name();
        if policies[..at].iter().any(|other| other.name() == name) {
            return Err(RuleError::SameName(name.to_owned()));
        }
    }
    Ok(())
}
