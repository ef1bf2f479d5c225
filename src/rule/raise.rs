use std::sync::Arc;

use smallvec::SmallVec;

use super::policy::Policy;
use super::resolved::Choice;
use super::rule::Rule;
use super::settings::RuleSettings;
use crate::factor::Factor;
use crate::quota::Quota;
use crate::sync::lock;

/// The factor of each policy of a rule, in their order; empty if none is raised.
pub(crate) type Factors = SmallVec<[Factor; 4]>;

impl Rule {
    /// The rule with its quotas multiplied, each by its factor: max, burst, requests at a time, and
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
    /// Multiplies these policies by their factors.
    pub(super) fn raise(&self, policies: &mut [Policy], factors: &Factors) {
        let algorithm = self.algorithm.algorithm();
        for (policy, factor) in policies.iter_mut().zip(factors) {
            let quota = policy.quota;
            policy.quota = match policy.is_concurrent() {
                true => Quota::from_micros(factor.times(quota.max()), quota.window_micros()),
                false => factor.times_quota(&quota, algorithm),
            };
        }
    }
}
