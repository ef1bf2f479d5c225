use std::time::Duration;

use crate::error::{KindError, StoreError, StoreErrorKind};

/// Why a call of a [`Lock`](super::Lock) or [`LockGuard`](super::LockGuard) failed. A lock that
/// is held by another holder is not an error.
pub type LockError = KindError<LockErrorKind>;

/// The kinds of [`LockError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The lock was lost before it was released: its lease ran out, or it was taken away.
    NotHeld,
    /// The lease is shorter than [`Lock::MIN_LEASE`](super::Lock::MIN_LEASE), or longer than
    /// [`Lock::MAX_LEASE`](super::Lock::MAX_LEASE).
    Lease,
    /// Redis did not answer, or refused. If the lock may have been acquired without a reply, a
    /// background task releases it.
    Store(StoreErrorKind),
}

impl LockError {
    pub(super) fn not_held(lock: &str) -> Self {
        let message = format!("lock {lock:?}: it is no longer held");
        Self::of(LockErrorKind::NotHeld, message)
    }

    pub(super) fn lease(lock: &str, lease: Duration) -> Self {
        let message = format!("lock {lock:?}: a lease of {lease:?}, expected 10 ms to 10 years");
        Self::of(LockErrorKind::Lease, message)
    }

    pub(super) fn store(lock: &str, error: StoreError) -> Self {
        let message = format!("lock {lock:?}: {error}");
        Self::of(LockErrorKind::Store(error.kind()), message).with_source(error)
    }
}

/// Whether the next call may succeed.
pub(super) fn is_transient(error: &StoreError) -> bool {
    use StoreErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Timeout | Kind::Unavailable | Kind::ReadOnly | Kind::Protocol
    )
}
