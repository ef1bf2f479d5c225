use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::key_leases::KeyLeases;
use super::moment::{Clocks, Moment};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::rule::CountName;
use crate::store::Take;

/// The places for leases. Each key has one, which it shares with others.
pub(super) type Places = Arc<[Mutex<Option<KeyLeases>>]>;

/// The number of this count's place.
pub(super) fn place_of(places: &Places, name: &CountName) -> usize {
    let place = name.hash() % places.len() as u64;
    usize::try_from(place).expect("there are as many places")
}

/// Nothing panics while it is locked.
pub(super) fn lock(place: &Mutex<Option<KeyLeases>>) -> MutexGuard<'_, Option<KeyLeases>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of the key of a take, for what is known of it later.
pub(super) struct Place {
    pub(super) places: Places,
    pub(super) number: usize,
    pub(super) take: Take,
    pub(super) clocks: Clocks,
}

impl Place {
    /// What it does with the leases of its key; `None` if the place is another key's by now.
    pub(super) fn leases<T>(&self, act: impl FnOnce(&mut KeyLeases, Moment) -> T) -> Option<T> {
        let mut leases = lock(&self.places[self.number]);
        let leases = leases.as_mut()?;
        let is_own = leases.is_of(self.take.count_name());
        is_own.then(|| act(leases, self.clocks.now()))
    }

    /// The store has answered the take. Only what the fleet's store grants is demand: to hold units
    /// for takes that are denied would keep these units from other processes.
    pub(super) fn count_demand(&self, answer: &Result<Decision, StoreError>) {
        let granted = answer
            .as_ref()
            .is_ok_and(|decision| decision.is_allowed() && decision.failure().is_none());
        if granted {
            self.leases(|leases, now| leases.granted(self.take.rule(), now, self.take.cost()));
        }
    }
}
