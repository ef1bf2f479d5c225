use std::sync::Arc;

use smallvec::SmallVec;

use super::policy::Policy;
use super::resolved::Choice;
use super::rule::Rule;
use super::settings::RuleSettings;
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
        let make = || {
            let chosen = self.choice.chosen.clone();
            self.under_choice(Choice {
                chosen,
                factors: factors.clone(),
            })
        };
        lock(&self.derived().raised).rule(&factors, make)
    }

    /// The greatest factor, if an operator raises it.
    pub(crate) fn factor(&self) -> Option<Factor> {
        let factors = self.choice.factors.iter().copied();
        factors.filter(|it| *it != Factor::ONE).max()
    }
}

impl RuleSettings {
    /// Multiplies these policies by the factors of their subjects.
    pub(super) fn raise(&self, policies: &mut [Policy], factors: &Factors) {
        let algorithm = self.algorithm.algorithm();
        for policy in policies.iter_mut().filter(|_| !factors.is_empty()) {
            let of_it = |it: &Policy| self.place_of(it.subject()).unwrap_or(0);
            let (factor, quota) = (factors[of_it(policy)], policy.quota);
            policy.quota = match policy.is_concurrent() {
                true => Quota::of_micros(factor.of(quota.max()), quota.window_micros()),
                false => factor.of_quota(&quota, algorithm),
            };
        }
    }
}
