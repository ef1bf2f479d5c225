use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::background_tasks::BackgroundTasks;
use super::error::{LockError, is_transient};
use super::held_lease::HeldLease;
use super::lease_request::LeaseRequest;

/// A lease that is released by `release`, or in the background when this is dropped.
#[derive(Debug)]
pub(super) struct LeaseGuard {
    held: Arc<HeldLease>,
    /// The tasks live at least as long as the leases that they renew.
    tasks: Arc<BackgroundTasks>,
    is_released: bool,
}

impl LeaseGuard {
    /// From one attempt to release to the next.
    const PAUSE: Duration = Duration::from_millis(50);

    /// The guard of a request that was sent at `sent` and granted.
    pub(super) fn new(
        tasks: Arc<BackgroundTasks>,
        request: LeaseRequest,
        token: u64,
        sent: Instant,
    ) -> Self {
        let channels = Arc::clone(tasks.subscriber.channels());
        Self {
            held: HeldLease::new(channels, request, token, sent),
            tasks,
            is_released: false,
        }
    }

    /// Lets the watchdog renew the lease.
    pub(super) fn with_renewal(self) -> Self {
        self.held.request.granted(self.held.token, None);
        self.tasks.watchdog.renew(&self.held);
        self
    }

    pub(super) fn held(&self) -> &HeldLease {
        &self.held
    }

    /// Releases the lease, with repeated attempts until it runs out, for at most 10 s.
    pub(super) async fn release(mut self) -> Result<(), LockError> {
        let until = self.held.end();
        let until = until.min(Instant::now() + LeaseRequest::MAX_RELEASE);
        loop {
            let reply = self.held.release().await;
            let was_held = reply.and_then(|reply| self.held.read(&reply));
            let next_attempt = Instant::now() + Self::PAUSE;
            match was_held {
                Err(error) if is_transient(&error) && next_attempt < until => {
                    sleep(Self::PAUSE).await;
                }
                // Dropping the guard lets the watchdog try again.
                Err(error) => return Err(LockError::store(self.name(), error)),
                Ok(was_held) => {
                    self.is_released = true;
                    let result = was_held.then_some(());
                    return result.ok_or_else(|| LockError::not_held(self.name()));
                }
            }
        }
    }

    fn name(&self) -> &str {
        &self.held.request.resource.keys.name
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if !self.is_released {
            let until = self.held.end();
            self.tasks.watchdog.release(Arc::clone(&self.held), until);
        }
    }
}
