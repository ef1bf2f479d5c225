use super::byte_reader::{ByteReader, ByteWriter, check};
use super::constants::MAX_STORED;
use super::count::CountError;
use super::counter::{Counter, CounterRefund, Level};
use super::counters::Counters;
use crate::decision::Decision;
use crate::quota::Quota;

/// The fixed window: the cheapest, and the only one that is not exact.
///
/// A window begins with the first take that is admitted while no window runs, and ends one window
/// later. Then all units are there again together.
///
/// **Formula.** A take of `cost` at `now` fits if the units admitted since the window's `start` and
/// `cost` are at most `max` together, or if `start + window <= now`, which begins a window anew.
///
/// **At its edge it admits up to 2x**: `max` units at the very end of one window and `max` at the
/// beginning of the next. Where that matters, take [`SlidingWindow`](super::SlidingWindow), which
/// costs little more.
///
/// **Memory.** A few numbers for each window. **Cost.** A comparison.
///
/// **Source.** The oldest of all: a counter with an expiry, as in the documentation of Redis's
/// `INCR`.
///
/// With several quotas each window has a counter of its own. Instants are microseconds since any
/// epoch. Should the clock go back behind a window's start, the window starts anew with what it
/// holds.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Quota;
/// use tidegate::algorithm::FixedWindow;
///
/// let quotas = [Quota::new(Duration::from_secs(10), 2)?];
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
pub struct FixedWindow(Counters<FixedWindowCounter>);

impl FixedWindow {
    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 changes nothing, and fits unless more than a quota's max is used or
    /// that max is 0.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(&mut self, now: u64, quotas: &[Quota], cost: u64) -> Decision {
        self.0.decide(now, quotas, 1, cost)
    }
}

#[derive(Debug, Clone)]
pub(super) struct FixedWindowCounter {
    quota: Quota,
    /// When the window began.
    start: u64,
    /// Units charged since then.
    units: u64,
}

impl Counter for FixedWindowCounter {
    fn new(quota: &Quota, _: u16) -> Self {
        Self {
            quota: quota.without_burst(),
            start: 0,
            units: 0,
        }
    }

    fn serve(&mut self, quota: &Quota, _: u16, _: u64) -> bool {
        self.quota = quota.without_burst();
        false
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn level(&self, now: u64, _: u64) -> Level {
        let used = match self.ends_at() <= now {
            true => 0,
            false => self.units,
        };
        Level { used, paces: 0 }
    }

    fn wait(&self, now: u64, _: u64, _: u64) -> u64 {
        self.ends_at().saturating_sub(now)
    }

    fn ends_at(&self) -> u64 {
        match self.units {
            0 => 0,
            _ => self.start.saturating_add(self.quota.window_micros()),
        }
    }

    fn charge(&mut self, now: u64, level: Level, units: u64) {
        if level.used == 0 {
            self.start = now;
        }
        self.units = level.used + units;
    }

    fn refund(&mut self, now: u64, refund: &CounterRefund) -> u64 {
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

    fn write(&self, writer: &mut ByteWriter, last_charge: u64) {
        writer.quota(&self.quota);
        writer.number_near(self.start, last_charge);
        writer.number(self.units);
    }

    fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError> {
        let quota = reader.quota()?;
        let start = reader.number_near(last_charge)?;
        check(start <= last_charge, "the beginning of a window")?;
        let units = reader.number_up_to(MAX_STORED, "a window's units")?;
        Ok(Self {
            quota,
            start,
            units,
        })
    }
}
