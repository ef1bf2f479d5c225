use std::sync::Arc;

use smallvec::SmallVec;

use super::policy::Policy;
use super::rule::{Rule, RuleSettings};
use super::subject::MAX_SUBJECTS;
use crate::factor::Factor;
use crate::quota::Quota;
use crate::sync::lock;

/// The factor of each subject of a rule, in their order; empty if none is raised.
pub(crate) type Factors = SmallVec<[Factor; MAX_SUBJECTS]>;

impl Rule {
    /// The rule with the quotas of each subject multiplied: max, burst, requests at a time, and
    /// what may be owed.
    pub(crate) fn raised(&self, factors: Factors) -> Arc<Self> {
        let make = || Arc::new(Self::of(self.with_factors(factors.clone())));
        lock(&self.derived().raised).rule(&factors, make)
    }

    /// The greatest factor, if this rule is made for a raise.
    pub(crate) fn factor(&self) -> Option<Factor> {
        let factors = self.settings.factors.iter().copied();
        factors.filter(|it| *it != Factor::ONE).max()
    }

    fn with_factors(&self, factors: Factors) -> RuleSettings {
        let algorithm = self.algorithm().algorithm();
        let mut made = self.made_of();
        made.factors = factors;
        for policy in &mut made.policies {
            let factor = self.settings.factor_of(&made.factors, policy);
            *policy = policy.with_quota(match policy.is_concurrent() {
                true => {
                    Quota::of_micros(factor.of(policy.quota.max()), policy.quota.window_micros())
                }
                false => factor.of_quota(&policy.quota, algorithm),
            });
        }
        made
    }
}

impl RuleSettings {
    /// What may be owed of the quotas of the subject at this place.
    pub(super) fn raised_owed(&self, place: usize) -> Option<u64> {
        let factor = self.factors.get(place).copied().unwrap_or(Factor::ONE);
        self.owe_at_most.map(|units| factor.of(units))
    }

    fn factor_of(&self, factors: &Factors, policy: &Policy) -> Factor {
        let place = policy.subject().and_then(|name| {
            let mut subjects = self.subjects.iter();
            subjects.position(|it| it.name() == name)
        });
        factors[place.unwrap_or(0)]
    }
}
