use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;
use slab::Slab;

use crate::algorithm::spec::Windows;
use crate::algorithm::{Algorithm, AlgorithmConfig, Count};
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::name::Name;
use crate::quota::Quota;
use crate::store::CountAsk;

/// A part of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Slab<Slot>,
    by_name: HashTable<u32>,
    /// When each slot has to be looked at: the slot's `due` is always in here, and is never later
    /// than the instant at which its count is forgotten. Outdated entries are skipped.
    due: DueQueue,
}

#[derive(Debug)]
struct Slot {
    name: Box<str>,
    entry: Entry,
}

/// A key's count, and the hash of its name.
#[derive(Debug)]
enum Entry {
    /// Its due is the instant at which the count is forgotten.
    ChargedOnce {
        hash: u32,
        once: ChargedOnce,
    },
    Full {
        hash: u32,
        full: Box<FullEntry>,
    },
}

#[derive(Debug)]
struct FullEntry {
    count: Count,
    due: u64,
}

/// An empty shard frees its memory if it has room for more keys than these.
const KEPT_CAPACITY: usize = 64;

/// [`Shard::due`] may have this many outdated entries, and as many as an eighth of the keys.
const EXTRA_DUE_ENTRIES: usize = 64;

/// A count of units: its name, and how it counts.
#[derive(Clone, Copy)]
pub(super) struct CountOf<'a> {
    pub(super) name: &'a Name,
    pub(super) windows: &'a Windows,
}

/// `None` if there is no room for a new key. The type is that of a store's answer, so that it is
/// not copied.
pub(super) type Answer = Option<Result<Decision, StoreError>>;

impl Shard {
    /// Decides a take. A key that is charged for the first time calls `reserve` for its room; there
    /// is no answer if that is refused.
    pub(super) fn take(
        &mut self,
        hash: u32,
        now: u64,
        of: CountOf<'_>,
        cost: u64,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let Some(at) = self.find(hash, of.name) else {
            return self.take_first(hash, now, of, cost, reserve);
        };
        match &mut self.slot(at)?.entry {
            Entry::Full { full, .. } => {
                let decision = charge(&mut full.count, now, of, cost);
                // Only a shorter window, or a clock that went back, makes the due earlier.
                if full.due > now.saturating_add(of.windows.life) {
                    self.bring_forward(at);
                }
                Some(Ok(decision))
            }
            Entry::ChargedOnce { once, .. } => {
                let once = *once;
                Some(Ok(self.take_again(at, once, now, of, cost)))
            }
        }
    }

    fn take_first(
        &mut self,
        hash: u32,
        now: u64,
        of: CountOf<'_>,
        cost: u64,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let mut count = Count::new(of.windows.algorithm());
        let decision = charge(&mut count, now, of, cost);
        if count.forgotten_at() > now {
            if !reserve() {
                return None;
            }
            let due = count.forgotten_at();
            self.insert(
                hash,
                of.name,
                Entry::of_first(hash, now, of, cost, count),
                due,
            );
        }
        Some(Ok(decision))
    }

    /// Charges units above max, and returns their number. A new key calls `reserve` for its room;
    /// there is no answer if that is refused.
    pub(super) fn owe(
        &mut self,
        hash: u32,
        now: u64,
        of: CountOf<'_>,
        units: u64,
        reserve: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let owe = |count: &mut Count| {
            let windows = of.windows;
            let (quotas, at_most) = (windows.quotas.as_ref(), windows.owe_at_most);
            count.owe(windows.config, now, quotas, units, at_most)
        };
        if let Some(at) = self.find(hash, of.name) {
            let charged = owe(&mut self.as_full(at)?.count);
            self.bring_forward(at);
            return Some(charged);
        }
        let mut count = Count::new(of.windows.algorithm());
        let (charged, due) = (owe(&mut count), count.forgotten_at());
        if charged > 0 {
            if !reserve() {
                return None;
            }
            self.insert(hash, of.name, Entry::full(hash, count, due), due);
        }
        Some(charged)
    }

