use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::work::{SentRelease, Work};
use super::work_queue::WorkQueue;
use crate::lock::catch_panic::catch_panic;
use crate::lock::held_lease::HeldLease;
use crate::lock::lease_request::LeaseRequest;

/// The number of calls in progress: enough to renew ten thousand leases in a fraction of a second,
/// and few beside the other calls on the connection.
const MAX_CALLS: usize = 64;
/// The number of releases that are sent before the task runs. The rest wait for the task, because
/// other calls need room in the connection's queue.
const MAX_SENT: usize = 1_024;

/// A handle to the task that renews leases, and that repeats releases until they are answered.
///
/// The task ends when the handle is dropped and all releases are done.
#[derive(Debug)]
pub(in crate::lock) struct Watchdog {
    queue: Arc<WorkQueue>,
    /// The runtime of the task.
    runtime: Handle,
    /// Permits for [`MAX_SENT`] releases.
    may_send: Arc<Semaphore>,
}

impl Watchdog {
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(in crate::lock) fn start() -> Self {
        let queue = Arc::new(WorkQueue::default());
        tokio::spawn(run(Arc::clone(&queue)));
        Self {
            queue,
            runtime: Handle::current(),
            may_send: Arc::new(Semaphore::new(MAX_SENT)),
        }
    }

    /// Renews the lease until its guard ends it.
    pub(in crate::lock) fn renew(&self, held: &Arc<HeldLease>) {
        if let Some(due) = held.next_renewal() {
            self.queue.push(due, Work::Renew(Arc::downgrade(held)));
        }
    }

    /// Releases the lease in the background, with repeated attempts until it runs out. The first
    /// call is sent at once, before all later calls of this process.
    pub(in crate::lock) fn release(&self, held: Arc<HeldLease>, until: Instant) {
        let sent = self.send(&held);
        let work = Work::release(held, until, sent);
        self.queue.push(Instant::now(), work);
    }

    /// Returns `None` if the task's runtime has ended, or if too many releases have been sent.
    fn send(&self, held: &HeldLease) -> Option<SentRelease> {
        let current = Handle::try_current();
        let thread_ends = current.is_err_and(|error| error.is_thread_local_destroyed());
        if thread_ends || self.queue.has_ended() {
            return None;
        }
        let permit = Arc::clone(&self.may_send).try_acquire_owned().ok()?;
        let _runtime = self.runtime.enter();
        let reply = Box::pin(held.release());
        Some(SentRelease {
            reply,
            _permit: permit,
        })
    }

    /// Gives up, in the background, a request that may have been granted.
    pub(in crate::lock) fn give_up(&self, request: LeaseRequest) {
        self.queue.push(Instant::now(), Work::give_up(request));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.queue.close();
    }
}

async fn run(queue: Arc<WorkQueue>) {
    /// Drops all work, however the task ends.
    struct EndOnDrop<'a>(&'a WorkQueue);
    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let _end = EndOnDrop(&queue);
    let mut calls = FuturesUnordered::new();
    loop {
        let mut free = MAX_CALLS - calls.len();
        while let Some(work) = (free > 0).then(|| queue.pop(Instant::now())).flatten() {
            calls.push(catch_panic(work.run()));
            free -= 1;
        }
        let next_due = queue.next_due();
        if calls.is_empty() && queue.is_done() {
            return;
        }
        // Without work, the task sleeps until the queue changes.
        let next_due = next_due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            Some(done) = calls.next() => {
                if let Some((due, work)) = done.flatten() {
                    queue.push(due, work);
                }
            }
            () = sleep_until(next_due), if free > 0 => {}
            () = queue.changed(), if free > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_only_its_own_work() {
        let watchdog = Watchdog::start();
        for _ in 0..3 {
            watchdog.queue.push(Instant::now(), Work::Panic);
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(!watchdog.queue.has_ended());
        }
    }
}
