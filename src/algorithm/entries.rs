use std::collections::VecDeque;

use super::algorithm::MODULUS_MASK;
use super::byte_reader::{ByteReader, ByteWriter, check};
use super::count::CountError;

/// A list of charges in the order of their stamps. Each entry carries the running total of all
/// costs, so that the sum inside any window is one subtraction.
#[derive(Debug, Clone)]
pub(super) struct Entries {
    /// All but the newest.
    older: VecDeque<Entry>,
    /// It changes with every take, and is often the only one.
    newest: Option<Entry>,
    /// The running total before the oldest entry.
    pub(super) floor: u64,
    /// The length of a span, in microseconds. Charges of the same span share an entry.
    resolution: u64,
    /// When the newest entry's span ends.
    span_end: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) stamp: u64,
    /// The running total with this entry.
    pub(super) total: u64,
}

impl Entries {
    pub(super) fn new(resolution: u64) -> Self {
        Self {
            older: VecDeque::new(),
            newest: None,
            floor: 0,
            resolution,
            span_end: 0,
        }
    }

    pub(super) fn resolution(&self) -> u64 {
        self.resolution
    }

    /// From now on charges of a span of this length share an entry. Returns whether it was another.
    pub(super) fn set_resolution(&mut self, resolution: u64) -> bool {
        let is_other = self.resolution != resolution;
        if is_other {
            self.resolution = resolution;
            self.span_end = self.newest().map_or(0, |newest| self.span_end(newest));
        }
        is_other
    }

    /// When something was charged last.
    pub(super) fn newest(&self) -> Option<u64> {
        self.newest.map(|entry| entry.stamp)
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
    pub(super) fn base(&self, now: u64, window: u64) -> u64 {
        match self.outside(now, window) {
            0 => self.floor,
            outside => self
                .get(outside - 1)
                .map_or(self.floor, |entry| entry.total),
        }
    }

    /// How many of the oldest entries have left the window.
    pub(super) fn outside(&self, now: u64, window: u64) -> usize {
        let has_left = |entry: &Entry| entry.stamp.saturating_add(window) <= now;
        match self.oldest() {
            Some(oldest) if has_left(oldest) => self.partition_point(has_left),
            _ => 0,
        }
    }

    /// Units behind this running total.
    pub(super) fn behind(&self, total: u64) -> u64 {
        self.total().wrapping_sub(total) & MODULUS_MASK
    }

    /// How many of the oldest entries have at least that many units behind them. `behind` counts
    /// the units behind a running total.
    pub(super) fn with_behind(&self, units: u64, behind: impl Fn(u64) -> u64) -> usize {
        self.partition_point(|entry| behind(entry.total) >= units)
    }

    /// Microseconds until no more than `max_left` units are left in the window. `behind` counts the
    /// units behind a running total.
    pub(super) fn wait(
        &self,
        now: u64,
        window: u64,
        max_left: u64,
        behind: impl Fn(u64) -> u64,
    ) -> u64 {
        let too_few = self.partition_point(|entry| behind(entry.total) > max_left);
        let last_to_leave = self.get(too_few).or(self.newest);
        last_to_leave.map_or(0, |entry| {
            entry.stamp.saturating_add(window).saturating_sub(now)
        })
    }

    /// Adds units that are charged now: to the newest entry if it is of the same span, whose stamp
    /// becomes `now`, or else as an entry of their own.
    pub(super) fn push(&mut self, now: u64, units: u64) {
        let total = self.total().wrapping_add(units) & MODULUS_MASK;
        if self.held() == 0 {
            self.clear();
        }
        if now >= self.span_end {
            self.older.extend(self.newest);
            self.span_end = self.span_end(now);
        }
        self.newest = Some(Entry { stamp: now, total });
    }

    fn clear(&mut self) {
        self.older.clear();
        self.newest = None;
        self.span_end = 0;
    }

    pub(super) fn drop_first(&mut self, number: usize) {
        let Some(last) = number.checked_sub(1).and_then(|last| self.get(last)) else {
            return;
        };
        self.floor = last.total;
        match number > self.older.len() {
            true => self.clear(),
            false => drop(self.older.drain(..number)),
        }
    }

    /// Makes one entry of so many, with the stamp of the last of them.
    pub(super) fn merge_first(&mut self, number: usize) {
        self.older.drain(..number.saturating_sub(1));
    }

    /// Forgets the oldest units beyond so many. Returns whether there are some.
    pub(super) fn keep_newest(&mut self, units: u64) -> bool {
        let has_more = self.held() > units;
        if has_more {
            self.floor = self.total().wrapping_sub(units) & MODULUS_MASK;
        }
        has_more
    }

    /// The clock went back to `now`: all entries stamped later become one entry stamped `now`. So
    /// they count, and have left every window one window from now.
    pub(super) fn follow_clock_back(&mut self, now: u64) {
        if self.newest().is_some_and(|newest| newest > now) {
            let total = self.total();
            let earlier = self.older.partition_point(|entry| entry.stamp < now);
            self.older.truncate(earlier);
            self.newest = Some(Entry { stamp: now, total });
            self.span_end = self.span_end(now);
        }
    }

    /// The first entry that is not stamped before `stamp`, and the running total before it.
    pub(super) fn first_since(&self, stamp: u64) -> Option<(usize, Entry, u64)> {
        let at = self.partition_point(|entry| entry.stamp < stamp);
        let entry = self.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.get(before));
        Some((at, entry, before.map_or(self.floor, |entry| entry.total)))
    }

