use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::work::Work;

/// The watchdog's work, by the instant at which it is due.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    heap: Mutex<WorkHeap>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct WorkHeap {
    heap: BinaryHeap<Reverse<DueWork>>,
    /// At this number of pieces, those that are no longer needed are dropped.
    sweep_at: usize,
    /// The [`Watchdog`](super::Watchdog) was dropped.
    is_closed: bool,
    /// The task has ended.
    has_ended: bool,
}

#[derive(Debug)]
struct DueWork {
    due: Instant,
    work: Work,
}

impl WorkQueue {
    const MIN_SWEEP: usize = 1_024;

    pub(super) fn push(&self, due: Instant, work: Work) {
        let mut queue = self.heap();
        if queue.has_ended {
            return;
        }
        if queue.heap.len() >= queue.sweep_at {
            queue.heap.retain(|Reverse(next)| next.work.is_needed());
            queue.sweep_at = Self::MIN_SWEEP.max(2 * queue.heap.len());
        }
        let is_first = queue.heap.peek().is_none_or(|first| due < first.0.due);
        queue.heap.push(Reverse(DueWork { due, work }));
        drop(queue);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Takes the next piece of work that is due.
    pub(super) fn pop(&self, now: Instant) -> Option<Work> {
        let mut queue = self.heap();
        let is_due = queue.heap.peek().is_some_and(|next| next.0.due <= now);
        is_due.then(|| queue.heap.pop().map(|next| next.0.work))?
    }

    /// When the next piece of work is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.heap().heap.peek().map(|next| next.0.due)
    }

    /// Completes when work may be due earlier than before, or when the queue was closed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether the queue is closed and no work is left.
    pub(super) fn is_done(&self) -> bool {
        let queue = self.heap();
        queue.is_closed && !queue.heap.iter().any(|next| next.0.work.is_needed())
    }

    /// Whether the task has ended, so that no work is done.
    pub(super) fn has_ended(&self) -> bool {
        self.heap().has_ended
    }

    /// Ends the task once all work is done.
    pub(super) fn close(&self) {
        self.heap().is_closed = true;
        self.changed.notify_one();
    }

    /// Drops all work, because the task has ended.
    pub(super) fn end(&self) {
        let mut queue = self.heap();
        queue.has_ended = true;
        let heap = std::mem::take(&mut queue.heap);
        drop(queue);
        drop(heap);
    }

    fn heap(&self) -> MutexGuard<'_, WorkHeap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ord for DueWork {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.cmp(&other.due)
    }
}

impl PartialOrd for DueWork {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DueWork {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for DueWork {}
