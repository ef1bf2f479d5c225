use std::collections::VecDeque;

/// Totals run modulo 2^52, so that the Lua twins' doubles hold them, and any sum of two, exactly.
pub(super) const MODULUS_MASK: u64 = (1 << 52) - 1;

/// A refund that would have to rewrite more entries than this is not made: in Redis everybody else
/// waits meanwhile.
const MOST_REWRITTEN: usize = 4_096;

/// Admissions in the order of their stamps. Each entry carries the running total of all costs, so the sum
/// inside any window is one subtraction.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    entries: VecDeque<Entry>,
    /// The running total before the oldest entry.
    floor: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) stamp: u64,
    /// The running total with this entry.
    total: u64,
}

impl Entries {
    /// One entry.
    pub(super) fn of(stamp: u64, units: u64) -> Self {
        let mut entries = Self::default();
        entries.push(stamp, units, 1);
        entries
    }

    /// When something was admitted last.
    pub(super) fn newest(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.stamp)
    }

    /// Units in the list, whether or not they still count.
    pub(super) fn held(&self) -> u64 {
        self.total().wrapping_sub(self.floor) & MODULUS_MASK
    }

    /// Units inside the window.
    pub(super) fn used(&self, now: u64, window: u64) -> u64 {
        self.total().wrapping_sub(self.base(now, window)) & MODULUS_MASK
    }

    /// The running total before the oldest entry inside the window.
    fn base(&self, now: u64, window: u64) -> u64 {
        match self.outside(now, window) {
            0 => self.floor,
            outside => self.entries[outside - 1].total,
        }
    }

    /// How many of the oldest entries have left the window.
    pub(super) fn outside(&self, now: u64, window: u64) -> usize {
        let has_left = |entry: &Entry| entry.stamp.saturating_add(window) <= now;
        match self.entries.front() {
            Some(oldest) if has_left(oldest) => self.entries.partition_point(has_left),
            _ => 0,
        }
    }

    /// How many of the oldest entries are outside the window, or have that many units behind them.
    pub(super) fn unneeded(&self, now: u64, window: u64, units: u64) -> usize {
        let total = self.total();
        self.entries.partition_point(|entry| {
            let newer = total.wrapping_sub(entry.total) & MODULUS_MASK;
            newer >= units || entry.stamp.saturating_add(window) <= now
        })
    }

    /// Microseconds until enough entries have left the window for `cost` units to fit under `max`.
    pub(super) fn wait(&self, now: u64, window: u64, max: u64, cost: u64) -> u64 {
        let total = self.total();
        let too_few = self
            .entries
            .partition_point(|entry| (total.wrapping_sub(entry.total) & MODULUS_MASK) + cost > max);
        let last_to_leave = self.entries.get(too_few).or(self.entries.back());
        last_to_leave.map_or(0, |entry| {
            entry.stamp.saturating_add(window).saturating_sub(now)
        })
    }

    /// Adds units. The newest entry takes them if it is of the same span of `resolution` microseconds,
    /// and gets their stamp.
    pub(super) fn push(&mut self, now: u64, units: u64, resolution: u64) {
        let total = self.total().wrapping_add(units) & MODULUS_MASK;
        let entry = Entry { stamp: now, total };
        if self.held() == 0 {
            self.entries.clear();
        }
        match self.entries.back_mut() {
            Some(newest) if newest.stamp / resolution == now / resolution => *newest = entry,
            _ => self.entries.push_back(entry),
        }
    }

    pub(super) fn drop_first(&mut self, number: usize) {
        if let Some(last) = number.checked_sub(1) {
            self.floor = self.entries[last].total;
            self.entries.drain(..number);
        }
    }

    /// Entries stamped later than `now` become one of `now`: nothing is forgiven, and all of it has
    /// left every window one window from now.
    pub(super) fn follow_clock_back(&mut self, now: u64) {
        if self.newest().is_some_and(|newest| newest > now) {
            let total = self.total();
            let earlier = self.entries.partition_point(|entry| entry.stamp < now);
            self.entries.truncate(earlier);
            self.entries.push_back(Entry { stamp: now, total });
        }
    }

    /// Takes up to so many units out of the entry that took them in at `stamp`, and tells how many.
    /// An entry without any is dropped, except for the only one; one that does not count any more is left
    /// alone.
    pub(super) fn refund(
        &mut self,
        stamp: u64,
        units: u64,
        resolution: u64,
        counts: impl Fn(u64) -> bool,
    ) -> u64 {
        let at = self.entries.partition_point(|entry| entry.stamp < stamp);
        let of_same_span = |entry: &&Entry| entry.stamp / resolution == stamp / resolution;
        let Some(entry) = self.entries.get(at).filter(of_same_span) else {
            return 0;
        };
        if !counts(entry.stamp) {
            return 0;
        }
        if self.entries.len() - at > MOST_REWRITTEN {
            return 0;
        }
        let before = at
            .checked_sub(1)
            .map_or(self.floor, |at| self.entries[at].total);
        let held = entry.total.wrapping_sub(before) & MODULUS_MASK;
        let refunded = units.min(held);
        for entry in self.entries.range_mut(at..) {
            entry.total = entry.total.wrapping_sub(refunded) & MODULUS_MASK;
        }
        if refunded == held && self.entries.len() > 1 {
            self.entries.remove(at);
        }
        refunded
    }

    fn total(&self) -> u64 {
        self.entries.back().map_or(self.floor, |entry| entry.total)
    }
}
