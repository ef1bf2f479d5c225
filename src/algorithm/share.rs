use super::Algorithm;
use crate::quota::Quota;

/// The part of every quota that one process admits by itself: more than 0 and at most the whole.
///
/// ```
/// use tidegate::rule::Share;
///
/// // Four processes run; each admits a quarter.
/// assert_eq!(Share::of_processes(4), Share::new(1, 4));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Share {
    numerator: u32,
    denominator: u32,
}

impl Share {
    /// The share of one of `number` processes that serve the same quotas: together they admit at
    /// most the whole. If the number of processes varies, use the largest number that runs
    /// simultaneously.
    ///
    /// # Panics
    ///
    /// If `number` is 0. Use [`Share::checked`] where the number is not a constant.
    #[must_use]
    pub const fn of_processes(number: u32) -> Self {
        Self::new(1, number)
    }

    /// `numerator / denominator` of each quota.
    ///
    /// # Panics
    ///
    /// If the share is 0 or more than the whole. Use [`Share::checked`] where the numbers are not
    /// constants.
    #[must_use]
    pub const fn new(numerator: u32, denominator: u32) -> Self {
        match Self::checked(numerator, denominator) {
            Some(share) => share,
            None => panic!("a share is more than 0 and at most the whole"),
        }
    }

    /// `numerator / denominator` of each quota. `None` if that is 0 or more than the whole.
    #[must_use]
    pub const fn checked(numerator: u32, denominator: u32) -> Option<Self> {
        if numerator == 0 || numerator > denominator {
            return None;
        }
        Some(Self {
            numerator,
            denominator,
        })
    }

    pub(crate) fn times(self, units: u64) -> u64 {
        let part = u128::from(units) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).expect("no more than the whole")
    }

    /// The same, and at least one where there is any.
    pub(crate) fn at_least_one_of(self, units: u64) -> u64 {
        self.times(units).max(units.min(1))
    }

    /// The share of a quota, for requests of this cost.
    ///
    /// A share that has no room for one request becomes room for one request in a longer window, so
    /// that the rate stays the same.
    pub(crate) fn quota(self, quota: &Quota, algorithm: Algorithm, cost: u64) -> Quota {
        let is_never_allowed = quota.max() == 0 || cost > algorithm.limit(quota);
        let least = if is_never_allowed { 0 } else { cost };
        let (max, window) = (self.times(quota.max()), quota.window_micros());
        let shared = match max >= least {
            true => Quota::from_micros(max, window),
            false => match self.window_for(quota, cost) {
                Some(longer) => Quota::from_micros(cost, longer),
                None => Quota::from_micros(0, window),
            },
        };
        match algorithm.has_burst() {
            true => with_burst(shared, self.times(quota.burst()).max(least)),
            false => shared,
        }
    }

    /// The microseconds in which the share's rate admits this many units, rounded up to whole
    /// milliseconds. `None` if a window may not be that long.
    fn window_for(self, quota: &Quota, units: u64) -> Option<u64> {
        let millis = u128::from(quota.window_micros() / 1_000) * u128::from(units);
        let whole = millis * u128::from(self.denominator);
        let rate = u128::from(quota.max()) * u128::from(self.numerator);
        let micros = whole.div_ceil(rate).checked_mul(1_000)?;
        let is_window = micros <= Quota::MAX_WINDOW.as_micros();
        u64::try_from(micros).ok().filter(|_| is_window)
    }
}

/// The quota with a burst. If refilling the burst would take longer than a quota allows, the quota
/// admits nothing.
fn with_burst(quota: Quota, burst: u64) -> Quota {
    let without = Quota::from_micros(0, quota.window_micros());
    quota.with_burst(burst).unwrap_or(without)
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        let cross = |a: &Self, b: &Self| u64::from(a.numerator) * u64::from(b.denominator);
        cross(self, other) == cross(other, self)
    }
}

impl Eq for Share {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The share's maximum, and its window in milliseconds.
    fn shared(share: Share, quota: (u64, u64), algorithm: Algorithm, cost: u64) -> (u64, u64) {
        let window = Duration::from_millis(quota.1);
        let quota = Quota::new(window, quota.0).expect("valid");
        let shared = share.quota(&quota, algorithm, cost);
        (shared.max(), shared.window_micros() / 1_000)
    }

    #[test]
    fn whole_requests_are_rounded_down() {
        let log = Algorithm::SlidingLog;
        let quarter = Share::of_processes(4);
        assert_eq!(shared(quarter, (100, 1_000), log, 1), (25, 1_000));
        assert_eq!(shared(quarter, (7, 1_000), log, 1), (1, 1_000));
        assert_eq!(
            shared(Share::new(1, 1), (7, 1_000), log, 1),
            (7, 1_000),
            "all"
        );
        assert_eq!(shared(Share::new(2, 3), (7, 1_000), log, 1), (4, 1_000));
    }

    #[test]
    fn less_than_a_request_is_one_in_a_longer_window() {
        let log = Algorithm::SlidingLog;
        let quarter = Share::of_processes(4);
        assert_eq!(shared(quarter, (3, 1_000), log, 1), (1, 1_334));
        assert_eq!(shared(quarter, (1, 1_000), log, 1), (1, 4_000));
        assert_eq!(shared(quarter, (8, 1_000), log, 3), (3, 1_500));
        // A quota that admits no request still admits none.
        assert_eq!(shared(quarter, (0, 1_000), log, 1), (0, 1_000));
        assert_eq!(shared(quarter, (8, 1_000), log, 9), (2, 1_000));
        // A window of forty years is too long.
        let longest = 3650 * 24 * 60 * 60 * 1_000;
        assert_eq!(shared(quarter, (1, longest), log, 1), (0, longest));
    }

    #[test]
    fn a_burst_is_shared_and_the_rate_kept() {
        let quarter = Share::of_processes(4);
        let quota = Quota::per_second(2).with_burst(20).expect("valid");
        let shared = quarter.quota(&quota, Algorithm::Gcra, 1);
        assert_eq!(
            (shared.max(), shared.window_micros(), shared.burst()),
            (1, 2_000_000, 5)
        );
        let small = Quota::per_second(40).with_burst(2).expect("valid");
        let shared = quarter.quota(&small, Algorithm::Gcra, 1);
        assert_eq!(
            (shared.max(), shared.window_micros(), shared.burst()),
            (10, 1_000_000, 1)
        );
    }

    #[test]
    fn the_rate_is_never_above_the_shares() {
        for max in 1..=40_u64 {
            for cost in 1..=max {
                for number in 1..=50 {
                    for algorithm in Algorithm::ALL {
                        let share = Share::of_processes(number);
                        let (units, millis) = shared(share, (max, 997), algorithm, cost);
                        assert!(units * 997 * u64::from(number) <= max * millis);
                        assert!(units >= cost, "a request fits");
                    }
                }
            }
        }
    }

    #[test]
    fn shares_that_cannot_be() {
        assert_eq!(Share::checked(0, 3), None);
        assert_eq!(Share::checked(4, 3), None);
        assert_eq!(Share::checked(0, 0), None);
        assert_eq!(Share::checked(2, 4), Some(Share::of_processes(2)));
    }
}
