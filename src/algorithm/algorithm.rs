use super::byte_reader::{ByteReader, ByteWriter};
use super::constants::{MODULUS, TEN_YEARS};
use super::count::CountError;
use super::counter::Counter;
use super::counters::Counters;
use super::fixed_window::FixedWindowCounter;
use super::gcra::Bucket;
use super::pace::Pace;
use super::quota_use::QuotaUse;
use super::refunded_ranges::RefundedRanges;
use super::sliding_log::SlidingLog;
use super::sliding_window::SubWindows;
use crate::decision::{Decision, QuotaState, Receipt};
use crate::named::named;
use crate::quota::Quota;

named! {
    /// How a rule's takes are counted.
    ///
    /// | | admits in any window | keeps for a key | a unit is there again | choose it |
    /// |---|---|---|---|---|
    /// | [`SlidingLog`](crate::algorithm::SlidingLog) | at most max | an entry for each millisecond of traffic, at most max | one window after its take | where the limit is a promise: money, contracts, partners' quotas |
    /// | [`SlidingWindow`](crate::algorithm::SlidingWindow) | at most max | at most 66 entries, whatever the rate | up to a 64th of the window later | for large counts: the same promise in constant memory |
    /// | [`Gcra`](crate::algorithm::Gcra) | burst + max; in a span `s` burst + `s * max / window` | a few numbers | evenly, one every window / max | to smooth traffic: what comes after a burst comes evenly |
    /// | [`FixedWindow`](crate::algorithm::FixedWindow) | up to twice max, at an edge | a few numbers | at the end of the window, all together | for the lowest cost, where twice does no harm |
    ///
    /// All of them take costs, check and charge several quotas together, give an exact
    /// retry-after, answer batches, and give back what is refunded. A rule may change its
    /// quotas while it runs: what still counts goes on counting. A rule that changes its
    /// algorithm starts afresh, since a state belongs to the algorithm that wrote it; a change
    /// back finds the old state again while that lives.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Quota};
    /// use tidegate::algorithm::Count;
    ///
    /// let quotas = [Quota::new(Duration::from_secs(10), 100)?];
    /// // Half immediately, half after 4 s: what is there again at 11 s?
    /// let there_again = |algorithm: Algorithm| {
    ///     let mut count = Count::default();
    ///     count.take(algorithm, 0, &quotas, 50);
    ///     count.take(algorithm, 4_000_000, &quotas, 50);
    ///     count.take(algorithm, 11_000_000, &quotas, 0).remaining()
    /// };
    /// assert_eq!(there_again(Algorithm::SlidingLog), 50, "the first half is older than 10 s");
    /// assert_eq!(there_again(Algorithm::SlidingWindow), 50, "the same, in 64 steps");
    /// assert_eq!(there_again(Algorithm::Gcra), 100, "10 drain in a second");
    /// assert_eq!(there_again(Algorithm::FixedWindow), 100, "a new window began at 10 s");
    /// # Ok::<(), tidegate::rule::QuotaError>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    #[non_exhaustive]
    pub enum Algorithm: "Its name in configuration" {
        /// Exact: a log of all takes, [`SlidingLog`](crate::algorithm::SlidingLog). The
        /// default.
        #[default]
        SlidingLog = "sliding-log",
        /// Never above the limit, late by less than a sub-window, in constant memory:
        /// [`SlidingWindow`](crate::algorithm::SlidingWindow).
        SlidingWindow = "sliding-window",
        /// Smooth: a bucket that drains evenly, with a burst apart from the rate,
        /// [`Gcra`](crate::algorithm::Gcra).
        Gcra = "gcra",
        /// The cheapest: a counter that starts anew,
        /// [`FixedWindow`](crate::algorithm::FixedWindow); at an edge it admits up to twice as
        /// much.
        FixedWindow = "fixed-window",
    }
}

