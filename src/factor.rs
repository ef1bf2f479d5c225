use std::fmt;
use std::ops::RangeInclusive;

use crate::algorithm::Algorithm;
use crate::quota::Quota;

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

    /// Raises so many units; rounds down, but to no less than one where there was one.
    pub(crate) fn times(self, units: u64) -> u64 {
        let raised = u128::from(units) * u128::from(self.0) / 100;
        let raised = raised.min(Quota::MAX_UNITS.into()) as u64;
        raised.max(units.min(1))
    }

    pub(crate) fn times_quota(self, quota: &Quota, algorithm: Algorithm) -> Quota {
        let (max, window) = (self.times(quota.max()), quota.window_micros());
        let burst = match algorithm.drains_evenly() && max > 0 {
            true => {
                // What a quota's burst may be: it comes back in the longest window.
                let longest = Quota::MAX_WINDOW.as_micros() * u128::from(max) / u128::from(window);
                let longest = u64::try_from(longest).unwrap_or(u64::MAX);
                self.times(quota.burst()).min(longest).max(1)
            }
            false => max,
        };
        Quota::from_parts(max, window, burst)
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
