use super::algorithm_definition::AlgorithmDefinition;
use super::lease_end::LeaseEnd;
use super::table::with_algorithms;
use crate::quota::Quota;

macro_rules! define_algorithm {
    ($($(#[$attribute:meta])* $name:ident in $module:ident,)+) => {
        $(use super::$module::$name;)+

        /// How a rule's takes are counted.
        ///
        /// | | admits in any window | keeps for a key | a unit is there again | choose it |
        /// |---|---|---|---|---|
        /// | [`SlidingLog`](crate::algorithm::SlidingLog) | at most max | an entry for each millisecond of traffic, at most max | one window after its take | where the limit is a promise: money, contracts, partners' quotas |
        /// | [`SlidingWindow`](crate::algorithm::SlidingWindow) | at most max | at most 66 entries, whatever the rate | up to a 64th of the window later | for large counts: the same promise in constant memory |
        /// | [`Gcra`](crate::algorithm::Gcra) | burst + max; in a span `s` burst + `s * max / window` | a few numbers | evenly, one every window / max | to smooth traffic: what comes after a burst comes evenly |
        /// | [`FixedWindow`](crate::algorithm::FixedWindow) | up to twice max, at an edge | a few numbers | at the end of the window, all at once | for the lowest cost, where twice does no harm |
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
        /// let quotas = [Quota::new(100, Duration::from_secs(10))?];
        /// // Half at once, half after 4 s: what is there again at 11 s?
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
        pub enum Algorithm {
            $($(#[$attribute])* $name,)+
        }

        impl Algorithm {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];

            /// Its name in configuration: `sliding-log`, `sliding-window`, `gcra` or
            /// `fixed-window`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $name::NAME,)+ }
            }

            /// What the names of its keys end with, behind the path.
            pub(crate) const fn key_suffix(self) -> &'static str {
                match self { $(Self::$name => $name::KEY_SUFFIX,)+ }
            }

            /// Its number in the bytes of a count.
            pub(super) const fn number(self) -> u8 {
                match self { $(Self::$name => $name::NUMBER,)+ }
            }

            /// Whether its quotas have a burst apart from `max`.
            pub(crate) const fn has_burst(self) -> bool {
                match self { $(Self::$name => $name::HAS_BURST,)+ }
            }

            /// Until when units that were taken ahead may be used; `None` if none can be.
            pub(crate) const fn lease_end(self) -> Option<LeaseEnd> {
                match self { $(Self::$name => $name::LEASE_END,)+ }
            }

            /// The most units that may be used at once under this quota, and so the largest cost
            /// that ever fits.
            pub(crate) fn limit(self, quota: &Quota) -> u64 {
                match self { $(Self::$name => $name::limit(quota),)+ }
            }

            /// How long a charge under this quota counts at most, in microseconds.
            pub(crate) fn life(self, quota: &Quota) -> u64 {
                match self { $(Self::$name => $name::life(quota),)+ }
            }
        }

        #[cfg(feature = "config")]
        impl Algorithm {
            /// Whether it divides a window into sub-windows.
            pub(crate) const fn has_sub_windows(self) -> bool {
                match self { $(Self::$name => $name::HAS_SUB_WINDOWS,)+ }
            }
        }

        /// What its script is asked, and how its answers are read.
        #[cfg(feature = "redis")]
        impl Algorithm {
            /// The text of its script, with its includes yet to be put in.
            pub(crate) const fn script(self) -> &'static str {
                match self { $(Self::$name => $name::SCRIPT,)+ }
            }

            /// The text of the script that gives back, with its includes yet to be put in.
            pub(crate) const fn refund_script(self) -> &'static str {
                match self { $(Self::$name => $name::REFUND_SCRIPT,)+ }
            }

            /// What a question tells the script about a quota, behind its max and its window.
            pub(crate) fn script_numbers(self, quota: &Quota, sub_windows: u16) -> Vec<u64> {
                match self { $(Self::$name => $name::script_numbers(quota, sub_windows),)+ }
            }

            /// Whether the answer to several takes says how many units each quota's state holds.
            pub(crate) const fn tells_held(self) -> bool {
                match self { $(Self::$name => $name::TELLS_HELD,)+ }
            }

            /// By how many microseconds the last `later` of `held` units put off the instant at
            /// which the quota is whole again.
            pub(crate) fn delay(self, quota: &Quota, held: u64, later: u64) -> u64 {
                match self { $(Self::$name => $name::delay(quota, held, later),)+ }
            }
        }
    };
}

with_algorithms!(define_algorithm);

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