impl Algorithm {
    /// The suffix of its keys' names, after the path. No escaped path has a bare `~`.
    pub(crate) const fn key_suffix(self) -> &'static str {
        match self {
            Self::SlidingLog => "",
            Self::SlidingWindow => "~window",
            Self::Gcra => "~gcra",
            Self::FixedWindow => "~fixed",
        }
    }

    /// Its number in the bytes of a [`Count`](super::Count), which is never another algorithm's.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::SlidingLog => 1,
            Self::SlidingWindow => 2,
            Self::Gcra => 3,
            Self::FixedWindow => 4,
        }
    }

    /// Whether units come back one by one, at the quota's rate, and not as charges grow old: such a
    /// quota has a pace, and a burst apart from `max`. Several takes that are charged together put
    /// off the instant at which it is replenished, each by a part of its own, so the script's answer
    /// to them ends with the units that each quota's state holds.
    pub(crate) const fn drains_evenly(self) -> bool {
        match self {
            Self::Gcra => true,
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => false,
        }
    }

    /// Whether it keeps a log, of up to as many entries as the max.
    pub(crate) const fn keeps_log(self) -> bool {
        match self {
            Self::SlidingLog => true,
            Self::SlidingWindow | Self::Gcra | Self::FixedWindow => false,
        }
    }

    /// The most units that may be used together under this quota, and so the largest cost that ever
    /// fits.
    pub(crate) fn limit(self, quota: &Quota) -> u64 {
        match self {
            Self::Gcra => Bucket::limit(quota),
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => quota.max(),
        }
    }

    /// The highest number of used units that a key may have under this quota: the limit, and the
    /// units that it may [owe](crate::Store::owe), which are `owe_at_most` or by default the
    /// quota's max once more. A bucket owes no more than drains in ten years.
    pub(crate) fn limit_with_debt(self, quota: &Quota, owe_at_most: Option<u64>) -> u64 {
        let (limit, owed) = (self.limit(quota), owe_at_most.unwrap_or(quota.max()));
        let owed = match self {
            Self::Gcra => owed.min(Pace::new(quota).drained(TEN_YEARS).0),
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => owed,
        };
        match limit {
            0 => 0,
            _ => limit + owed.min(Quota::MAX_UNITS),
        }
    }

    /// How long a charge under this quota counts at most, in microseconds.
    pub(crate) fn life(self, quota: &Quota) -> u64 {
        match self {
            Self::Gcra => Pace::new(quota).life(quota),
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => quota.window_micros(),
        }
    }

    /// How long the first charge of a key counts, in microseconds.
    pub(crate) fn life_of_first(self, quota: &Quota, cost: u64) -> u64 {
        match self {
            Self::Gcra => Pace::new(quota).time_for(cost).max(1),
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => quota.window_micros(),
        }
    }

    /// The effective window of the field `RateLimit`, in microseconds: how long the units that
    /// remain last at the quota's rate, or until there are more, whichever is longer. For an
    /// untouched quota it is the window; GCRA: the time in which the burst drains.
    ///
    /// States of windows do not tell when the next unit is back, but when all are.
    pub(crate) fn effective_window(self, quota: &Quota, state: &QuotaState) -> u64 {
        let (limit, reset_after) = (self.limit(quota), state.reset_after_micros());
        let remaining = match reset_after {
            0 => limit.max(1),
            _ => state.remaining().min(limit),
        };
        // A max of 0 gives its window.
        let max = u128::from(quota.max().max(1));
        let time = |units: u64| u128::from(units) * u128::from(quota.window_micros());
        let more_after = match self {
            Self::Gcra if remaining > 0 => 0,
            // The units behind the next one drain later.
            Self::Gcra => {
                u128::from(reset_after).saturating_sub(time(limit.saturating_sub(1)) / max)
            }
            Self::SlidingLog | Self::SlidingWindow | Self::FixedWindow => reset_after.into(),
        };
        // Divisions of such numbers take longer than the rest.
        let window = match time(remaining) {
            time if time <= more_after * max => more_after,
            time => match (u64::try_from(time), u64::try_from(max)) {
                (Ok(time), Ok(max)) => time.div_ceil(max).into(),
                _ => time.div_ceil(max),
            },
        };
        u64::try_from(window).unwrap_or(u64::MAX)
    }

    /// Whether it divides a window into sub-windows.
    #[cfg(feature = "config")]
    pub(crate) const fn has_sub_windows(self) -> bool {
        match self {
            Self::SlidingWindow => true,
            Self::SlidingLog | Self::Gcra | Self::FixedWindow => false,
        }
    }
}

/// What its script is asked, and how its answers are read. The scripts give the same answers as the
/// states do.
#[cfg(feature = "redis")]
impl Algorithm {
    /// The numbers that a question has for a quota after its max and its window.
    pub(crate) fn script_numbers(self, quota: &Quota, sub_windows: u16) -> Vec<u64> {
        match self {
            Self::SlidingLog | Self::FixedWindow => Vec::new(),
            Self::SlidingWindow => vec![sub_windows.into()],
            Self::Gcra => {
                let pace = Pace::new(quota);
                vec![quota.burst(), pace.life(quota), pace.units, pace.micros]
            }
        }
    }

    /// By how many microseconds the last `later` of `held` units put off the instant at which the
    /// quota is replenished: their bucket takes longer to drain.
    pub(crate) fn delay(self, quota: &Quota, held: u64, later: u64) -> u64 {
        if !self.drains_evenly() {
            return 0;
        }
        let pace = Pace::new(quota);
        let before = pace.time_for(held.saturating_sub(later));
        pace.time_for(held).saturating_sub(before)
    }
}

/// The state of an algorithm under one key. Instants are microseconds.
pub(super) trait AlgorithmState {
    /// Finds how much of each quota is used.
    fn load(&self, now: u64, quotas: &[Quota], uses: &mut [QuotaUse]);

