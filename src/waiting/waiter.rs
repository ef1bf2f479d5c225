//! A request or call that waits: how long it may, and when it asks again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::wait_queue::{
    ASK_EVERY, Lacking, Left, QueueId, Turn, WaitBound, WaitPlace, WaitQueues,
};
use crate::jitter;

/// The shortest and the longest pause before a request that may wait asks an overloaded store
/// again.
const OVERLOADED: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];

/// How long requests may wait, and how many. Clones share the number.
///
/// Every request asks when it arrives: only a denied request waits.
#[derive(Debug, Clone)]
pub(crate) struct WaitLimits {
    pub(crate) up_to: Duration,
    pub(crate) max: usize,
    /// Stands among the hashes of counts for those that wait by these limits.
    hash: u64,
}

/// Whether a take may wait, or has waited already.
pub(crate) enum Wait {
    /// It may wait, and has waited in an outer layer since this instant.
    May(Option<Instant>),
    Did(Box<Waiter>),
}

impl Wait {
    /// The first of these queues in which others are before the take.
    pub(crate) fn behind(
        &self,
        queues: &WaitQueues,
        of: impl Iterator<Item = QueueId>,
        has_lanes: bool,
    ) -> Option<QueueId> {
        let place = match self {
            Self::May(_) => None,
            Self::Did(waiter) => Some(&waiter.place),
        };
        queues.before(of, has_lanes, place)
    }
}

/// A request or call that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) since: Instant,
    bound: WaitBound,
    /// Whether the store was overloaded when it asked last, and its slot to ask again.
    pub(crate) was_overloaded: bool,
    slot: Option<OwnedSemaphorePermit>,
    place: WaitPlace,
}

impl WaitLimits {
    const DEFAULT_MAX: usize = 1_024;

    /// Whether a request may wait.
    pub(crate) fn is_on(&self) -> bool {
        !self.up_to.is_zero()
    }

    /// Returns a waiter if there is a place for one more. Of all places, each of these counts,
    /// given by their hashes, has at most a quarter.
    pub(crate) fn enter(
        &self,
        queues: &WaitQueues,
        bounded_by: impl Iterator<Item = u64>,
        lane: super::line::KeyedLane,
        since: Instant,
    ) -> Option<Box<Waiter>> {
        let of_counts = bounded_by.map(|hash| (hash, (self.max / 4).max(1)));
        let bounds = of_counts.chain([(self.hash, self.max)]);
        let until = since.checked_add(self.up_to);
        let place = queues.enter(bounds, lane, until)?;
        Some(Box::new(Waiter {
            since,
            bound: WaitBound {
                until,
                may_return: false,
            },
            was_overloaded: false,
            slot: None,
            place,
        }))
    }
}

impl Waiter {
    /// Whether it still waits at this instant.
    pub(crate) fn has_time_at(&self, now: Instant) -> bool {
        self.bound.until.is_none_or(|until| now < until)
    }

    /// The request was denied, and goes on waiting. Returns false if it gives up: the units that it
    /// lacks come too late.
    pub(crate) fn denied(&mut self, lacking: Lacking, may_return: bool) -> bool {
        let until = self.bound.until.zip(lacking.free_at);
        let is_late = until.is_some_and(|(until, free_at)| free_at > until);
        if is_late && !may_return {
            return false;
        }
        (self.bound.may_return, self.slot) = (may_return, None);
        self.place.denied(lacking);
        true
    }

    /// When its cost fits if nobody else asks, as far as is known.
    pub(crate) fn fits_at(&self) -> Option<Instant> {
        self.place.fits_at()
    }

    /// Sleeps until it has to ask. Returns false if it gives up. Once `must_ask` is true it sleeps
    /// no longer than a second.
    pub(crate) async fn turn(&mut self, must_ask: impl Fn() -> bool) -> bool {
        if self.was_overloaded {
            self.slot().await;
            return self.has_time_at(Instant::now()) && !self.place.is_closed();
        }
        self.place.turn(self.bound, must_ask).await
    }

    /// Waits for a slot to ask an overloaded store again, for at most a second. A waiter that has a
    /// slot pauses before it asks.
    async fn slot(&mut self) {
        let until = |time| {
            let end = Instant::now() + time;
            self.bound.until.map_or(end, |until| until.min(end))
        };
        if self.slot.is_some() {
            let [min, max] = OVERLOADED;
            sleep_until(until(min + jitter::up_to(max - min))).await;
        } else {
            self.slot = self.place.slot(until(ASK_EVERY)).await;
        }
    }

    /// The request was allowed: the waiters behind it may find units, too.
    pub(crate) fn allowed(self, left: impl FnOnce(u64) -> Left) -> Option<Turn> {
        self.place.allowed(left)
    }
}

impl Default for WaitLimits {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            up_to: Duration::ZERO,
            max: Self::DEFAULT_MAX,
            hash: LAST.fetch_add(1, Ordering::Relaxed),
        }
    }
}
