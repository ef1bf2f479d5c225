use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;
use slab::Slab;

use crate::algorithm::core::{Now, State, StateKind};
use crate::algorithm::spec::{Spec, Windows};
use crate::algorithm::{Algorithm, AlgorithmConfig, Count};
use crate::clock::Clock;
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::question::{CountAsk, Name};
use crate::quota::Quota;

/// A part of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    slots: Slab<Slot>,
    by_name: HashTable<u32>,
    /// When each slot has to be looked at: the slot's `due` is always in here. Unless a count of
    /// windows was given units back, it is never more than twice as far away as the instant at
    /// which the state is forgotten. Outdated entries are skipped.
    due: DueQueue,
}

#[derive(Debug)]
struct Slot {
    name: Box<str>,
    entry: Entry,
}

/// A key's state, and the hash of its name.
#[derive(Debug)]
enum Entry {
    /// Of windows. Its due is the instant at which the count is forgotten.
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
    state: State,
    due: u64,
}

/// An empty shard frees its memory if it has room for more keys than these.
const KEPT_CAPACITY: usize = 64;

/// [`Shard::due`] may have this many outdated entries, and as many as an eighth of the keys.
const EXTRA_DUE_ENTRIES: usize = 64;

/// Where the state of a count is in its shard: a hash of its name and kind, the name, and which of
/// the states under it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) hash: u32,
    pub(super) name: &'a Name,
    pub(super) kind: StateKind,
    pub(super) spec: &'a Spec,
}

impl<'a> Place<'a> {
    /// That of a count, by the hash of its name.
    #[inline]
    pub(super) fn new(count: &'a CountAsk, hash: u32, kind: StateKind) -> Self {
        Self {
            hash: hash ^ kind as u32,
            name: count.name_in_store(),
            kind,
            spec: count.spec(),
        }
    }
}

/// A state that was found, or is made.
pub(super) enum Loaded {
    At(u32),
    New(State),
}

/// This instant, and that of the host's clock if one of these kinds needs it.
pub(super) fn instant(
    micros: u64,
    clock: &Clock,
    kinds: impl IntoIterator<Item = StateKind>,
) -> Now {
    let needs_wall = kinds.into_iter().any(|it| it == StateKind::Calendar);
    let wall = if needs_wall { clock.wall() } else { 0 };
    Now { micros, wall }
}

/// How many states of each kind.
pub(super) type KeyNumbers = [usize; StateKind::ALL.len()];

/// `None` if there is no room for a new key. The type is that of a store's answer, so that it is
/// not copied.
pub(super) type Answer = Option<Result<Decision, StoreError>>;

