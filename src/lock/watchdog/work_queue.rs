use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::work::Work;

/// The watchdog's work, by the instant at which it is due.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    works: Mutex<DueWorks>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct DueWorks {
    /// By the instant at which each piece is due, and by its number.
    by_due: BTreeMap<(Instant, u64), Work>,
    last_number: u64,
    /// At this number of pieces, those that are no longer needed are dropped.
    sweep_at: usize,
    /// The [`Watchdog`](super::Watchdog) was dropped.
    is_closed: bool,
    /// The task has ended.
    has_ended: bool,
}

impl WorkQueue {
    const MIN_SWEEP: usize = 1_024;

    pub(super) fn push(&self, due: Instant, work: Work) {
        let mut works = self.works();
        if works.has_ended {
            return;
        }
        if works.by_due.len() >= works.sweep_at {
            works.by_due.retain(|_, work| work.is_needed());
            works.sweep_at = Self::MIN_SWEEP.max(2 * works.by_due.len());
        }
        let is_first = works.next_due().is_none_or(|first| due < first);
        works.last_number += 1;
        let number = works.last_number;
        works.by_due.insert((due, number), work);
        drop(works);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Takes the next piece of work that is due.
    pub(super) fn pop(&self, now: Instant) -> Option<Work> {
        let mut works = self.works();
        let is_due = works.next_due().is_some_and(|due| due <= now);
        is_due.then(|| works.by_due.pop_first().map(|(_, work)| work))?
    }

    /// When the next piece of work is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.works().next_due()
    }

    /// Completes when work may be due earlier than before, or when the queue was closed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether the queue is closed and no work is left.
    pub(super) fn is_done(&self) -> bool {
        let works = self.works();
        works.is_closed && !works.by_due.values().any(Work::is_needed)
    }

    /// Whether the task has ended, so that no work is done.
    pub(super) fn has_ended(&self) -> bool {
        self.works().has_ended
    }

    /// Ends the task once all work is done.
    pub(super) fn close(&self) {
        self.works().is_closed = true;
        self.changed.notify_one();
    }

    /// Drops all work, because the task has ended.
    pub(super) fn end(&self) {
        let mut works = self.works();
        works.has_ended = true;
        let dropped = std::mem::take(&mut works.by_due);
        drop(works);
        drop(dropped);
    }

    fn works(&self) -> MutexGuard<'_, DueWorks> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DueWorks {
    fn next_due(&self) -> Option<Instant> {
        self.by_due.keys().next().map(|(due, _)| *due)
    }
}
