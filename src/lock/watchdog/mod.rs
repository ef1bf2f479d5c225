//! The one task of a process that renews leases, and gives back what nobody waits for.

mod queue;
mod work;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use self::queue::Queue;
use self::work::{Sent, Work};
use super::background::caught;
use super::claim::Claim;
use super::held::Held;

/// So many calls at once: enough for ten thousand leases in a fraction of a second, and little beside what else goes
/// over the connection.
const MAX_AT_ONCE: usize = 64;
/// More releases than these wait for the task: the questions of others need room in the queue.
const MAX_SENT: usize = 1_024;

/// The handle on the task, which ends with the last one, after it has given back what it was told to.
#[derive(Debug)]
pub(super) struct Watchdog {
    queue: Arc<Queue>,
    /// Of the task.
    runtime: Handle,
    /// How many more releases may be sent before the task gets to them.
    sent: Arc<Semaphore>,
}

impl Watchdog {
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start() -> Self {
        let queue = Arc::new(Queue::default());
        tokio::spawn(run(Arc::clone(&queue)));
        Self {
            queue,
            runtime: Handle::current(),
            sent: Arc::new(Semaphore::new(MAX_SENT)),
        }
    }

    /// Renews it until its guard ends it.
    pub(super) fn watch(&self, held: &Arc<Held>) {
        if let Some(due) = held.first_renewal() {
            self.queue.push(due, Work::Renew(Arc::downgrade(held)));
        }
    }

    /// Gives it back in the background, with tries until its lease runs out. The first call is sent
    /// at once, before all later questions of this process.
    pub(super) fn release(&self, held: Arc<Held>, until: Instant) {
        let sent = self.send(&held);
        let work = Work::release(held, until, sent);
        self.queue.push(Instant::now(), work);
    }

    /// `None` if the task's runtime has ended, or if too many releases are sent already.
    fn send(&self, held: &Held) -> Option<Sent> {
        let current = Handle::try_current();
        let thread_ends = current.is_err_and(|error| error.is_thread_local_destroyed());
        if thread_ends || self.queue.has_ended() {
            return None;
        }
        let permit = Arc::clone(&self.sent).try_acquire_owned().ok()?;
        let _runtime = self.runtime.enter();
        let reply = Box::pin(held.release());
        Some(Sent {
            reply,
            _permit: permit,
        })
    }

    /// Gives back what a request may have taken of which nobody knows what became.
    pub(super) fn give_up(&self, claim: Claim) {
        self.queue.push(Instant::now(), Work::give_up(claim));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.queue.close();
    }
}

async fn run(queue: Arc<Queue>) {
    /// However the task ends, nothing waits for it in vain.
    struct Ended<'a>(&'a Queue);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let _ended = Ended(&queue);
    let mut calls = FuturesUnordered::new();
    loop {
        let mut room = MAX_AT_ONCE - calls.len();
        while let Some(work) = (room > 0).then(|| queue.pop(Instant::now())).flatten() {
            calls.push(caught(work.go_on()));
            room -= 1;
        }
        let next = queue.next();
        if calls.is_empty() && queue.is_done() {
            return;
        }
        // Without anything to do it sleeps until it is told.
        let next = next.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            Some(again) = calls.next() => {
                if let Some((due, work)) = again.flatten() {
                    queue.push(due, work);
                }
            }
            () = sleep_until(next), if room > 0 => {}
            () = queue.changed(), if room > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_costs_only_its_own_work() {
        let watchdog = Watchdog::start();
        for _ in 0..3 {
            watchdog.queue.push(Instant::now(), Work::Panic);
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(!watchdog.queue.has_ended());
        }
    }
}
