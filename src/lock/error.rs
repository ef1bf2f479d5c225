use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// Why a call of a [`Lock`](super::Lock) or [`LockGuard`](super::LockGuard) failed. A lock that
/// is held by another holder is not an error.
#[derive(Debug, Clone)]
pub struct LockError {
    /// The lock's name.
    lock: Arc<str>,
    failure: LockFailure,
}

#[derive(Debug, Clone)]
enum LockFailure {
    NotHeld,
    Lease(Duration),
    Store(StoreError),
}

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
        Self::new(lock, LockFailure::NotHeld)
    }

    pub(super) fn lease(lock: &str, lease: Duration) -> Self {
        Self::new(lock, LockFailure::Lease(lease))
    }

    pub(super) fn store(lock: &str, error: StoreError) -> Self {
        Self::new(lock, LockFailure::Store(error))
    }

    fn new(lock: &str, failure: LockFailure) -> Self {
        Self {
            lock: lock.into(),
            failure,
        }
    }

    /// The kind of the error, for code to branch on.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        match &self.failure {
            LockFailure::NotHeld => LockErrorKind::NotHeld,
            LockFailure::Lease(_) => LockErrorKind::Lease,
            LockFailure::Store(error) => LockErrorKind::Store(error.kind()),
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?}: ", self.lock)?;
        match &self.failure {
            LockFailure::NotHeld => f.write_str("it is no longer held"),
            LockFailure::Lease(lease) => {
                write!(f, "a lease of {lease:?}, expected 10 ms to 10 years")
            }
            LockFailure::Store(error) => error.fmt(f),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.failure {
            LockFailure::Store(error) => Some(error),
            LockFailure::NotHeld | LockFailure::Lease(_) => None,
        }
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
