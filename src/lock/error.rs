use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// Why a [`Lock`](super::Lock) could not be taken, given back, or looked at. That somebody else has it is none of
/// these.
#[derive(Debug, Clone)]
pub struct LockError(Reason);

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
    /// The lease is shorter than [`Lock::SHORTEST_LEASE`](super::Lock::SHORTEST_LEASE), or longer than
    /// [`Lock::LONGEST_LEASE`](super::Lock::LONGEST_LEASE).
    Lease,
    /// Redis could not say. What an attempt may have taken is given back in the background.
    Store(StoreErrorKind),
}

impl LockError {
    pub(super) const NOT_HELD: Self = Self(Reason::NotHeld);

    pub(super) fn lease(lease: Duration) -> Self {
        Self(Reason::Lease(lease))
    }

    /// What went wrong, for code to branch on.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        match &self.0 {
            Reason::NotHeld => LockErrorKind::NotHeld,
            Reason::Lease(_) => LockErrorKind::Lease,
            Reason::Store(error) => LockErrorKind::Store(error.kind()),
        }
    }
}

impl From<StoreError> for LockError {
    fn from(error: StoreError) -> Self {
        Self(Reason::Store(error))
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::NotHeld => f.write_str("the lock is not held any more"),
            Reason::Lease(lease) => {
                write!(f, "a lease of {lease:?}, expected 10 ms to 10 years")
            }
            Reason::Store(error) => error.fmt(f),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
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
