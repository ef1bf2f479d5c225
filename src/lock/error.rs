use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// Why a [`Lock`](super::Lock) could not be taken, given back, or looked at. That somebody else has it is none of
/// these.
#[derive(Debug, Clone)]
pub struct LockError {
    /// The lock's name.
    lock: Arc<str>,
    reason: Reason,
}

#[derive(Debug, Clone)]
enum Reason {
    NotHeld,
    Lease(Duration),
    Store(StoreError),
}

/// The kinds of [`LockError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The lock was lost before it was given back: its lease ran out, or somebody took it away.
    NotHeld,
    /// The lease is shorter than [`Lock::MIN_LEASE`](super::Lock::MIN_LEASE), or longer than
    /// [`Lock::MAX_LEASE`](super::Lock::MAX_LEASE).
    Lease,
    /// Redis could not say. What an attempt may have taken is given back in the background.
    Store(StoreErrorKind),
}

impl LockError {
    pub(super) fn not_held(lock: &str) -> Self {
        Self::new(lock, Reason::NotHeld)
    }

    pub(super) fn lease(lock: &str, lease: Duration) -> Self {
        Self::new(lock, Reason::Lease(lease))
    }

    pub(super) fn store(lock: &str, error: StoreError) -> Self {
        Self::new(lock, Reason::Store(error))
    }

    fn new(lock: &str, reason: Reason) -> Self {
        Self {
            lock: lock.into(),
            reason,
        }
    }

    /// What went wrong, for code to branch on.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        match &self.reason {
            Reason::NotHeld => LockErrorKind::NotHeld,
            Reason::Lease(_) => LockErrorKind::Lease,
            Reason::Store(error) => LockErrorKind::Store(error.kind()),
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?}: ", self.lock)?;
        match &self.reason {
            Reason::NotHeld => f.write_str("it is not held any more"),
            Reason::Lease(lease) => {
                write!(f, "a lease of {lease:?}, expected 10 ms to 10 years")
            }
            Reason::Store(error) => error.fmt(f),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.reason {
            Reason::Store(error) => Some(error),
            Reason::NotHeld | Reason::Lease(_) => None,
        }
    }
}

/// Whether the next call may be answered.
pub(super) fn may_pass(error: &StoreError) -> bool {
    use StoreErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Timeout | Kind::Unavailable | Kind::ReadOnly
    )
}
