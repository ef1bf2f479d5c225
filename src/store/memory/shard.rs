use hashbrown::HashTable;

use super::charged_once::ChargedOnce;
use super::due_queue::DueQueue;
use super::slab::Slab;
use crate::algorithm::Count;
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::rule::CountName;
use crate::store::Take;

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

/// [`Shard::due`] may have this many outdated entries, and as many as an eighth of the keys.
const EXTRA_DUE_ENTRIES: usize = 64;

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
        take: &Take,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let Some(at) = self.find(hash, take.count_name()) else {
            return self.take_first(hash, now, take, reserve);
        };
        match &mut self.slots.get_mut(at)?.entry {
            Entry::Full { full, .. } => {
                let decision = charge(&mut full.count, now, take);
                // Only a shorter window, or a clock that went back, makes the due earlier.
                if full.due > now.saturating_add(take.rule().life_micros()) {
                    self.bring_forward(at);
                }
                Some(Ok(decision))
            }
            Entry::ChargedOnce { once, .. } => {
                let once = *once;
                Some(Ok(self.take_again(at, once, now, take)))
            }
        }
    }

    fn take_first(
        &mut self,
        hash: u32,
        now: u64,
        take: &Take,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let mut count = Count::default();
        let decision = charge(&mut count, now, take);
        if count.forgotten_at() > now {
            if !reserve() {
                return None;
            }
            self.insert(hash, now, take, count);
        }
        Some(Ok(decision))
    }

    /// Decides a take of a key that was charged once.
    #[inline(never)]
    fn take_again(&mut self, at: u32, once: ChargedOnce, now: u64, take: &Take) -> Decision {
        let mut count = once.count();
        let due = count.forgotten_at();
        let is_forgotten = due <= now;
        if is_forgotten {
            count = Count::default();
        }
        let decision = charge(&mut count, now, take);
        if decision.receipt().is_none() {
            return decision;
        }
        if is_forgotten {
            let due = count.forgotten_at();
            self.keep(at, |hash| Entry::of_first(hash, now, take, count));
            self.due.push(due, at);
        } else {
            self.keep(at, |hash| Entry::full(hash, count, due));
            self.bring_forward(at);
        }
        decision
    }

    fn keep(&mut self, at: u32, what: impl FnOnce(u32) -> Entry) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.entry = what(slot.entry.hash());
        }
    }

    /// Moves a slot's due forward to the instant at which its count is forgotten, if that is
    /// earlier.
    #[cold]
    fn bring_forward(&mut self, at: u32) {
        let Some(Entry::Full { full, .. }) = self.slots.get_mut(at).map(|slot| &mut slot.entry)
        else {
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
                .retain(|due, at| slots.get(at).is_some_and(|slot| slot.entry.is_due_at(due)));
        }
    }

    pub(super) fn refund(
        &mut self,
        hash: u32,
        name: &CountName,
        now: u64,
        receipt: &Receipt,
        units: u64,
    ) -> u64 {
        let Some(at) = self.find(hash, name) else {
            return 0;
        };
        match self.slots.get_mut(at).map(|slot| &mut slot.entry) {
            Some(Entry::Full { full, .. }) => full.count.refund(now, receipt, units),
            Some(Entry::ChargedOnce { once, .. }) => {
                let mut count = once.count();
                let due = count.forgotten_at();
                let refunded = count.refund(now, receipt, units);
                if refunded > 0 {
                    self.keep(at, |hash| Entry::full(hash, count, due));
                }
                refunded
            }
            None => 0,
        }
    }

    /// Resets a key's count. The key is dropped as soon as the count is forgotten.
    pub(super) fn reset(&mut self, hash: u32, name: &CountName, now: u64) {
        let Some(at) = self.find(hash, name) else {
            return;
        };
        match self.slots.get_mut(at).map(|slot| &mut slot.entry) {
            Some(Entry::Full { full, .. }) => full.count.reset(now),
            Some(Entry::ChargedOnce { once, .. }) => {
                let mut count = once.count();
                let due = count.forgotten_at();
                count.reset(now);
                self.keep(at, |hash| Entry::full(hash, count, due));
            }
            None => return,
        }
        self.bring_forward(at);
    }

    fn find(&self, hash: u32, name: &CountName) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |at: &u32| slots.get(*at).is_some_and(|slot| name.is(&slot.name, ""));
        self.by_name.find(widened(hash), is_it).copied()
    }

    fn insert(&mut self, hash: u32, now: u64, take: &Take, count: Count) {
        let due = count.forgotten_at();
        let at = self.slots.insert(Slot {
            name: take.name("").into(),
            entry: Entry::of_first(hash, now, take, count),
        });
        self.due.push(due, at);
        let slots = &self.slots;
        let hash_of = |at: &u32| slots.get(*at).map_or(0, |slot| widened(slot.entry.hash()));
        self.by_name.insert_unique(widened(hash), at, hash_of);
    }

    /// Whether there is a key that may be forgotten.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due.earliest() <= now
    }

    /// Looks at up to `max` keys that are due, drops those that are forgotten, and returns their
    /// number.
    pub(super) fn drop_forgotten(&mut self, now: u64, max: usize) -> usize {
        let mut dropped = 0;
        for _ in 0..max {
            let Some((due, at)) = self.due.pop(now) else {
                break;
            };
            let Some(slot) = self.slots.get_mut(at) else {
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
        if dropped > 0 && self.slots.len() == 0 && self.slots.has_many_pages() {
            *self = Self::default();
        }
        dropped
    }

    fn remove(&mut self, at: u32) {
        let Some(slot) = self.slots.remove(at) else {
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
    fn of_first(hash: u32, now: u64, take: &Take, count: Count) -> Self {
        match ChargedOnce::of(take, now) {
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
            Self::ChargedOnce { once, .. } => once.count().forgotten_at() == due,
            Self::Full { full, .. } => full.due == due,
        }
    }
}

#[inline]
fn charge(count: &mut Count, now: u64, take: &Take) -> Decision {
    count.take(take.rule().algorithm(), now, take.quotas(), take.cost())
}

/// The table uses the lowest and the highest bits of a hash.
fn widened(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is lost between the fields: what is said of the bytes of a key rests on it.
    #[test]
    fn a_key_that_was_charged_once_is_small() {
        assert_eq!(size_of::<Slot>(), 48);
    }
}
