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

    pub(crate) const fn is_whole(self) -> bool {
        self.numerator == self.denominator
    }

    pub(crate) fn times(self, units: u64) -> u64 {
        let part = u128::from(units) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).expect("no more than the whole")
    }

    /// The same, and at least one where there is any.
    pub(crate) fn at_least_one_of(self, units: u64) -> u64 {
        self.times(units).max(units.min(1))
    }

    /// What it admits of a quota in the quota's own window: its part, and at least this cost, so
    /// that a request above the part is admitted where nothing else counts. No max, cost or plan
    /// changes the window, so all of them are counted together.
    ///
    /// A bucket gets the share's rate, which a longer window says exactly, and a part of the burst.
    pub(crate) fn part(self, quota: &Quota, algorithm: Algorithm, cost: u64) -> Quota {
        let least = match cost <= algorithm.limit(quota) {
            true => cost.max(1),
            false => 1,
        };
        let max = quota.max();
        if algorithm.drains_evenly() {
            let (burst, whole) = (self.times(quota.burst()).max(least), self.whole(quota));
            return Quota::from_parts(max, whole.window_micros(), burst);
        }
        let part = self.times(max).max(least.min(max));
        Quota::from_micros(part, quota.window_micros())
    }

    /// The whole quota in the window in which its rate admits that much, or in the longest one.
    pub(crate) fn whole(self, quota: &Quota) -> Quota {
        let window = u128::from(quota.window_micros()) * u128::from(self.denominator);
        let longer = window.div_ceil(u128::from(self.numerator));
        let longer = longer.min(Quota::MAX_WINDOW.as_micros());
        Quota::from_micros(quota.max(), u64::try_from(longer).expect("a window"))
    }
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

    /// The maximum and the window in milliseconds of its part, and of the whole.
    fn shared(share: Share, quota: (u64, u64), algorithm: Algorithm, cost: u64) -> [(u64, u64); 2] {
        let window = Duration::from_millis(quota.1);
        let quota = Quota::new(window, quota.0).expect("valid");
        let shared = [share.part(&quota, algorithm, cost), share.whole(&quota)];
        shared.map(|it| (it.max(), it.window_micros() / 1_000))
    }

    #[test]
    fn a_part_in_the_window_and_the_whole_in_a_longer_one() {
        let log = Algorithm::SlidingLog;
        let quarter = Share::of_processes(4);
        let day = 24 * 60 * 60 * 1_000;
        for (share, quota, cost, part, whole) in [
            (quarter, (100, 1_000), 1, 25, (100, 4_000)),
            (quarter, (7, 1_000), 1, 1, (7, 4_000)),
            (Share::new(1, 1), (7, 1_000), 1, 7, (7, 1_000)),
            (Share::new(2, 3), (7, 1_000), 1, 4, (7, 1_500)),
            // Less than a request is one request.
            (quarter, (3, 1_000), 1, 1, (3, 4_000)),
            (quarter, (3, 1_000), 0, 1, (3, 4_000)),
            (quarter, (8, 1_000), 3, 3, (8, 4_000)),
            (quarter, (8, 1_000), 8, 8, (8, 4_000)),
            // A request that the quota never admits is none.
            (quarter, (8, 1_000), 9, 2, (8, 4_000)),
            (quarter, (0, 1_000), 1, 0, (0, 4_000)),
            // A window of more than ten years is too long.
            (quarter, (1, 3_650 * day), 1, 1, (1, 3_652 * day + day / 2)),
        ] {
            let window = quota.1;
            let expected = [(part, window), whole];
            assert_eq!(
                shared(share, quota, log, cost),
                expected,
                "{quota:?} {cost}"
            );
        }
    }

    #[test]
    fn a_burst_is_shared_and_the_rate_kept() {
        let quarter = Share::of_processes(4);
        for (quota, burst, expected) in [
            (Quota::per_second(2), 20, (2, 4_000_000, 5)),
            (Quota::per_second(40), 2, (40, 4_000_000, 1)),
            (Quota::per_second(7), 7, (7, 4_000_000, 1)),
        ] {
            let quota = quota.with_burst(burst).expect("valid");
            let shared = quarter.part(&quota, Algorithm::Gcra, 1);
            let shared = (shared.max(), shared.window_micros(), shared.burst());
            assert_eq!(shared, expected);
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
