use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use smallvec::SmallVec;

use super::policy::Policy;
use super::rule::{Rule, RuleSettings};
use super::subject::MAX_SUBJECTS;
use crate::algorithm::Algorithm;
use crate::quota::Quota;
use crate::sync::lock;

/// By what an operator multiplies the quotas of a key for a time: 0.01 to 1,000, in hundredths.
///
/// ```
/// use tidegate::rule::Factor;
///
/// let factor = Factor::new(2.5).expect("in range");
/// assert_eq!((factor.get(), factor.to_string()), (2.5, "2.5".to_owned()));
/// assert_eq!(Factor::new(0.0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u32);

/// The factor of each subject of a rule, in their order; empty if none is raised.
pub(crate) type Factors = SmallVec<[Factor; MAX_SUBJECTS]>;

impl Factor {
    /// The factors that there are.
    pub const RANGE: RangeInclusive<f64> = 0.01..=1_000.0;

    pub(crate) const ONE: Self = Self(100);

    /// The factor, rounded to hundredths; `None` if it is not in the [range](Self::RANGE).
    #[must_use]
    pub fn new(factor: f64) -> Option<Self> {
        let hundredths = Self::RANGE.contains(&factor).then_some(factor * 100.0)?;
        Some(Self(hundredths.round() as u32))
    }

    /// The factor as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// So many units raised: rounded down, and at least one where there was one.
    fn of(self, units: u64) -> u64 {
        let raised = u128::from(units) * u128::from(self.0) / 100;
        let raised = raised.min(Quota::MAX_UNITS.into()) as u64;
        raised.max(units.min(1))
    }

    fn of_quota(self, quota: &Quota, algorithm: Algorithm) -> Quota {
        let (max, window) = (self.of(quota.max()), quota.window_micros());
        let burst = match algorithm.has_burst() && max > 0 {
            true => {
                // What a quota's burst may be: it comes back in the longest window.
                let longest = Quota::MAX_WINDOW.as_micros() * u128::from(max) / u128::from(window);
                let longest = u64::try_from(longest).unwrap_or(u64::MAX);
                self.of(quota.burst()).min(longest).max(1)
            }
            false => max,
        };
        Quota::of_parts(max, window, burst)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

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
        if made.subjects.is_empty() {
            made.owe_at_most = made.raised_owed(0);
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
