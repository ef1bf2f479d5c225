use std::fmt;
use std::sync::Arc;

use super::LimiterError;
use super::backend::{Backend, Grant};
use super::batcher::Batcher;

/// Permits that were granted, and can be given back once.
///
/// Dropping it gives nothing back: the permits count as used.
#[must_use = "the permits count as used unless they are released"]
pub struct Permit {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) name: Arc<str>,
    pub(super) grant: Grant,
}

impl Permit {
    /// The number of permits.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.grant.permits
    }

    /// Gives the permits back, because they were not used, and returns how many came back: none if
    /// they count no longer, since they have left the interval or a new rate was set, and none of an
    /// earlier [generation](super::Generation), which does not tell grants apart.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`](super::LimiterErrorKind::Malformed),
    /// [`LimiterErrorKind::Store`](super::LimiterErrorKind::Store).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::limiter::{MemoryLimiters, RateLimiter, RateType};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tidegate::limiter::LimiterError> {
    /// # let limiter = RateLimiter::new(MemoryLimiters::default(), "partner-api");
    /// limiter.try_set_rate(RateType::Overall, 10, Duration::from_secs(60)).await?;
    /// let permit = limiter.acquire_permit(3).await?;
    /// // The call turned out not to be needed.
    /// assert_eq!(permit.release().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) -> Result<u64, LimiterError> {
        let name = Arc::clone(&self.name);
        let released = self.backend.give_back(name, vec![self.grant]).await;
        if !matches!(released, Ok(0)) {
            self.backend.client().changed(&self.name);
        }
        match released {
            // The limiter was deleted, and nothing of it counts.
            Err(error) if error.kind() == super::LimiterErrorKind::UnknownLimiter => Ok(0),
            released => released,
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("name", &self.name)
            .field("permits", &self.grant.permits)
            .finish()
    }
}

/// What a caller may have been granted without having heard of it, or its place among fair
/// waiters: given back if this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    batcher: Arc<Batcher>,
    pub(super) grant: Grant,
    pub(super) is_open: bool,
}

impl Claim {
    pub(super) fn new(batcher: &Arc<Batcher>, grant: Grant) -> Self {
        Self {
            batcher: Arc::clone(batcher),
            grant,
            is_open: false,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_open {
            self.batcher.give_back(self.grant);
        }
    }
}
