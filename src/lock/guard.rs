use std::fmt;

use super::error::LockError;
use super::lease::Lease;

/// A lock that is held, until this is [released](LockGuard::release) or dropped.
///
/// Dropping it sends the release at once, before whatever this process asks later; the background
/// sends it again if it is not answered. (Of more than a thousand guards that are dropped at the same
/// time, the last ones are released a moment later.) Dropping never blocks and never panics. After the
/// runtime has ended nobody is there to release it: then the lease runs out.
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct LockGuard(Lease);

impl LockGuard {
    pub(super) fn new(lease: Lease) -> Self {
        Self(lease)
    }

    /// Gives the lock back, or one hold of several, and waits until Redis has it.
    ///
    /// A call whose answer was lost is made again, until the lease runs out, but not for longer than 10 s; however
    /// often it gets through, it counts once. Dropping the future leaves the rest to the background, as does an error.
    ///
    /// # Errors
    ///
    /// [`LockError`] of the kind [`NotHeld`](super::LockErrorKind::NotHeld) if the lock had been lost: what was done
    /// under it may have been done by others at the same time. Of the kind
    /// [`Store`](super::LockErrorKind::Store) if Redis could not say.
    pub async fn release(self) -> Result<(), LockError> {
        self.0.release().await
    }

    /// Higher than those of all earlier holders of this lock, for the resource to refuse who comes late. All guards of
    /// one owner that overlap have the same.
    ///
    /// It rises also when the lock has expired, and when Redis has lost its data, as long as Redis's clock does not go
    /// back at the same time: it is at least that clock's microseconds since 1970.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.0.held().token
    }

    /// Whether the lease goes on, by what this process knows: it asks nobody. A pause of the process may begin right
    /// after it; that is what the [token](LockGuard::fencing_token) is for.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.held().until().is_some()
    }

    /// Completes when the lease is gone: it ran out, because it is fixed or because Redis could not be reached to renew
    /// it, or the lock was taken away; also when the guard is gone.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn run(guard: tidegate::lock::LockGuard) {
    /// tokio::select! {
    ///     () = work() => println!("done"),
    ///     () = guard.lost() => println!("somebody else may have it by now"),
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