impl Shard {
    /// Decides a take over one count of windows. A key that is charged for the first time calls
    /// `reserve` for its room; there is no answer if that is refused.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: u64,
        of: Place<'_>,
        windows: &Windows,
        cost: u64,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let Some(at) = self.find(of.hash, of.name) else {
            return self.take_first(now, of, windows, cost, reserve);
        };
        let Entry::Full { full, .. } = &mut self.slots.get_mut(at as usize)?.entry else {
            return self.take_again(now, at, windows, cost);
        };
        let State::Windows(count) = &mut full.state else {
            return None;
        };
        let decision = count.take(windows.config, now, &windows.quotas, cost);
        // Only a shorter window, or a clock that went back, makes the due earlier.
        if full.due > now.saturating_add(windows.life) {
            self.bring_forward(at, Now::within(now));
        }
        Some(Ok(decision))
    }

    fn take_first(
        &mut self,
        now: u64,
        of: Place<'_>,
        windows: &Windows,
        cost: u64,
        reserve: impl FnOnce() -> bool,
    ) -> Answer {
        let mut count = Count::new(windows.algorithm());
        let decision = count.take(windows.config, now, &windows.quotas, cost);
        if decision.units() > 0 {
            if !reserve() {
                return None;
            }
            self.insert_first(Now::within(now), of, State::Windows(count), cost);
        }
        Some(Ok(decision))
    }

    /// Decides a take of a key that was charged once.
    #[inline(never)]
    fn take_again(&mut self, now: u64, at: u32, windows: &Windows, cost: u64) -> Answer {
        let entry = &mut self.slots.get_mut(at as usize)?.entry;
        let Entry::ChargedOnce { hash, once } = entry else {
            return None;
        };
        let mut count = once.count();
        let decision = count.take(windows.config, now, &windows.quotas, cost);
        if decision.units() > 0 {
            *entry = Entry::full(*hash, State::Windows(count), once.forgotten_at());
            self.bring_forward(at, Now::within(now));
        }
        Some(Ok(decision))
    }

    /// The state of a count, to be asked and [kept](Self::keep).
    pub(super) fn load(&mut self, of: Place<'_>) -> Loaded {
        let at = self.find(of.hash, of.name);
        at.map_or_else(|| Loaded::New(State::new(of.kind, of.spec)), Loaded::At)
    }

    pub(super) fn state<'a>(&'a mut self, loaded: &'a mut Loaded) -> &'a mut State {
        match loaded {
            Loaded::New(state) => state,
            Loaded::At(at) => {
                let full = self.as_full(*at);
                &mut full.expect("it was found under this lock").state
            }
        }
    }

    /// Keeps a state that a take of this cost was charged in. There is room for it if it is new.
    pub(super) fn keep(&mut self, now: Now, of: Place<'_>, loaded: Loaded, cost: u64) {
        match loaded {
            Loaded::New(state) => self.insert_first(now, of, state, cost),
            Loaded::At(at) => self.bring_forward(at, now),
        }
    }

    /// Keeps the state of a key that was charged for the first time.
    fn insert_first(&mut self, now: Now, of: Place<'_>, state: State, cost: u64) {
        let (hash, due) = (of.hash, now.micros.saturating_add(state.needed_for(now)));
        let windows = of.spec.windows();
        let once = windows.and_then(|it| ChargedOnce::new(it, cost, now.micros));
        let entry = match once {
            Some(once) => Entry::ChargedOnce { hash, once },
            None => Entry::full(hash, state, due),
        };
        self.insert(hash, of.name, entry, due);
    }

    /// Gives back up to so many units of this receipt, and returns their number.
    pub(super) fn refund(
        &mut self,
        now: Now,
        of: Place<'_>,
        receipt: &Receipt,
        units: u64,
    ) -> Option<u64> {
        let at = self.find(of.hash, of.name)?;
        let refunded = self.as_full(at)?.state.refund(of.spec, now, receipt, units);
        // A key whose takes are given back would come and go.
        if of.kind != StateKind::Windows {
            self.bring_forward(at, now);
        }
        Some(refunded)
    }

    /// Changes a state. A new one that is needed then calls `reserve` for its room; the answer is
    /// `None` if that is refused.
    pub(super) fn change<T>(
        &mut self,
        now: Now,
        of: Place<'_>,
        change: impl FnOnce(&mut State) -> T,
        reserve: impl FnOnce() -> bool,
    ) -> Option<T> {
        if let Some(at) = self.find(of.hash, of.name) {
            let changed = change(&mut self.as_full(at)?.state);
            self.bring_forward(at, now);
            return Some(changed);
        }
        let mut state = State::new(of.kind, of.spec);
        let changed = change(&mut state);
        let needed_for = state.needed_for(now);
        if needed_for > 0 {
            if !reserve() {
                return None;
            }
            let due = now.micros.saturating_add(needed_for);
            self.insert(of.hash, of.name, Entry::full(of.hash, state, due), due);
        }
        Some(changed)
    }

    /// The state in a slot, which no longer says only that the key was charged once.
    fn as_full(&mut self, at: u32) -> Option<&mut FullEntry> {
        let entry = &mut self.slots.get_mut(at as usize)?.entry;
        if let Entry::ChargedOnce { hash, once } = entry {
            let state = State::Windows(once.count());
            *entry = Entry::full(*hash, state, once.forgotten_at());
        }
        match entry {
            Entry::Full { full, .. } => Some(full),
            Entry::ChargedOnce { .. } => None,
        }
    }

    /// The state of a count, if it is more than that the key was charged once.
    pub(super) fn known(&self, of: Place<'_>) -> Option<&State> {
        let at = self.find(of.hash, of.name)?;
        slot_at(&self.slots, at)?.entry.state()
    }

    /// What each state that may go where there is no room is worth, and its place.
    pub(super) fn eviction_ranks(&self, now: u64) -> impl Iterator<Item = ((bool, u64), usize)> {
        let worth = move |slot: &Slot| slot.entry.state()?.worth(now);
        let slots = self.slots.iter();
        slots.filter_map(move |(at, slot)| Some((worth(slot)?, at)))
    }

    /// Forgets the state at a place if it still is [worth](Self::eviction_ranks) this.
    pub(super) fn forget(&mut self, now: u64, worth: (bool, u64), at: usize) -> KeyNumbers {
        let mut dropped = KeyNumbers::default();
        let state = self.slots.get(at).and_then(|slot| slot.entry.state());
        if let Some(state) = state
            && state.worth(now) == Some(worth)
        {
            dropped[state.kind() as usize] += 1;
            self.remove(at as u32);
        }
        dropped
    }

    /// Moves a slot's due forward to the instant at which its state is forgotten, if that is much
    /// earlier.
    #[cold]
    fn bring_forward(&mut self, at: u32, now: Now) {
        let slot = self.slots.get_mut(at as usize);
        let Some(Entry::Full { full, .. }) = slot.map(|slot| &mut slot.entry) else {
            return;
        };
        let needed_for = full.state.needed_for(now);
        // A refund makes it a little earlier, which is not worth an entry.
        if now.micros.saturating_add(needed_for.saturating_mul(2)) >= full.due {
            return;
        }
        let forgotten_at = now.micros + needed_for;
        full.due = forgotten_at;
        self.due.push(forgotten_at, at);
        if self.due.len() > EXTRA_DUE_ENTRIES + self.slots.len() + self.slots.len() / 8 {
            let slots = &self.slots;
            self.due
                .retain(|due, at| slot_at(slots, at).is_some_and(|slot| slot.entry.is_due_at(due)));
        }
    }

    /// The hashes tell the kinds of state under a name apart.
    fn find(&self, hash: u32, name: &Name) -> Option<u32> {
        let is_it = |slot: &Slot| slot.entry.hash() == hash && name.is(&slot.name);
        let is_it = |at: &u32| slot_at(&self.slots, *at).is_some_and(is_it);
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
    /// numbers.
    pub(super) fn drop_forgotten(&mut self, now: u64, clock: &Clock, max: usize) -> KeyNumbers {
        let mut dropped = KeyNumbers::default();
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
            let kind = slot.entry.kind();
            if let Entry::Full { full, .. } = &mut slot.entry {
                let needed_for = full.state.needed_for(instant(now, clock, [kind]));
                if needed_for > 0 {
                    full.due = now.saturating_add(needed_for);
                    self.due.push(full.due, at);
                    continue;
                }
            }
            self.remove(at);
            dropped[kind as usize] += 1;
        }
        if dropped != KeyNumbers::default()
            && self.slots.is_empty()
            && self.slots.capacity() > KEPT_CAPACITY
        {
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
    fn full(hash: u32, state: State, due: u64) -> Self {
        let full = Box::new(FullEntry { state, due });
        Self::Full { hash, full }
    }

    fn hash(&self) -> u32 {
        match self {
            Self::ChargedOnce { hash, .. } | Self::Full { hash, .. } => *hash,
        }
    }

    /// A key that was charged once has no other.
    fn state(&self) -> Option<&State> {
        match self {
            Self::ChargedOnce { .. } => None,
            Self::Full { full, .. } => Some(&full.state),
        }
    }

    fn kind(&self) -> StateKind {
        self.state().map_or(StateKind::Windows, State::kind)
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
    pub(super) fn new(windows: &Windows, cost: u64, now: u64) -> Option<Self> {
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
        Quota::from_parts(self.max.into(), window, self.burst.into())
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
            let quota = Quota::from_micros(max, millis * 1_000);
            for algorithm in Algorithm::ALL {
                for cost in [1, max.div_ceil(2), max] {
                    let windows = Windows::new(algorithm.into(), [quota].into(), None);
                    let once = ChargedOnce::new(&windows, cost, 12_345).expect("it is small");
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
