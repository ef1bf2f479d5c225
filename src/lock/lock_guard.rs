use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::background_tasks::BackgroundTasks;
use super::error::{LockError, is_transient};
use super::held_lease::HeldLease;
use super::lease_request::LeaseRequest;

/// A held lock, which is freed when this guard is [released](LockGuard::release) or dropped.
///
/// Dropping the guard sends the release at once, before any later call of this process. A
/// background task repeats the release if it is not answered. If more than a thousand guards are
/// dropped at the same time, the last ones are released a moment later. Dropping never blocks and
/// never panics. After the runtime has ended, nothing is released, and the lease runs out.
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct LockGuard {
    held: Arc<HeldLease>,
    tasks: Arc<BackgroundTasks>,
    /// The task that renews the lease, unless it is fixed.
    renewals: Option<AbortHandle>,
    is_released: bool,
}

/// From one attempt to release to the next.
const PAUSE: Duration = Duration::from_millis(50);

impl LockGuard {
    /// The guard of a request that was sent at `sent` and granted.
    pub(super) fn new(
        tasks: &Arc<BackgroundTasks>,
        request: LeaseRequest,
        token: u64,
        sent: Instant,
    ) -> Self {
        Self {
            held: HeldLease::new(Arc::clone(&tasks.channels), request, token, sent),
            tasks: Arc::clone(tasks),
            renewals: None,
            is_released: false,
        }
    }

    /// Lets the lease be renewed.
    pub(super) fn with_renewal(mut self) -> Self {
        self.held.request.granted(self.held.token, None);
        self.renewals = Some(self.tasks.renew(&self.held));
        self
    }

    /// Frees the lock, or one of its owner's holds, and waits until Redis has done it.
    ///
    /// A call without a reply is repeated until the lease runs out, for at most 10 s; it counts
    /// once. If the future is dropped, or ends with an error, a background task goes on.
    ///
    /// # Errors
    ///
    /// [`LockError`] of the kind [`NotHeld`](super::LockErrorKind::NotHeld) if the lock had been
    /// lost: another holder may have had it at the same time. Of the kind
    /// [`Store`](super::LockErrorKind::Store) if Redis did not answer, or refused.
    pub async fn release(mut self) -> Result<(), LockError> {
        let until = self.held.end();
        let until = until.min(Instant::now() + LeaseRequest::MAX_RELEASE);
        let name = &self.held.request.resource.keys.name;
        loop {
            let reply = self.held.release().await;
            let was_held = reply.and_then(|reply| self.held.read(&reply));
            match was_held {
                Err(error) if is_transient(&error) && Instant::now() + PAUSE < until => {
                    sleep(PAUSE).await;
                }
                // Dropping the guard lets a background task try again.
                Err(error) => return Err(LockError::store(name, error)),
                Ok(was_held) => {
                    self.is_released = true;
                    let result = was_held.then_some(());
                    return result.ok_or_else(|| LockError::not_held(name));
                }
            }
        }
    }

    /// The fencing token: higher than the tokens of all earlier holders, so that the protected
    /// resource can refuse a holder that comes late. Overlapping guards of one owner share a
    /// token.
    ///
    /// The token is at least the microseconds since 1970 by Redis's clock. So it rises also after
    /// the lock has expired, and after Redis has lost its data, unless Redis's clock goes back at
    /// the same time.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.held.token
    }

    /// Whether the lease goes on, as far as this process knows. It does not ask Redis.
    ///
    /// The process may be paused right after this call. The
    /// [fencing token](LockGuard::fencing_token) protects against that.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.until().is_some()
    }

    /// Completes when the lease is over.
    ///
    /// It is over when it has run out, because it is fixed or because Redis could not be reached,
    /// when the lock was taken away, and when the guard is gone.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn run(guard: tidegate::lock::LockGuard) {
    /// tokio::select! {
    ///     () = work() => println!("done"),
    ///     () = guard.lost() => println!("another process may hold the lock by now"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.held.over()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(renewals) = &self.renewals {
            renewals.abort();
        }
        if !self.is_released {
            let until = self.held.end();
            self.tasks.release(Arc::clone(&self.held), until);
        }
    }
}
