//! Which quotas a take is charged to beside its own, where a rule has several sets of quotas.

use super::algorithm::Algorithm;
use super::gcra::{Pace, capacity};
use crate::quota::{MAX_QUOTAS, Quota};

impl Algorithm {
    /// The quotas that a take under `own` quotas is charged to along with these, so that it counts
    /// under each quota of `all`, too. They [only count](Quota::only_counts).
    pub(crate) fn shared_counters(self, own: &[Quota], all: &[Quota]) -> Vec<Quota> {
        let along = self.distinct(own, all);
        match own.len() + along.len() <= MAX_QUOTAS {
            true => along,
            false => self.bound(own, all),
        }
    }

    /// One quota at most that counts no less than any quota of `all` would. A quota of these that
    /// is asked about for the first time begins with what counts there.
    pub(crate) fn bound(self, own: &[Quota], all: &[Quota]) -> Vec<Quota> {
        let bound = match self {
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => longest(all),
            Self::Gcra => slowest(all),
        };
        let mut along = self.distinct(own, bound.as_slice());
        along.iter_mut().for_each(|quota| *quota = quota.bounding());
        along
    }

    /// Quotas that have a state of their own beside those of `own` quotas, one for each state.
    fn distinct(self, own: &[Quota], all: &[Quota]) -> Vec<Quota> {
        if self == Self::SlidingLog {
            return log_horizon(own, all).into_iter().collect();
        }
        let is_same = |a: &Quota, b: &Quota| {
            let is_same_bucket = || a.max() == b.max() && capacity(a) == capacity(b);
            a.window_micros() == b.window_micros() && (self != Self::Gcra || is_same_bucket())
        };
        let mut along: Vec<Quota> = Vec::new();
        // No take is ever charged under a quota of no units.
        for quota in all.iter().filter(|quota| quota.max() > 0) {
            // The bucket that counts for all says which counter may have lost units, also where a
            // quota of its own has that bucket, as of windows of ten years.
            let says_bound = self == Self::Gcra && quota.bounds();
            if !says_bound && own.iter().any(|own| is_same(own, quota)) {
                continue;
            }
            let quota = match quota.bounds() {
                true => *quota,
                false => quota.counting_only(),
            };
            match along.iter().position(|known| is_same(known, &quota)) {
                // Already more than can be charged: one will stand for all.
                None if along.len() > MAX_QUOTAS => break,
                None => along.push(quota),
                Some(at) if along[at].max() < quota.max() => along[at] = quota,
                Some(_) => {}
            }
        }
        along
    }
}

/// A log needs its entries for the longest window, and, where windows become shorter, as many units
/// as any quota admits.
fn log_horizon(own: &[Quota], all: &[Quota]) -> Option<Quota> {
    let window = |quotas: &[Quota]| quotas.iter().map(Quota::window_micros).max();
    let max = |quotas: &[Quota]| quotas.iter().map(Quota::max).max();
    let is_beyond = window(all) > window(own) || max(all) > max(own);
    let horizon = || Some(Quota::of_micros(max(all)?, window(all)?).counting_only());
    is_beyond.then(horizon).flatten()
}

/// The longest window, with the largest max.
fn longest(all: &[Quota]) -> Option<Quota> {
    let with_units = || all.iter().filter(|quota| quota.max() > 0);
    let window = with_units().map(Quota::window_micros).max()?;
    let max = with_units().map(Quota::max).max()?;
    Some(Quota::of_micros(max, window))
}

/// A bucket that drains as slowly as the slowest one, for twice as long as any. While it is less
/// than half full, none of `all` that was charged the same holds more.
///
/// Only one that is overfull loses units. It is more than half full then for as long as any bucket
/// takes to drain, so that what was lost would have drained from all others.
fn slowest(all: &[Quota]) -> Option<Quota> {
    let with_units = || all.iter().filter(|quota| quota.max() > 0);
    let rate = |a: &&Quota, b: &&Quota| {
        let cross = |a: &Quota, b: &Quota| u128::from(a.max()) * u128::from(b.window_micros());
        cross(a, b).cmp(&cross(b, a))
    };
    let slowest = with_units().min_by(rate)?;
    let lives = with_units().map(|quota| match quota.bounds() {
        true => half_life(quota),
        false => Pace::of(quota).life(quota),
    });
    let pace = Pace::of(slowest);
    let half = pace.touched(lives.max()?).max(1);
    let most = Quota::MAX_UNITS.min(pace.drained(Quota::MAX_WINDOW.as_micros() as u64).0);
    let slowest = slowest.without_burst();
    slowest.with_burst((2 * half).min(most.max(1))).ok()
}

