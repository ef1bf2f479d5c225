#[cfg(feature = "redis")]
use super::limiter_backend::Generation;
use crate::error::{KindError, OfStore, StoreErrorKind};

/// Why a call of a [`RateLimiter`](super::RateLimiter) failed. Too few permits are not an error.
///
/// Nothing was granted and nothing was written, unless the kind is [`LimiterErrorKind::Store`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::{LimiterErrorKind, MemoryLimiters, Rate, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let partner = RateLimiter::new(&MemoryLimiters::default(), "partner")
///     .rate(Rate::overall(10, Duration::from_secs(1))?);
/// // More than the rate never comes.
/// let error = partner.acquire(11).await.unwrap_err();
/// assert_eq!(error.kind(), LimiterErrorKind::AboveRate);
/// # Ok(())
/// # }
/// ```
pub type LimiterError = KindError<LimiterErrorKind>;

/// The kinds of [`LimiterError`].
///
/// ```
/// use tidegate::limiter::{LimiterError, LimiterErrorKind};
///
/// /// Whether the same call may work later.
/// fn is_temporary(error: &LimiterError) -> bool {
///     matches!(error.kind(), LimiterErrorKind::Store(_))
/// }
/// # let _ = is_temporary;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimiterErrorKind {
    /// The caller asked for 0 permits.
    NoPermits,
    /// The caller asked for more permits than the rate grants in one interval.
    AboveRate,
    /// The limiter has no rate: none was set, or it was deleted or forgotten.
    UnknownLimiter,
    /// The rate has 0 or too many permits, or its interval is zero or too long.
    InvalidRate,
    /// The keep-alive time is shorter than the interval.
    KeepAliveTooShort,
    /// The key in Redis does not hold a rate.
    Malformed,
    /// The [generation](super::Generation) does not support this call, or clients of Redisson count
    /// the limiter in another one: the message names it.
    Unsupported,
    /// Redis did not answer, or answered with an error. The permits may have been granted; they
    /// come back after the interval.
    Store(StoreErrorKind),
}

impl LimiterErrorKind {
    pub(super) const fn is_of_store(self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Whether the same call may succeed later, without a change of the program or of the server's
    /// settings.
    pub(super) const fn may_pass(self) -> bool {
        use StoreErrorKind::{Overloaded, Protocol, ReadOnly, Timeout, Unavailable};
        matches!(
            self,
            Self::Store(Timeout | Unavailable | Overloaded | ReadOnly | Protocol)
        )
    }
}

impl OfStore for LimiterErrorKind {
    fn of_store(kind: StoreErrorKind) -> Self {
        Self::Store(kind)
    }
}

pub(super) fn above_rate(name: &str, permits: u64) -> LimiterError {
    let message = format!("{permits} permits of \"{name}\" are more than its rate ever grants");
    LimiterError::of(LimiterErrorKind::AboveRate, message)
}

pub(super) fn unknown_limiter(name: &str) -> LimiterError {
    let message = format!("the limiter \"{name}\" has no rate: call try_set_rate first");
    LimiterError::of(LimiterErrorKind::UnknownLimiter, message)
}

/// Clients of Redisson count the limiter in another generation than the caller, or in none.
#[cfg(feature = "redis")]
pub(super) fn counted_by(name: &str, generation: Option<Generation>) -> LimiterError {
    let (releases, remedy) = match generation {
        Some(Generation::First) => ("to 3.13.2", "use `.generation(Generation::First)`"),
        Some(Generation::Second) => ("3.13.3 to 3.16.3", "use `.generation(Generation::Second)`"),
        Some(Generation::Third) => (
            "3.17.0 and later",
            "use `.generation(Generation::Third)`, the default",
        ),
        None => ("3.16.4 to 3.16.8", "no generation does: upgrade Redisson"),
    };
    let message = format!("clients of Redisson {releases} count the limiter \"{name}\": {remedy}");
    LimiterError::of(LimiterErrorKind::Unsupported, message)
}
