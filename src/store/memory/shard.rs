use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use crate::algorithm::Count;
use crate::decision::{Decision, Token};
use crate::error::StoreError;
use crate::store::Take;
use crate::store::name::Name;

/// A part of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    by_name: HashTable<u32>,
    /// When a slot has to be looked at: the slot's own `due` is somewhere in here, and it is never
    /// later than the instant at which the slot's log is forgotten. Entries that are not the slot's
    /// `due` any more are passed over.
    due: BinaryHeap<Reverse<(u64, u32)>>,
}

#[derive(Debug, Default)]
struct Slot {
    name: Box<str>,
    hash: u64,
    count: Count,
    due: u64,
}

/// None if a new key has to be kept and must not be. The type is that of a store's answer, so that nothing is
/// copied on the way.
pub(super) type Answer = Option<Result<Decision, StoreError>>;

impl Shard {
    /// Decides a take. A key that is charged for the first time needs the word of `reserve`; without it there
    /// is no answer.
    pub(super) fn take(
        &mut self,
        hash: u64,
        name: Name<'_>,
        now: u64,
        take: &Take,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        match self.find(hash, name) {
            Some(at) => Some(Ok(self.take_in(at, now, take))),
            None => self.take_first(hash, name, now, take, reserve),
        }
    }

    fn take_first(
        &mut self,
        hash: u64,
        name: Name<'_>,
        now: u64,
        take: &Take,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let mut count = Count::default();
        let decision = count.take(take.rule().counting(), now, take.quotas(), take.units());
        if count.forgotten_at() > now {
            if !reserve() {
                return None;
            }
            self.insert(hash, name, count);
        }
        Some(Ok(decision))
    }

    pub(super) fn refund(
        &mut self,
        hash: u64,
        name: Name<'_>,
        now: u64,
        token: &Token,
        units: u64,
    ) -> u64 {
        match self.find(hash, name) {
            Some(at) => self.slots[at as usize].count.refund(now, token, units),
            None => 0,
        }
    }

    fn find(&self, hash: u64, name: Name<'_>) -> Option<u32> {
        let slots = &self.slots;
        let is_it = |at: &u32| name.is(&slots[*at as usize].name);
        self.by_name.find(hash, is_it).copied()
    }

    fn take_in(&mut self, at: u32, now: u64, take: &Take) -> Decision {
        let slot = &mut self.slots[at as usize];
        let decision = slot
            .count
            .take(take.rule().counting(), now, take.quotas(), take.units());
        // Only a shorter window, or a clock that went back, makes it earlier, and then by more than the rule's
        // charges count.
        let latest = now.saturating_add(take.rule().life_micros());
        if slot.due > latest && slot.count.forgotten_at() < slot.due {
            slot.due = slot.count.forgotten_at();
            self.due.push(Reverse((slot.due, at)));
        }
        decision
    }

    fn insert(&mut self, hash: u64, name: Name<'_>, count: Count) {
        let due = count.forgotten_at();
        let slot = Slot {
            name: name.to_string().into(),
            hash,
            count,
            due,
        };
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer than four billion keys")
        });
        self.slots[at as usize] = slot;
        self.due.push(Reverse((due, at)));
        let slots = &self.slots;
        let hash_of = |at: &u32| slots[*at as usize].hash;
        self.by_name.insert_unique(hash, at, hash_of);
    }

    /// Whether there is a key that may be forgotten.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.due.peek().is_some_and(|Reverse((due, _))| *due <= now)
    }

    /// Looks at no more than so many keys that may be forgotten, drops those that are, and says how
    /// many.
    pub(super) fn drop_forgotten(&mut self, now: u64, most: usize) -> usize {
        let mut dropped = 0;
        for _ in 0..most {
            let Some(&Reverse((due, at))) = self.due.peek() else {
                break;
            };
            if due > now {
                break;
            }
            self.due.pop();
            let slot = &mut self.slots[at as usize];
            if slot.due != due {
                continue;
            }
            let forgotten_at = slot.count.forgotten_at();
            if forgotten_at > now {
                slot.due = forgotten_at;
                self.due.push(Reverse((forgotten_at, at)));
            } else {
                self.remove(at);
                dropped += 1;
            }
        }
        dropped
    }

    fn remove(&mut self, at: u32) {
        let slot = std::mem::take(&mut self.slots[at as usize]);
        if let Ok(entry) = self.by_name.find_entry(slot.hash, |found| *found == at) {
            entry.remove();
        }
        self.vacant.push(at);
    }
}
