use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::owner::next_number;

/// What one owner holds, or has asked for, of all locks. Redis knows only a count and one expiry.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<BTreeMap<u64, Known>>);

#[derive(Debug)]
struct Known {
    lock: Arc<str>,
    lease: Duration,
    /// Missing until Redis has answered.
    token: Option<u64>,
    /// When the lease ends, if nobody renews it.
    until: Option<Instant>,
}

/// One of an owner's holds, from before it is asked for until it is released or dropped.
#[derive(Debug)]
pub(super) struct Hold {
    number: u64,
    lock: Arc<str>,
    holds: Arc<Holds>,
}

/// What is known of an owner's other holds of the same lock when one of them is renewed or
/// released.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others {
    /// Whether none of them was, or may have been, acquired after the lock was lost.
    pub(super) are_of_same: bool,
    /// How long they need the lock. `None` if there are none.
    pub(super) need: Option<Duration>,
}

impl Others {
    pub(super) const NONE: Self = Self {
        are_of_same: true,
        need: None,
    };
}

impl Hold {
    /// Of a lock of this name, as this process calls it.
    pub(super) fn new(holds: &Arc<Holds>, lock: Arc<str>, lease: Duration) -> Self {
        let hold = Self {
            number: next_number(),
            lock: Arc::clone(&lock),
            holds: Arc::clone(holds),
        };
        let known = Known {
            lock,
            lease,
            token: None,
            until: None,
        };
        holds.known().insert(hold.number, known);
        hold
    }

    /// Whether the owner has others of the same lock.
    pub(super) fn is_nested(&self) -> bool {
        let known = self.holds.known();
        let mut others = known.iter().filter(|(number, _)| **number != self.number);
        others.any(|(_, other)| other.lock == self.lock && other.token.is_some())
    }

    /// Redis has granted it, up to an instant if it is not renewed.
    pub(super) fn taken(&self, token: u64, until: Option<Instant>) {
        if let Some(known) = self.holds.known().get_mut(&self.number) {
            (known.token, known.until) = (Some(token), until);
        }
    }

    /// It is released from now on. Whether that is so for the first time.
    pub(super) fn end(&self) -> bool {
        self.holds.known().remove(&self.number).is_some()
    }

    /// Sends a call for it, if granted with its token. The owner begins no other request before
    /// that is sent, so Redis never gets the call after a request that the call does not know of.
    pub(super) fn send<T>(&self, token: Option<u64>, send: impl FnOnce(Others) -> T) -> T {
        let known = self.holds.known();
        let others = known.iter().filter(|(number, other)| {
            let counts = token.is_none() || other.token.is_none() || other.token >= token;
            **number != self.number && other.lock == self.lock && counts
        });
        let mut all = Others::NONE;
        for (_, other) in others {
            all.are_of_same &= token.is_some() && other.token == token;
            all.need = all.need.max(Some(other.need()));
        }
        send(all)
    }
}

impl Known {
    /// How long it needs the lock from now on.
    fn need(&self) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map_or(self.lease, left)
    }
}

impl Holds {
    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.known().remove(&self.number);
    }
}
