use super::byte_reader::{ByteReader, ByteWriter, check};
use super::count::CountError;
use super::counter::{Counter, CounterRefund, Level};
use super::counters::Counters;
use super::entries::Entries;
use crate::decision::Decision;
use crate::quota::Quota;

/// The sliding window in sub-windows: never above the limit, in constant memory whatever the rate.
///
/// It is a log whose entries are sub-windows, `window / sub_windows` long, instead of takes. An
/// entry counts in full until its last take has left the window. So it never admits more than the
/// exact log, and a unit comes back late by less than a sub-window.
///
/// **Formula.** A take of `cost` at `now` fits if the units of all sub-windows whose last take is
/// inside of `(now - window, now]` and `cost` are at most `max` together. Any window `(t - window,
/// t]` holds at most `max` units.
///
/// **Memory.** At most `sub_windows + 2` entries of 16 bytes for each quota. **Cost.** A look at
/// the oldest entry; a binary search once it has left.
///
/// **Source.** The bucketed sliding window of many monitoring systems, without the usual
/// interpolation of the oldest bucket, which is what lets those admit too much.
///
/// With several quotas each has sub-windows of its own. Instants are microseconds since any epoch.
/// Should the clock go back, what was admitted in its future counts as admitted now.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Quota;
/// use tidegate::algorithm::SlidingWindow;
///
/// let quotas = [Quota::new(Duration::from_secs(10), 2)?];
/// let mut window = SlidingWindow::default();
/// // Of 2.5 s each: these two are in one sub-window, and leave together.
/// let sub_windows = 4;
/// assert!(window.take(0, &quotas, sub_windows, 1).is_allowed());
/// assert!(window.take(2_000_000, &quotas, sub_windows, 1).is_allowed());
///
/// let denied = window.take(4_000_000, &quotas, sub_windows, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(8)));
/// assert!(window.take(12_000_000, &quotas, sub_windows, 2).is_allowed());
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct SlidingWindow(Counters<SubWindows>);

impl SlidingWindow {
    /// How many sub-windows a window has unless told otherwise.
    pub const DEFAULT_SUB_WINDOWS: u16 = 64;

    /// The most sub-windows that a window may have.
    pub const MAX_SUB_WINDOWS: u16 = 1_024;

    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 changes nothing, and fits unless more than a quota's max is used or
    /// that max is 0.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(&mut self, now: u64, quotas: &[Quota], sub_windows: u16, cost: u64) -> Decision {
        self.0.decide(now, quotas, sub_windows, cost)
    }
}

#[derive(Debug, Clone)]
pub(super) struct SubWindows {
    quota: Quota,
    /// One for each sub-window with something in it.
    entries: Entries,
}

impl SubWindows {
    const fn window(&self) -> u64 {
        self.quota.window_micros()
    }
}

/// The length of a sub-window, in microseconds.
fn resolution(quota: &Quota, sub_windows: u16) -> u64 {
    (quota.window_micros() / u64::from(sub_windows.max(1))).max(1)
}

impl Counter for SubWindows {
    fn new(quota: &Quota, sub_windows: u16) -> Self {
        Self {
            quota: quota.without_burst(),
            entries: Entries::new(resolution(quota, sub_windows)),
        }
    }

    fn can_serve(&self, quota: &Quota, sub_windows: u16) -> bool {
        self.window() == quota.window_micros()
            && self.entries.resolution() == resolution(quota, sub_windows)
    }

    /// Entries of other sub-windows stay as they are.
    fn serve(&mut self, quota: &Quota, sub_windows: u16, _: u64) -> bool {
        self.quota = quota.without_burst();
        self.entries.set_resolution(resolution(quota, sub_windows))
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn level(&self, now: u64, _: u64) -> Level {
        let used = self.entries.used(now, self.window());
        Level { used, paces: 0 }
    }

    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64 {
        let behind = |total| self.entries.behind(total);
        self.entries.wait(now, self.window(), limit - cost, behind)
    }

    fn ends_at(&self) -> u64 {
        match self.entries.newest() {
            Some(newest) if self.entries.held() > 0 => newest.saturating_add(self.window()),
            _ => 0,
        }
    }

    fn charge(&mut self, now: u64, _: Level, units: u64) {
        let outside = self.entries.outside(now, self.window());
        self.entries.drop_first(outside);
        self.entries.push(now, units);
    }

    fn refund(&mut self, now: u64, refund: &CounterRefund) -> u64 {
        let life = self.window();
        let counts = |stamp: u64| stamp.saturating_add(life) > now;
        self.entries.refund(refund.stamp, refund.units, counts)
    }

    fn follow_clock_back(&mut self, now: u64, _: u64) {
        self.entries.follow_clock_back(now);
    }

    fn write(&self, writer: &mut ByteWriter, _: u64) {
        writer.quota(&self.quota);
        writer.number(self.entries.resolution());
        self.entries.write(writer);
    }

    fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError> {
        let quota = reader.quota()?;
        let resolution = reader.number_up_to(quota.window_micros(), "a sub-window's length")?;
        check(resolution > 0, "a sub-window's length")?;
        let entries = Entries::read(reader, resolution)?;
        let is_past = entries.newest().is_none_or(|newest| newest <= last_charge);
        check(is_past, "a sub-window's last take")?;
        Ok(Self { quota, entries })
    }
}
