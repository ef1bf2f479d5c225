use std::fmt;

use super::error::LockError;
use super::lease_guard::LeaseGuard;

/// A held lock, which is freed when this guard is [released](LockGuard::release) or dropped.
///
/// Dropping the guard sends the release at once, before any later call of this process. A
/// background task repeats the release if it is not answered. If more than a thousand guards are
/// dropped at the same time, the last ones are released a moment later. Dropping never blocks and
/// never panics. After the runtime has ended, nothing is released, and the lease runs out.
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct LockGuard(LeaseGuard);

impl LockGuard {
    pub(super) fn new(lease: LeaseGuard) -> Self {
        Self(lease)
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
    pub async fn release(self) -> Result<(), LockError> {
        self.0.release().await
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
        self.0.held().token
    }

    /// Whether the lease goes on, as far as this process knows. It does not ask Redis.
    ///
    /// The process may be paused right after this call. The
    /// [fencing token](LockGuard::fencing_token) protects against that.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.held().until().is_some()
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
        self.0.held().over()
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
