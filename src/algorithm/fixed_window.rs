use super::tallies::Tallies;
use super::tally::{Look, MAX_USED, Tally, TallyRefund};
use crate::decision::Decision;
use crate::quota::Quota;

/// The fixed window: the cheapest, and the only one that is not exact.
///
/// A window begins with the first take that is admitted while none runs, and ends one window later; then
/// all units are there again at once.
///
/// **Formula.** A take of `cost` at `now` fits if the units admitted since the window's `start` and `cost` are
/// at most `max` together, or if `start + window <= now`, which begins a window anew.
///
/// **At its edge it admits up to 2x**: `max` units at the very end of one window and `max` at the
/// beginning of the next. Where that matters, take [`SlidingWindow`](super::SlidingWindow), which costs
/// little more.
///
/// **Memory.** A few numbers for each quota. **Cost.** A comparison.
///
/// **Source.** The oldest of all: a counter with an expiry, as in the documentation of Redis's `INCR`.
///
/// With several quotas each has a window of its own. Instants are microseconds since any epoch. Should the
/// clock go back behind a window's start, the window starts anew with what it holds.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Quota;
/// use tidegate::algorithm::FixedWindow;
///
/// let quotas = [Quota::new(2, Duration::from_secs(10))?];
/// let mut window = FixedWindow::default();
/// assert!(window.take(0, &quotas, 1).is_allowed());
/// assert!(window.take(9_000_000, &quotas, 1).is_allowed());
///
/// let denied = window.take(9_000_000, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
/// // The edge: three within a second.
/// assert!(window.take(10_000_000, &quotas, 2).is_allowed());
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct FixedWindow(pub(super) Tallies<FixedTally>);

impl FixedWindow {
    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 only looks, and is always allowed.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(&mut self, now: u64, quotas: &[Quota], cost: u64) -> Decision {
        self.0.take(now, quotas, 1, cost)
    }
}

#[derive(Debug, Clone)]
pub(super) struct FixedTally {
    quota: Quota,
    start: u64,
    units: u64,
}

impl Tally for FixedTally {
    fn new(quota: &Quota, _: u64) -> Self {
        Self {
            quota: quota.without_burst(),
            start: 0,
            units: 0,
        }
    }

    fn is_of(&self, quota: &Quota, _: u64) -> bool {
        self.life() == quota.window_micros()
    }

    fn goes_on(&mut self, quota: &Quota) {
        self.quota = quota.without_burst();
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn limit(quota: &Quota) -> u64 {
        quota.max()
    }

    fn life(&self) -> u64 {
        self.quota.window_micros()
    }

    fn look(&self, now: u64, _: u64) -> Look {
        let used = match self.over_at() <= now {
            true => 0,
            false => self.units,
        };
        Look { used, paces: 0 }
    }

    fn wait(&self, now: u64, _: u64, _: u64) -> u64 {
        self.over_at().saturating_sub(now)
    }

    fn over_at(&self) -> u64 {
        match self.units {
            0 => 0,
            _ => self.start.saturating_add(self.life()),
        }
    }

    fn charge(&mut self, now: u64, look: Look, units: u64) -> u64 {
        if look.used == 0 {
            self.start = now;
        }
        self.units = MAX_USED.min(look.used + units);
        look.used + units - self.units
    }

    fn refund(&mut self, now: u64, refund: &TallyRefund) -> u64 {
        if refund.stamp < self.start {
            return 0;
        }
        let refunded = refund.units.min(self.used(now, now));
        self.units -= refunded;
        refunded
    }

    fn follow_clock_back(&mut self, now: u64, _: u64) {
        self.start = self.start.min(now);
    }
}
