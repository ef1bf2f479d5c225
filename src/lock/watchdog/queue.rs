use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Work;

/// What there is to do, by when.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    works: BinaryHeap<Reverse<Due>>,
    /// At so many, those whose guards are gone are dropped.
    crowded: usize,
    /// There are no handles any more.
    is_closed: bool,
    /// There is no task any more.
    has_ended: bool,
}

#[derive(Debug)]
struct Due {
    at: Instant,
    work: Work,
}

impl Queue {
    const FEW: usize = 1_024;

    pub(super) fn push(&self, at: Instant, work: Work) {
        let mut waiting = self.waiting();
        if waiting.has_ended {
            return;
        }
        if waiting.works.len() >= waiting.crowded {
            waiting.works.retain(|Reverse(due)| due.work.is_wanted());
            waiting.crowded = Self::FEW.max(2 * waiting.works.len());
        }
        let is_first = waiting.works.peek().is_none_or(|first| at < first.0.at);
        waiting.works.push(Reverse(Due { at, work }));
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// The next one whose time has come.
    pub(super) fn pop(&self, now: Instant) -> Option<Work> {
        let mut waiting = self.waiting();
        let is_due = waiting.works.peek().is_some_and(|next| next.0.at <= now);
        is_due.then(|| waiting.works.pop().map(|next| next.0.work))?
    }

    /// When the next one's time comes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting().works.peek().map(|next| next.0.at)
    }

    /// Completes when there may be something earlier to do.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether nothing will ever be to do again.
    pub(super) fn is_done(&self) -> bool {
        let waiting = self.waiting();
        waiting.is_closed && !waiting.works.iter().any(|due| due.0.work.is_wanted())
    }

    /// Whether nothing is done any more.
    pub(super) fn has_ended(&self) -> bool {
        self.waiting().has_ended
    }

    /// Nothing comes in any more.
    pub(super) fn close(&self) {
        self.waiting().is_closed = true;
        self.changed.notify_one();
    }

    /// Nothing is done any more.
    pub(super) fn end(&self) {
        let mut waiting = self.waiting();
        waiting.has_ended = true;
        let works = std::mem::take(&mut waiting.works);
        drop(waiting);
        drop(works);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}
