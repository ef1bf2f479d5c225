use super::SlidingWindow;
use super::gcra::Pace;
use crate::quota::Quota;

/// How a rule's takes are counted.
///
/// | | admits in any window | keeps for a key | a unit is there again | choose it |
/// |---|---|---|---|---|
/// | [`SlidingLog`](crate::algorithm::SlidingLog) | at most max | an entry for each millisecond of traffic, at most max | one window after its take | where the limit is a promise: money, contracts, partners' quotas |
/// | [`SlidingWindow`](crate::algorithm::SlidingWindow) | at most max | at most 66 entries, whatever the rate | up to a 64th of the window later | for large counts: the same promise in constant memory |
/// | [`Gcra`](crate::algorithm::Gcra) | burst + max; in a span `s` burst + `s * max / window` | a few numbers | evenly, one every window / max | to smooth traffic: what comes after a burst comes evenly |
/// | [`FixedWindow`](crate::algorithm::FixedWindow) | up to twice max, at an edge | a few numbers | at the end of the window, all at once | for the lowest cost, where twice does no harm |
///
/// All of them take costs, check and charge several quotas together, give an exact retry-after, answer batches,
/// and give back what is refunded. A rule may change its quotas while it runs: what still counts goes on
/// counting. A rule that changes its algorithm starts afresh, since a state belongs to the algorithm that
/// wrote it; a change back finds the old state again while that lives.
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
/// assert_eq!(there_again(Algorithm::SlidingLog), 50, "what is older than 10 s");
/// assert_eq!(there_again(Algorithm::SlidingWindow), 50, "the same, by sixty-fourths of it");
/// assert_eq!(there_again(Algorithm::Gcra), 100, "60 counted at 4 s, and 10 drain in a second");
/// assert_eq!(there_again(Algorithm::FixedWindow), 100, "a new window began at 10 s");
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// Exact: a log of all takes, [`SlidingLog`](crate::algorithm::SlidingLog). The default.
    #[default]
    SlidingLog,
    /// Never above the limit, late by less than a sub-window, in constant memory: [`SlidingWindow`].
    SlidingWindow,
    /// Smooth: a bucket that drains evenly, with a burst apart from the rate, [`Gcra`](crate::algorithm::Gcra).
    Gcra,
    /// The cheapest: a counter that starts anew, [`FixedWindow`](crate::algorithm::FixedWindow); at an edge it admits up
    /// to twice as much.
    FixedWindow,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::Gcra,
        Self::FixedWindow,
    ];

    /// Its name in configuration: `sliding-log`, `sliding-window`, `gcra` or `fixed-window`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlidingLog => "sliding-log",
            Self::SlidingWindow => "sliding-window",
            Self::Gcra => "gcra",
            Self::FixedWindow => "fixed-window",
        }
    }

    /// What the names of its counts end with behind the path. No escaped path has a bare `~`.
    pub(crate) const fn name_suffix(self) -> &'static str {
        match self {
            Self::SlidingLog => "",
            Self::SlidingWindow => "~window",
            Self::Gcra => "~gcra",
            Self::FixedWindow => "~fixed",
        }
    }

    /// The most units that may be used at once under this quota, and so the largest cost that ever fits.
    pub(crate) const fn limit(self, quota: &Quota) -> u64 {
        match self {
            Self::Gcra if quota.max() > 0 => quota.burst(),
            _ => quota.max(),
        }
    }

    /// How long a charge under this quota counts at most, in microseconds.
    pub(crate) fn life(self, quota: &Quota) -> u64 {
        match self {
            Self::Gcra => Pace::of(quota).life(quota),
            _ => quota.window_micros(),
        }
    }
}

/// An algorithm with its setting.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Algorithm, Quota};
/// use tidegate::algorithm::{Count, Counting};
///
/// let quotas = [Quota::new(2, Duration::from_secs(10))?];
/// // Of 5 s each, instead of a 64th of the window.
/// let coarse = Counting::from(Algorithm::SlidingWindow).sub_windows(2);
/// let mut count = Count::default();
/// count.take(coarse, 0, &quotas, 1);
/// count.take(coarse, 4_000_000, &quotas, 1);
/// let denied = count.take(coarse, 4_000_000, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(10)), "both as of the later one");
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counting {
    pub(crate) algorithm: Algorithm,
    pub(crate) sub_windows: u16,
}

impl Counting {
    /// For [`Algorithm::SlidingWindow`]: how many sub-windows a window has, from 1 to
    /// [`MAX_SUB_WINDOWS`](SlidingWindow::MAX_SUB_WINDOWS); other numbers become the nearest of these.
    /// Default: 64.
    #[must_use]
    pub fn sub_windows(mut self, sub_windows: u16) -> Self {
        self.sub_windows = sub_windows.clamp(1, SlidingWindow::MAX_SUB_WINDOWS);
        self
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl From<Algorithm> for Counting {
    fn from(algorithm: Algorithm) -> Self {
        let sub_windows = SlidingWindow::DEFAULT_SUB_WINDOWS;
        Self {
            algorithm,
            sub_windows,
        }
    }
}
