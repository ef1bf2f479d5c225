use super::algorithm::Algorithm;
use super::lease_end::LeaseEnd;
use super::sliding_window::SlidingWindow;

/// An algorithm with its setting.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Algorithm, Quota};
/// use tidegate::algorithm::{Count, Counting};
///
/// let quotas = [Quota::new(2, Duration::from_secs(10))?];
/// // Sub-windows of 5 s each, instead of a 64th of the window.
/// let coarse = Counting::from(Algorithm::SlidingWindow).sub_windows(2);
/// let mut count = Count::default();
/// count.take(coarse, 0, &quotas, 1);
/// count.take(coarse, 4_000_000, &quotas, 1);
/// let denied = count.take(coarse, 4_000_000, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(10)), "both leave together");
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counting {
    algorithm: Algorithm,
    sub_windows: u16,
    /// In milliseconds; 0 without leases, and where leases end with the window.
    lease: u32,
}

impl Counting {
    /// For [`Algorithm::SlidingWindow`]: how many sub-windows a window has, from 1 to
    /// [`MAX_SUB_WINDOWS`](SlidingWindow::MAX_SUB_WINDOWS); other numbers become the nearest of
    /// these. Default: 64.
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

    /// How many sub-windows a window has, at least 1.
    pub(crate) const fn number_of_sub_windows(&self) -> u16 {
        self.sub_windows
    }

    /// The same for a rule that lets processes take units ahead for so many milliseconds.
    #[must_use]
    pub(crate) const fn with_lease(mut self, millis: u32) -> Self {
        self.lease = match self.algorithm.lease_end() {
            Some(LeaseEnd::AfterItsTime) => millis,
            Some(LeaseEnd::WithTheWindow) | None => 0,
        };
        self
    }

    /// By how many microseconds a unit counts longer than its window, because it may be used later
    /// than it was charged.
    pub(crate) fn lease_micros(&self) -> u64 {
        u64::from(self.lease) * 1_000
    }
}

impl From<Algorithm> for Counting {
    fn from(algorithm: Algorithm) -> Self {
        let sub_windows = SlidingWindow::DEFAULT_SUB_WINDOWS;
        Self {
            algorithm,
            sub_windows,
            lease: 0,
        }
    }
}