    /// Decides a take of a key that was charged once.
    #[inline(never)]
    fn take_again(
        &mut self,
        at: u32,
        once: ChargedOnce,
        now: u64,
        of: CountOf<'_>,
        cost: u64,
    ) -> Decision {
        let due = once.forgotten_at();
        let is_forgotten = due <= now;
        let mut count = match is_forgotten {
            true => Count::new(of.windows.algorithm()),
            false => once.count(),
        };
        let decision = charge(&mut count, now, of, cost);
        if decision.units() == 0 {
            return decision;
        }
        if is_forgotten {
            let due = count.forgotten_at();
            self.keep(at, |hash| Entry::of_first(hash, now, of, cost, count));
            self.due.push(due, at);
        } else {
            self.keep(at, |hash| Entry::full(hash, count, due));
            self.bring_forward(at);
        }
        decision
    }

    fn keep(&mut self, at: u32, what: impl FnOnce(u32) -> Entry) {
        if let Some(slot) = self.slot(at) {
            slot.entry = what(slot.entry.hash());
        }
    }

    /// Moves a slot's due forward to the instant at which its count is forgotten, if that is
    /// earlier.
    #[cold]
    fn bring_forward(&mut self, at: u32) {
        let slot = self.slots.get_mut(at as usize);
        let Some(Entry::Full { full, .. }) = slot.map(|slot| &mut slot.entry) else {
            return;
        };
        let forgotten_at = full.count.forgotten_at();
        if forgotten_at >= full.due {
            return;
        }
        full.due = forgotten_at;
        self.due.push(forgotten_at, at);
        if self.due.len() > EXTRA_DUE_ENTRIES + self.slots.len() + self.slots.len() / 8 {
            let slots = &self.slots;
            self.due
                .retain(|due, at| slot_at(slots, at).is_some_and(|slot| slot.entry.is_due_at(due)));
        }
    }

    /// Gives back as many units as the take costs.
    pub(super) fn refund(&mut self, hash: u32, now: u64, of: &CountAsk, receipt: &Receipt) -> u64 {
        let Some(at) = self.find(hash, of.name_in_store()) else {
            return 0;
        };
        let (full, quotas, units) = (self.as_full(at), of.quotas(), of.cost());
        full.map_or(0, |full| full.count.refund(now, quotas, receipt, units))
    }

    /// Resets a key's count, and returns whether anything of it still counted. The key is dropped
    /// as soon as the count is forgotten.
    pub(super) fn reset(&mut self, hash: u32, name: &Name, now: u64) -> bool {
        let Some(at) = self.find(hash, name) else {
            return false;
        };
        let full = self.as_full(at);
        let has_counted = full.is_some_and(|full| full.count.reset(now));
        self.bring_forward(at);
        has_counted
    }

    /// The key's count, which no longer says only that the key was charged once.
    fn as_full(&mut self, at: u32) -> Option<&mut FullEntry> {
        let entry = &mut self.slot(at)?.entry;
        if let Entry::ChargedOnce { hash, once } = entry {
            *entry = Entry::full(*hash, once.count(), once.forgotten_at());
        }
        match entry {
            Entry::Full { full, .. } => Some(full),
            Entry::ChargedOnce { .. } => None,
        }
    }

    #[inline]
    fn slot(&mut self, at: u32) -> Option<&mut Slot> {
        self.slots.get_mut(at as usize)
    }

    /// Whether there is a count of this name.
    pub(super) fn knows(&self, hash: u32, name: &Name) -> bool {
        self.find(hash, name).is_some()
    }

