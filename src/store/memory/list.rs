use smallvec::SmallVec;

use super::memory_store::{MemoryStore, lock};
use super::shard::{Answer, KeyNumbers, Loaded, Place, Shard, instant};
use super::sync::MutexGuard;
use crate::algorithm::core::{self, Asked, CountStates, State, StateKind};
use crate::question::Ask;

/// What a take over several counts has locked.
struct Locked<'a> {
    store: &'a MemoryStore,
    shards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
    counts: SmallVec<[LoadedCount<'a>; 4]>,
}

/// A count of a take: the place of its shard among those that are locked, and its state there.
struct LoadedCount<'a> {
    shard: usize,
    place: Place<'a>,
    loaded: Loaded,
    cost: u64,
}

impl MemoryStore {
    /// Decides a take over several counts, which is charged in all of them, or in none, under one
    /// instant. `None` if there is no room for all that are new.
    pub(super) fn decide_list(&self, ask: &Ask) -> Answer {
        let counts = ask.counts();
        let places = counts.iter().map(|it| self.place_of(it.name_in_store()));
        let places: SmallVec<[_; 4]> = places.collect();
        let mut indexes: SmallVec<[_; 4]> = places.iter().map(|(_, at)| *at).collect();
        indexes.sort_unstable();
        indexes.dedup();
        // In the order of the shards: two takes that need the same ones never wait for each other.
        let shards = indexes.iter().map(|at| lock(&self.shards[*at]));
        let mut locked = Locked {
            store: self,
            shards: shards.collect(),
            counts: SmallVec::new(),
        };
        let now = self.clock.now();
        for shard in &mut locked.shards {
            self.drop_due(shard, now, 2 * counts.len());
        }
        let mut asked = SmallVec::<[_; 4]>::new();
        for (count, (hash, at)) in counts.iter().zip(places) {
            let shard = indexes.binary_search(&at).expect("its shard is locked");
            let place = Place::new(count, hash, StateKind::from_spec(count.spec()));
            let cost = count.cost();
            asked.push(Asked {
                spec: count.spec(),
                cost,
                holder: self.next_holder(place.kind),
                hold: self.hold_of(ask, (count, hash), &locked.shards[shard], now)?,
            });
            let loaded = locked.shards[shard].load(place);
            locked.counts.push(LoadedCount {
                shard,
                place,
                loaded,
                cost,
            });
        }
        let kinds = locked.counts.iter().map(|it| it.place.kind);
        let now = instant(now, &self.clock, kinds);
        let decisions = core::decide(&asked, &mut locked, now)?;
        for (found, decision) in locked.counts.drain(..).zip(&decisions) {
            if decision.units() > 0 {
                let shard = &mut locked.shards[found.shard];
                shard.keep(now, found.place, found.loaded, found.cost);
            }
        }
        Some(Ok(ask.decision_of(decisions)))
    }
}

impl CountStates for Locked<'_> {
    fn state(&mut self, place: usize) -> &mut State {
        let found = &mut self.counts[place];
        self.shards[found.shard].state(&mut found.loaded)
    }

    fn reserve(&mut self) -> bool {
        let mut new = KeyNumbers::default();
        let charged = self.counts.iter().filter(|it| it.cost > 0);
        for found in charged.filter(|it| matches!(it.loaded, Loaded::New(_))) {
            new[found.place.kind as usize] += 1;
        }
        self.store.reserve(new)
    }
}