    /// Forgets what was charged, and gives nothing back of takes that were charged at `now` or
    /// before. Returns whether anything of it still counted.
    fn reset(&mut self, now: u64) -> bool;

    /// Gives back up to `units` of the take with this receipt under these quotas, as far as they
    /// still count, and returns how many.
    fn refund(&mut self, now: u64, quotas: &[Quota], receipt: &Receipt, units: u64) -> u64;

    /// The instant from which on nothing counts. After a reset, a new state gives nothing back of
    /// earlier takes from then on.
    fn forgotten_at(&self) -> u64;

    /// Writes all that later answers depend on, but for what was given back.
    fn write(&self, writer: &mut ByteWriter);

    /// Becomes what [`write`](Self::write) has written. Other bytes are an error, or a state that
    /// answers without a panic.
    fn read(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CountError>;

    /// What was given back, where that is kept apart from what was charged, and the number of the
    /// first unit that matters of it.
    fn refunded(&self) -> Option<(&RefundedRanges, u64)>;

    /// Reads the ranges that were [given back](Self::refunded), after the rest.
    fn read_refunded(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CountError>;
}

/// The state of one of the algorithms.
#[derive(Debug, Clone)]
pub(super) enum AnyState {
    SlidingLog(SlidingLog),
    SlidingWindow(Counters<SubWindows>),
    Gcra(Counters<Bucket>),
    FixedWindow(Counters<FixedWindowCounter>),
}

impl AnyState {
    /// A state in which nothing is charged.
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(Counters::default()),
            Algorithm::Gcra => Self::Gcra(Counters::default()),
            Algorithm::FixedWindow => Self::FixedWindow(Counters::default()),
        }
    }

    /// The state of the algorithm with this number.
    pub(super) fn read(number: u8, reader: &mut ByteReader<'_>) -> Result<Self, CountError> {
        let mut algorithms = Algorithm::ALL.into_iter();
        let algorithm = algorithms.find(|algorithm| algorithm.number() == number);
        let mut any = Self::new(algorithm.ok_or(CountError::UnknownAlgorithm(number))?);
        any.state_mut().read(reader)?;
        Ok(any)
    }

    /// The algorithm whose state it is.
    pub(super) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::SlidingLog(_) => Algorithm::SlidingLog,
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::Gcra(_) => Algorithm::Gcra,
            Self::FixedWindow(_) => Algorithm::FixedWindow,
        }
    }

    /// By its own algorithm, and without a virtual call.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        cost: u64,
    ) -> Decision {
        match self {
            Self::SlidingLog(state) => state.take(now, quotas, cost),
            Self::SlidingWindow(state) => state.decide(now, quotas, sub_windows, cost),
            Self::Gcra(state) => state.decide(now, quotas, sub_windows, cost),
            Self::FixedWindow(state) => state.decide(now, quotas, sub_windows, cost),
        }
    }

    /// Charges units above the limits.
    pub(super) fn owe(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        units: u64,
        limit_of: &dyn Fn(&Quota) -> u64,
    ) -> u64 {
        match self {
            Self::SlidingLog(state) => state.owe(now, quotas, units, limit_of),
            Self::SlidingWindow(state) => state.owe(now, quotas, sub_windows, units, limit_of),
            Self::Gcra(state) => state.owe(now, quotas, sub_windows, units, limit_of),
            Self::FixedWindow(state) => state.owe(now, quotas, sub_windows, units, limit_of),
        }
    }

    pub(super) fn state(&self) -> &dyn AlgorithmState {
        match self {
            Self::SlidingLog(state) => state,
            Self::SlidingWindow(state) => state,
            Self::Gcra(state) => state,
            Self::FixedWindow(state) => state,
        }
    }

    pub(super) fn state_mut(&mut self) -> &mut dyn AlgorithmState {
        match self {
            Self::SlidingLog(state) => state,
            Self::SlidingWindow(state) => state,
            Self::Gcra(state) => state,
            Self::FixedWindow(state) => state,
        }
    }
}

impl Default for AnyState {
    fn default() -> Self {
        Self::new(Algorithm::default())
    }
}

/// Running totals and serial numbers count modulo 2^52.
pub(crate) const MODULUS_MASK: u64 = MODULUS - 1;

const _: () = assert!(TEN_YEARS as u128 == Quota::MAX_WINDOW.as_micros());

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_algorithms_share_a_name() {
        let names = HashSet::from(Algorithm::ALL.map(Algorithm::name));
        let suffixes = HashSet::from(Algorithm::ALL.map(Algorithm::key_suffix));
        let numbers = HashSet::from(Algorithm::ALL.map(Algorithm::number));
        assert_eq!(numbers.len(), Algorithm::ALL.len());
        assert_eq!(names.len(), Algorithm::ALL.len());
        assert_eq!(suffixes.len(), Algorithm::ALL.len());
    }
}