/// How long half of such a bucket drains, rounded down. Rounded up, a part of one more unit would
/// drain meanwhile, and the bucket of this one bucket would be larger, without an end.
fn half_life(bound: &Quota) -> u64 {
    let (pace, half) = (Pace::of(bound), bound.burst().div_ceil(2));
    let life = pace.time_for(half);
    life - u64::from(pace.touched(life) > half)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn quota(max: u64, seconds: u64) -> Quota {
        Quota::new(Duration::from_secs(seconds), max).expect("valid")
    }

    /// Max, window in seconds, and burst of what is charged along.
    fn along(found: Vec<Quota>) -> Vec<(u64, u64, u64)> {
        assert!(found.iter().all(Quota::only_counts));
        let parts = |quota: &Quota| (quota.max(), quota.window().as_secs(), quota.burst());
        found.iter().map(parts).collect()
    }

    #[test]
    fn each_state_is_charged_once() {
        let all = [
            quota(5, 60),
            quota(100, 60),
            quota(1_000, 3_600),
            quota(0, 7),
        ];
        let of = |algorithm: Algorithm, own| along(algorithm.shared_counters(&[own], &all));
        let (log, gcra) = (Algorithm::SlidingLog, Algorithm::Gcra);
        assert_eq!(of(log, all[0]), [(1_000, 3_600, 1_000)]);
        assert_eq!(of(log, all[2]), []);
        for windows in [Algorithm::SlidingWindow, Algorithm::FixedWindow] {
            assert_eq!(of(windows, all[0]), [(1_000, 3_600, 1_000)]);
            assert_eq!(of(windows, all[2]), [(100, 60, 100)]);
        }
        assert_eq!(of(gcra, all[0]), [(100, 60, 100), (1_000, 3_600, 1_000)]);
    }

    #[test]
    fn of_too_many_one_stands_for_all() {
        let all: Vec<_> = (1..=40)
            .map(|number| quota(2 * number + 1, number))
            .collect();
        let of = |algorithm: Algorithm| along(algorithm.shared_counters(&all[..1], &all));
        assert_eq!(of(Algorithm::SlidingWindow), [(81, 40, 81)]);
        assert_eq!(of(Algorithm::Gcra), [(81, 40, 162)]);
        let fast = [quota(1_000_000, 1), quota(1, 86_400)];
        let bound = Algorithm::Gcra.bound(&fast[..1], &fast);
        assert_eq!(Algorithm::Gcra.bound(&[], &bound), bound, "it stays");
        assert_eq!(along(bound), [(1, 86_400, 2)]);
    }

    /// Whatever remainder its pace leaves: another one would count anew.
    #[test]
    fn one_that_stands_for_all_stays() {
        for (max, seconds, burst) in [(21, 97, 1_239), (1, 2, 1), (997, 7, 13), (3, 86_400, 5)] {
            let slow = quota(max, seconds).with_burst(burst).expect("valid");
            let bound = Algorithm::Gcra.bound(&[], &[slow, quota(5, 1)]);
            assert_eq!(Algorithm::Gcra.bound(&[], &bound), bound, "{slow:?}");
            let again = [bound.clone(), vec![quota(5, 1), slow]].concat();
            assert_eq!(Algorithm::Gcra.bound(&[], &again), bound, "{slow:?}");
        }
    }

    /// A new counter has to know that it may have lost units.
    #[test]
    fn one_that_stands_for_all_is_told_beside_its_like() {
        let slowest = quota(2, Quota::MAX_WINDOW.as_secs());
        let bound = Algorithm::Gcra.bound(&[], &[slowest]);
        assert_eq!(Algorithm::Gcra.shared_counters(&[slowest], &bound), bound);
        let window = Algorithm::FixedWindow.bound(&[], &[slowest]);
        assert_eq!(
            Algorithm::FixedWindow.shared_counters(&[slowest], &window),
            []
        );
    }
}
