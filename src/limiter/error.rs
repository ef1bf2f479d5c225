use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::{StoreError, StoreErrorKind};

/// Why a [`RateLimiter`](super::RateLimiter) did nothing. That there were not enough permits in time is not one of these.
///
/// But for [`LimiterErrorKind::Store`], nothing was granted and nothing was written.
#[derive(Debug, Clone)]
pub struct LimiterError {
    kind: LimiterErrorKind,
    message: Arc<str>,
    source: Option<StoreError>,
}

/// The kinds of [`LimiterError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimiterErrorKind {
    /// No permits were asked for.
    NoPermits,
    /// More permits were asked for than there are in an interval.
    AboveRate,
    /// A limiter of this name has no rate: nobody has set one, or it was deleted or forgotten.
    UnknownLimiter,
    /// A rate of no permits or too many, or an interval that is empty or too long.
    InvalidRate,
    /// A keep-alive time that is shorter than the interval.
    KeepAliveTooShort,
    /// What is kept under this name is not a rate.
    Malformed,
    /// The [generation](super::Generation) does not have this.
    Unsupported,
    /// Redis did not answer, or with an error. Permits may have been granted; they come back by themselves after the
    /// interval.
    Store(StoreErrorKind),
}

impl LimiterError {
    pub(super) fn new(kind: LimiterErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(super) fn no_permits() -> Self {
        let message = "no permits were asked for, expected at least 1";
        Self::new(LimiterErrorKind::NoPermits, message)
    }

    pub(super) fn above_rate(name: &str, permits: u64) -> Self {
        let message = format!("{permits} permits of \"{name}\" are more than its rate ever grants");
        Self::new(LimiterErrorKind::AboveRate, message)
    }

    pub(super) fn runtime_ended() -> Self {
        StoreError::new(StoreErrorKind::Unavailable, "the runtime has ended").into()
    }

    pub(super) fn unknown(name: &str) -> Self {
        let message = format!("the limiter \"{name}\" has no rate: call try_set_rate first");
        Self::new(LimiterErrorKind::UnknownLimiter, message)
    }

    pub(super) const fn of_store(&self) -> Option<&StoreError> {
        self.source.as_ref()
    }

    /// What went wrong, for code to branch on.
    #[must_use]
    pub const fn kind(&self) -> LimiterErrorKind {
        self.kind
    }
}

impl From<StoreError> for LimiterError {
    fn from(error: StoreError) -> Self {
        Self {
            kind: LimiterErrorKind::Store(error.kind()),
            message: error.to_string().into(),
            source: Some(error),
        }
    }
}

impl fmt::Display for LimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LimiterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message is the store's own, so what comes next is what caused that.
        self.source.as_ref().and_then(Error::source)
    }
}
