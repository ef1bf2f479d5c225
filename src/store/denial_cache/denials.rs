use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::denial_set::{Denial, DenialSet, MAX_DENIALS, Question};
use crate::clock::{Clock, nanos};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::Take;

/// The denials that are kept. The place of a rule and key is given by their hash, which no client
/// can choose, so neither the number of keys nor a flood of them makes a look take longer.
pub(in crate::store) struct Denials {
    sets: Box<[Mutex<DenialSet>]>,
    max_per_set: usize,
    /// In nanoseconds.
    max_age: u64,
    clock: Clock,
}

impl Denials {
    /// For at most `max_keys` denials.
    pub(in crate::store) fn new(max_keys: usize, max_age: Duration, clock: Clock) -> Self {
        let max_per_set = max_keys.clamp(1, MAX_DENIALS);
        Self {
            sets: (0..max_keys / max_per_set)
                .map(|_| Mutex::default())
                .collect(),
            max_per_set,
            max_age: nanos(max_age),
            clock,
        }
    }

    /// The take that the store has to answer. `None` if its answer is not remembered.
    ///
    /// # Errors
    ///
    /// The denial that answers this take.
    pub(in crate::store) fn look(
        self: &Arc<Self>,
        take: &Take,
    ) -> Result<Option<PendingTake>, Decision> {
        if take.cost() == 0 || take.is_repeat() || self.max_age == 0 {
            return Ok(None);
        }
        let hash = take.count_name().hash();
        let Some(mut set) = self.set(hash) else {
            return Ok(None);
        };
        // Read under the lock: a thread that waits for the lock would come with an old instant.
        let now = self.clock.nanos();
        let question = set.look(take, now, self.max_age)?;
        let denials = Arc::clone(self);
        Ok(Some(PendingTake {
            denials,
            hash,
            question,
        }))
    }

    /// Voids what is kept of this take's count. Nothing of it is kept before the guard is
    /// dropped, nor later if it was asked before.
    pub(in crate::store) fn begin_change(self: &Arc<Self>, take: &Take) -> ChangeGuard {
        let hash = take.count_name().hash();
        if let Some(mut set) = self.set(hash) {
            set.begin_change(hash);
        }
        ChangeGuard {
            denials: Arc::clone(self),
            hash,
        }
    }

    /// The set of this hash; `None` if there is no room for any denial.
    fn set(&self, hash: u64) -> Option<MutexGuard<'_, DenialSet>> {
        // The upper half of the hash, as a fraction of the number of sets.
        let at = (u128::from(hash) * self.sets.len() as u128) >> 64;
        let set = self.sets.get(usize::try_from(at).ok()?)?;
        Some(set.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denials")
            .field("max_keys", &(self.sets.len() * self.max_per_set))
            .finish_non_exhaustive()
    }
}

/// A refund or a reset, until it is answered or dropped.
#[derive(Debug)]
pub(in crate::store) struct ChangeGuard {
    denials: Arc<Denials>,
    hash: u64,
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        if let Some(mut set) = self.denials.set(self.hash) {
            set.end_change();
        }
    }
}

/// A take that the store has to answer. If it is dropped without an answer, the denial that it was
/// to renew is void.
#[derive(Debug)]
pub(in crate::store) struct PendingTake {
    denials: Arc<Denials>,
    hash: u64,
    question: Question,
}

impl PendingTake {
    /// Keeps the store's answer if it is a denial.
    pub(in crate::store) fn answered(mut self, take: &Take, answer: &Result<Decision, StoreError>) {
        let denial = answer.as_ref().ok().and_then(|decision| {
            let now = || self.denials.clock.nanos();
            Denial::new(take, decision, self.question.asked_at, now)
        });
        self.end(denial.map(|denial| (take, denial)));
    }

    fn end(&mut self, denial: Option<(&Take, Denial)>) {
        if denial.is_none() && self.question.renewal.is_none() {
            return;
        }
        if let Some(mut set) = self.denials.set(self.hash) {
            set.answered(&self.question, denial, self.denials.max_per_set);
        }
        self.question.renewal = None;
    }
}

impl Drop for PendingTake {
    fn drop(&mut self) {
        self.end(None);
    }
}