    pub(super) fn is_same_span(&self, stamp: u64, other: u64) -> bool {
        stamp / self.resolution == other / self.resolution
    }

    /// Removes up to `units` from the entry that they were added to at `stamp`, and returns how
    /// many. An entry that holds nothing any more is dropped, unless it is the only one. An entry
    /// whose stamp does not count any more stays as it is.
    pub(super) fn refund(&mut self, stamp: u64, units: u64, counts: impl Fn(u64) -> bool) -> u64 {
        let found = self.first_since(stamp);
        let found = found.filter(|(_, entry, _)| self.is_same_span(entry.stamp, stamp));
        let Some((at, entry, before)) = found.filter(|(_, entry, _)| counts(entry.stamp)) else {
            return 0;
        };
        let held = entry.total.wrapping_sub(before) & MODULUS_MASK;
        let refunded = units.min(held);
        let older = self.older.range_mut(at.min(self.older.len())..);
        for entry in older.chain(&mut self.newest) {
            entry.total = entry.total.wrapping_sub(refunded) & MODULUS_MASK;
        }
        if refunded == held && self.len() > 1 {
            self.remove(at);
        }
        refunded
    }

    /// Removes units from the newest entry.
    pub(super) fn shrink_newest(&mut self, units: u64) {
        if let Some(newest) = &mut self.newest {
            newest.total = newest.total.wrapping_sub(units) & MODULUS_MASK;
        }
    }

    /// The running total before the newest of several entries.
    pub(super) fn before_newest(&self) -> Option<u64> {
        self.older.back().map(|entry| entry.total)
    }

    /// None of the entries counts any more: the next entry replaces all of them.
    pub(super) fn forget_held(&mut self) {
        self.floor = self.total();
    }

    /// Removes an entry. Its units stay in the running totals, unless it is the newest.
    pub(super) fn remove(&mut self, at: usize) {
        if self.older.remove(at).is_none() {
            self.newest = self.older.pop_back();
            let newest = self.newest().unwrap_or(0);
            self.span_end = self.span_end(newest);
        }
    }

    /// When the span ends that this instant is in.
    fn span_end(&self, instant: u64) -> u64 {
        (instant / self.resolution)
            .saturating_add(1)
            .saturating_mul(self.resolution)
    }

    /// Writes the entries. Running totals matter by their differences alone.
    pub(super) fn write(&self, writer: &mut ByteWriter) {
        writer.number(self.len() as u64);
        let (mut stamp, mut total) = (0, self.floor);
        for entry in self.older.iter().chain(&self.newest) {
            writer.number(entry.stamp - stamp);
            writer.number(entry.total.wrapping_sub(total) & MODULUS_MASK);
            (stamp, total) = (entry.stamp, entry.total);
        }
    }

    /// Reads what [`write`](Self::write) has written.
    pub(super) fn read(reader: &mut ByteReader<'_>, resolution: u64) -> Result<Self, CountError> {
        let mut entries = Self::new(resolution);
        let length = reader.length(usize::MAX, "the number of entries")?;
        let (mut stamp, mut total) = (0_u64, 0);
        for index in 0..length {
            let later = reader.number()?;
            check(index == 0 || later > 0, "an entry's stamp")?;
            let sum = stamp.checked_add(later);
            stamp = sum.ok_or(CountError::Impossible("an entry's stamp"))?;
            total += reader.number_up_to(MODULUS_MASK - total, "an entry's units")?;
            entries.older.extend(entries.newest);
            entries.newest = Some(Entry { stamp, total });
        }
        if length > 0 {
            entries.span_end = entries.span_end(stamp);
        }
        Ok(entries)
    }

    pub(super) fn len(&self) -> usize {
        self.older.len() + usize::from(self.newest.is_some())
    }

    fn oldest(&self) -> Option<&Entry> {
        self.older.front().or(self.newest.as_ref())
    }

    pub(super) fn get(&self, at: usize) -> Option<Entry> {
        match self.older.get(at) {
            None if at == self.older.len() => self.newest,
            older => older.copied(),
        }
    }

    /// How many of the oldest entries fulfil the condition, if all that do come first.
    fn partition_point(&self, of: impl Fn(&Entry) -> bool) -> usize {
        match self.newest {
            Some(newest) if of(&newest) => self.len(),
            _ => self.older.partition_point(of),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.newest.map_or(self.floor, |entry| entry.total)
    }
}
