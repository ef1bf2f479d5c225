use hashbrown::HashTable;

use super::due::Due;
use super::once::Once;
use super::slots::Slots;
use crate::algorithm::Count;
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::store::KeyName;
use crate::store::Take;

/// A part of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Slots<Slot>,
    by_name: HashTable<u32>,
    /// When a slot has to be looked at: the slot's own due is somewhere in here, and it is never
    /// later than the instant at which the slot's log is forgotten. Entries that are not the slot's
    /// due any more are passed over.
    due: Due,
}

#[derive(Debug)]
struct Slot {
    name: Box<str>,
    kept: Kept,
}

/// What is kept of a key, and its hash.
#[derive(Debug)]
enum Kept {
    /// It is due when its count is forgotten.
    Once {
        hash: u32,
        once: Once,
    },
    Whole {
        hash: u32,
        whole: Box<Whole>,
    },
}

#[derive(Debug)]
struct Whole {
    count: Count,
    due: u64,
}

/// So many entries of [`Shard::due`] may be more than keys, and an eighth of the keys.
const MORE: usize = 64;

/// None if a new key has to be kept and must not be. The type is that of a store's answer, so that nothing is
/// copied on the way.
pub(super) type Answer = Option<Result<Decision, StoreError>>;

impl Shard {
    /// Decides a take. A key that is charged for the first time needs the word of `reserve`; without it there
    /// is no answer.
    pub(super) fn take(
        &mut self,
        hash: u32,
        name: KeyName<'_>,
        now: u64,
        take: &Take,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let Some(at) = self.find(hash, name) else {
            return self.take_first(hash, name, now, take, reserve);
        };
        match &mut self.slots.get_mut(at)?.kept {
            Kept::Whole { whole, .. } => {
                let decision = charge(&mut whole.count, now, take);
                // Only a shorter window, or a clock that went back, makes it earlier, and then by more than the
                // rule's charges count.
                if whole.due > now.saturating_add(take.rule().life_micros()) {
                    self.hasten(at);
                }
                Some(Ok(decision))
            }
            Kept::Once { once, .. } => {
                let once = *once;
                Some(Ok(self.take_again(at, once, now, take)))
            }
        }
    }