    fn find(&self, hash: u32, name: &Name) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |at: &u32| slot_at(slots, *at).is_some_and(|slot| name.is(&slot.name));
        self.by_name.find(widened(hash), is_it).copied()
    }

    fn insert(&mut self, hash: u32, name: &Name, entry: Entry, due: u64) {
        if self.slots.len() == self.slots.capacity() {
            // Doubling would leave half of it empty.
            self.slots.reserve_exact(16 + self.slots.len() / 8);
        }
        let at = self.slots.insert(Slot {
            name: name.plain().into(),
            entry,
        });
        let at = u32::try_from(at).expect("fewer than four billion keys");
        self.due.push(due, at);
        let slots = &self.slots;
        let hash_of = |at: &u32| slot_at(slots, *at).map_or(0, |slot| widened(slot.entry.hash()));
        self.by_name.insert_unique(widened(hash), at, hash_of);
    }

    /// Whether there is a key that may be forgotten.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due.earliest <= now
    }

    /// Looks at up to `max` keys that are due, drops those that are forgotten, and returns their
    /// number.
    pub(super) fn drop_forgotten(&mut self, now: u64, max: usize) -> usize {
        let mut dropped = 0;
        for _ in 0..max {
            let Some((due, at)) = self.due.pop(now) else {
                break;
            };
            let Some(slot) = self.slots.get_mut(at as usize) else {
                continue;
            };
            if !slot.entry.is_due_at(due) {
                continue;
            }
            if let Entry::Full { full, .. } = &mut slot.entry {
                let forgotten_at = full.count.forgotten_at();
                if forgotten_at > now {
                    full.due = forgotten_at;
                    self.due.push(forgotten_at, at);
                    continue;
                }
            }
            self.remove(at);
            dropped += 1;
        }
        if dropped > 0 && self.slots.is_empty() && self.slots.capacity() > KEPT_CAPACITY {
            *self = Self::default();
        }
        dropped
    }

    fn remove(&mut self, at: u32) {
        let Some(slot) = self.slots.try_remove(at as usize) else {
            return;
        };
        let hash = widened(slot.entry.hash());
        if let Ok(entry) = self.by_name.find_entry(hash, |found| *found == at) {
            entry.remove();
        }
    }
}

impl Entry {
    /// The entry of a key's first take.
    fn of_first(hash: u32, now: u64, of: CountOf<'_>, cost: u64, count: Count) -> Self {
        match ChargedOnce::of(of.windows, cost, now) {
            Some(once) => Self::ChargedOnce { hash, once },
            None => {
                let due = count.forgotten_at();
                Self::full(hash, count, due)
            }
        }
    }

    fn full(hash: u32, count: Count, due: u64) -> Self {
        let full = Box::new(FullEntry { count, due });
        Self::Full { hash, full }
    }

    fn hash(&self) -> u32 {
        match self {
            Self::ChargedOnce { hash, .. } | Self::Full { hash, .. } => *hash,
        }
    }

    fn is_due_at(&self, due: u64) -> bool {
        match self {
            Self::ChargedOnce { once, .. } => once.forgotten_at() == due,
            Self::Full { full, .. } => full.due == due,
        }
    }
}

#[inline]
fn slot_at(slots: &Slab<Slot>, at: u32) -> Option<&Slot> {
    slots.get(at as usize)
}

#[inline]
fn charge(count: &mut Count, now: u64, of: CountOf<'_>, cost: u64) -> Decision {
    count.take(of.windows.config, now, &of.windows.quotas, cost)
}

/// The table uses the lowest and the highest bits of a hash.
fn widened(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A count that was charged once, under one quota, by what the charge was.
///
/// In a flood of keys all are like this, and this takes a fifth of a [`Count`]'s memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChargedOnce {
    stamp: SplitMicros,
    max: u32,
    burst: u32,
    cost: u32,
    /// In milliseconds.
    window: u32,
    algorithm: Algorithm,
    sub_windows: u16,
}

