//! The places of those that wait for one count, or of one layer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::line::Sleeper;

/// Wakes each that waits, by its lane and its arrival.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) lanes: BTreeMap<u16, BTreeMap<u64, Arc<Sleeper>>>,
    taken: usize,
}

/// A place: its lane, and when its waiter arrived.
pub(super) type WaiterPlace = (u16, u64);

/// A waiter whose place another one takes.
pub(super) type Displaced = (WaiterPlace, Arc<Sleeper>);

impl Places {
    pub(super) fn add(&mut self, (lane, arrival): WaiterPlace, sleeper: Arc<Sleeper>) {
        let of_lane = self.lanes.entry(lane).or_default();
        // A take may ask about one count twice.
        self.taken += usize::from(of_lane.insert(arrival, sleeper).is_none());
    }

    /// Its waiter leaves, or is denied.
    pub(super) fn remove(&mut self, (lane, arrival): WaiterPlace) {
        let Some(of_lane) = self.lanes.get_mut(&lane) else {
            return;
        };
        if let Some(sleeper) = of_lane.remove(&arrival) {
            self.taken -= 1;
            sleeper.changed.notify_one();
        }
        if of_lane.is_empty() {
            self.lanes.remove(&lane);
        }
    }

    pub(super) fn has(&self, (lane, arrival): WaiterPlace) -> bool {
        let lane = self.lanes.get(&lane);
        lane.is_some_and(|it| it.contains_key(&arrival))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Returns the waiter whose place one more of this lane takes, where `max` are taken: the
    /// youngest of the longest lane. It is `Some(None)` if one is free, and `None` unless the longest
    /// lane stays at least as long as this one gets: else those of many lanes with a waiter each
    /// would drive one another out.
    pub(super) fn for_one_of(&self, lane: u16, max: usize) -> Option<Option<Displaced>> {
        if self.taken < max {
            return Some(None);
        }
        let own = self.lanes.get(&lane).map_or(0, BTreeMap::len);
        let (longest, waiters) = self.lanes.iter().max_by_key(|(_, it)| it.len())?;
        let (youngest, sleeper) = waiters.last_key_value()?;
        let displaced = ((*longest, *youngest), Arc::clone(sleeper));
        (own + 1 < waiters.len()).then_some(Some(displaced))
    }
}