    fn take_first(
        &mut self,
        hash: u32,
        name: KeyName<'_>,
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
            self.insert(hash, name, now, take, count);
        }
        Some(Ok(decision))
    }

    /// From a count that was charged once, and stays so unless it is charged.
    #[inline(never)]
    fn take_again(&mut self, at: u32, once: Once, now: u64, take: &Take) -> Decision {
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
            self.keep(at, |hash| Kept::of_first(hash, now, take, count));
            self.due.push(due, at);
        } else {
            self.keep(at, |hash| Kept::whole(hash, count, due));
            self.hasten(at);
        }
        decision
    }

    fn keep(&mut self, at: u32, what: impl FnOnce(u32) -> Kept) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.kept = what(slot.kept.hash());
        }
    }

    /// Has it looked at when its count is forgotten, if that is earlier than it would be.
    #[cold]
    fn hasten(&mut self, at: u32) {
        let Some(Kept::Whole { whole, .. }) = self.slots.get_mut(at).map(|slot| &mut slot.kept)
        else {
            return;
        };
        let forgotten_at = whole.count.forgotten_at();
        if forgotten_at >= whole.due {
            return;
        }
        whole.due = forgotten_at;
        self.due.push(forgotten_at, at);
        if self.due.len() > MORE + self.slots.held() + self.slots.held() / 8 {
            let slots = &self.slots;
            self.due
                .retain(|due, at| slots.get(at).is_some_and(|slot| slot.kept.is_due_at(due)));
        }
    }

    pub(super) fn refund(
        &mut self,
        hash: u32,
        name: KeyName<'_>,
        now: u64,
        receipt: &Receipt,
        units: u64,
    ) -> u64 {
        let Some(at) = self.find(hash, name) else {
            return 0;
        };
        match self.slots.get_mut(at).map(|slot| &mut slot.kept) {
            Some(Kept::Whole { whole, .. }) => whole.count.refund(now, receipt, units),
            Some(Kept::Once { once, .. }) => {
                let mut count = once.count();
                let due = count.forgotten_at();
                let refunded = count.refund(now, receipt, units);
                if refunded > 0 {
                    self.keep(at, |hash| Kept::whole(hash, count, due));
                }
                refunded
            }
            None => 0,
        }
    }

    /// Drops a key, and says whether it was there.
    pub(super) fn forget(&mut self, hash: u32, name: KeyName<'_>) -> bool {
        let found = self.find(hash, name);
        found.inspect(|at| self.remove(*at)).is_some()
    }

    fn find(&self, hash: u32, name: KeyName<'_>) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |at: &u32| slots.get(*at).is_some_and(|slot| name.is(&slot.name));
        self.by_name.find(widened(hash), is_it).copied()
    }

    fn insert(&mut self, hash: u32, name: KeyName<'_>, now: u64, take: &Take, count: Count) {
        let due = count.forgotten_at();
        let at = self.slots.insert(Slot {
            name: name.to_box(),
            kept: Kept::of_first(hash, now, take, count),
        });
        self.due.push(due, at);
        let slots = &self.slots;
        let hash_of = |at: &u32| slots.get(*at).map_or(0, |slot| widened(slot.kept.hash()));
        self.by_name.insert_unique(widened(hash), at, hash_of);
    }

    /// Whether there is a key that may be forgotten.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due.earliest() <= now
    }

    /// Looks at no more than so many keys that may be forgotten, drops those that are, and says how
    /// many.
    pub(super) fn drop_forgotten(&mut self, now: u64, most: usize) -> usize {
        let mut dropped = 0;
        for _ in 0..most {
            let Some((due, at)) = self.due.pop(now) else {
                break;
            };
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            if !slot.kept.is_due_at(due) {
                continue;
            }
            if let Kept::Whole { whole, .. } = &mut slot.kept {
                let forgotten_at = whole.count.forgotten_at();
                if forgotten_at > now {
                    whole.due = forgotten_at;
                    self.due.push(forgotten_at, at);
                    continue;
                }
            }
            self.remove(at);
            dropped += 1;
        }
        if dropped > 0 && self.slots.held() == 0 && self.slots.are_many() {
            *self = Self::default();
        }
        dropped
    }

    fn remove(&mut self, at: u32) {
        let Some(slot) = self.slots.remove(at) else {
            return;
        };
        let hash = widened(slot.kept.hash());
        if let Ok(entry) = self.by_name.find_entry(hash, |found| *found == at) {
            entry.remove();
        }
    }
}

impl Kept {
    /// What a take made of nothing.
    fn of_first(hash: u32, now: u64, take: &Take, count: Count) -> Self {
        match Once::of(take, now) {
            Some(once) => Self::Once { hash, once },
            None => {
                let due = count.forgotten_at();
                Self::whole(hash, count, due)
            }
        }
    }

    fn whole(hash: u32, count: Count, due: u64) -> Self {
        let whole = Box::new(Whole { count, due });
        Self::Whole { hash, whole }
    }

    fn hash(&self) -> u32 {
        match self {
            Self::Once { hash, .. } | Self::Whole { hash, .. } => *hash,
        }
    }

    fn is_due_at(&self, due: u64) -> bool {
        match self {
            Self::Once { once, .. } => once.count().forgotten_at() == due,
            Self::Whole { whole, .. } => whole.due == due,
        }
    }
}

#[inline]
fn charge(count: &mut Count, now: u64, take: &Take) -> Decision {
    count.take(take.rule().counting(), now, take.quotas(), take.units())
}

/// As a table wants it, which looks at the lowest and the highest bits.
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