impl ChargedOnce {
    /// The first take of a key. `None` if the rule has several quotas, or a number is too large.
    pub(super) fn of(windows: &Windows, cost: u64, now: u64) -> Option<Self> {
        let [quota] = &*windows.quotas else {
            return None;
        };
        let counting = windows.config;
        let (window, part) = (quota.window_micros() / 1_000, quota.window_micros() % 1_000);
        if part > 0 {
            return None;
        }
        Some(Self {
            stamp: split(now),
            max: quota.max().try_into().ok()?,
            burst: quota.burst().try_into().ok()?,
            cost: cost.try_into().ok()?,
            window: window.try_into().ok()?,
            algorithm: counting.algorithm(),
            sub_windows: counting.number_of_sub_windows(),
        })
    }

    fn quota(&self) -> Quota {
        let window = u64::from(self.window) * 1_000;
        Quota::of_parts(self.max.into(), window, self.burst.into())
    }

    pub(super) fn count(&self) -> Count {
        let counting = AlgorithmConfig::from(self.algorithm).sub_windows(self.sub_windows);
        let stamp = joined(self.stamp);
        Count::charged_once(counting, stamp, &self.quota(), self.cost.into())
    }

    /// The instant at which that count is forgotten.
    fn forgotten_at(&self) -> u64 {
        let life = self
            .algorithm
            .life_of_first(&self.quota(), self.cost.into());
        joined(self.stamp).saturating_add(life)
    }
}

/// The slots by the instant at which each has to be looked at, the earliest first.
#[derive(Debug)]
pub(super) struct DueQueue {
    entries: BinaryHeap<Reverse<DueEntry>>,
    /// The instant of the first entry; `u64::MAX` if there is none.
    earliest: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueEntry {
    due: SplitMicros,
    at: u32,
}

impl DueQueue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, due: u64, at: u32) {
        if self.entries.len() == self.entries.capacity() {
            // Doubling would leave half of it empty.
            self.entries.reserve_exact(16 + self.entries.len() / 8);
        }
        let due = split(due);
        self.entries.push(Reverse(DueEntry { due, at }));
        self.update_earliest();
    }

    /// Takes out the first entry, if it is due.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u64, u32)> {
        if self.earliest > now {
            return None;
        }
        let Reverse(DueEntry { due, at }) = self.entries.pop()?;
        self.update_earliest();
        Some((joined(due), at))
    }

    /// Keeps one of each of the entries that `is_kept` accepts.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u64, u32) -> bool) {
        let mut entries = std::mem::take(&mut self.entries).into_vec();
        entries.retain(|Reverse(entry)| is_kept(joined(entry.due), entry.at));
        entries.sort_unstable();
        entries.dedup();
        self.entries = entries.into();
        self.update_earliest();
    }

    fn update_earliest(&mut self) {
        let first = self.entries.peek();
        self.earliest = first.map_or(u64::MAX, |Reverse(entry)| joined(entry.due));
    }
}

impl Default for DueQueue {
    fn default() -> Self {
        Self {
            entries: BinaryHeap::new(),
            earliest: u64::MAX,
        }
    }
}

/// An instant in microseconds, in two halves, the higher one first, so that structs with one need
/// an alignment of 4 bytes only.
type SplitMicros = [u32; 2];

const fn split(micros: u64) -> SplitMicros {
    [(micros >> 32) as u32, micros as u32]
}

fn joined([high, low]: SplitMicros) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_charged_once_is_forgotten_when_its_count_is() {
        for (max, millis) in [(1, 1), (3, 1_000), (7, 10), (1_000_000, 1)] {
            let quota = Quota::of_micros(max, millis * 1_000);
            for algorithm in Algorithm::ALL {
                for cost in [1, max.div_ceil(2), max] {
                    let windows = Windows::new(algorithm.into(), [quota].into(), None);
                    let once = ChargedOnce::of(&windows, cost, 12_345).expect("it is small");
                    assert_eq!(once.forgotten_at(), once.count().forgotten_at());
                }
            }
        }
    }

    /// Nothing is lost between the fields: what is said of the bytes of a key rests on it.
    #[test]
    fn a_key_that_was_charged_once_is_small() {
        assert_eq!(size_of::<Slot>(), 48);
    }
}
