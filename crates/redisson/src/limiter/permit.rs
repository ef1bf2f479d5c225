use std::sync::Arc;

use super::error::{LimiterError, LimiterErrorKind};
use super::limiter_backend::{Grant, LimiterBackend};

/// Permits that were granted, and that can be given back once.
///
/// Dropping it gives nothing back: the permits count as used.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::{MemoryLimiters, Rate, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let partner = RateLimiter::new(&MemoryLimiters::default(), "partner")
///     .rate(Rate::overall(10, Duration::from_secs(1))?);
/// let permit = partner.acquire_permit(2).await?;
/// // The call was not made after all.
/// permit.release().await?;
/// assert_eq!(partner.available_permits().await?, 10);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the permits count as used unless they are released"]
pub struct Permit {
    backend: LimiterBackend,
    name: Arc<str>,
    grant: Grant,
}

impl Permit {
    pub(super) fn new(backend: &LimiterBackend, name: &Arc<str>, grant: Grant) -> Self {
        Self {
            backend: backend.clone(),
            name: Arc::clone(name),
            grant,
        }
    }

    /// The number of permits.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.grant.permits
    }

    /// Gives the permits back because they were not used, and returns how many came back.
    ///
    /// It returns 0 if the permits no longer count, because the interval is over or because a new
    /// rate was set. It also returns 0 with an earlier [`Generation`](super::Generation), which
    /// cannot tell grants apart.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::limiter::{MemoryLimiters, Rate, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tidegate::limiter::LimiterError> {
    /// # let limiter = RateLimiter::new(MemoryLimiters::default(), "partner-api");
    /// limiter.try_set_rate(Rate::overall(10, Duration::from_secs(60))?).await?;
    /// let permit = limiter.acquire_permit(3).await?;
    /// // The call turned out not to be needed.
    /// assert_eq!(permit.release().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) -> Result<u64, LimiterError> {
        let LimiterBackend { limiters, client } = &self.backend;
        let released = limiters.give_back(Arc::clone(&self.name), vec![self.grant]);
        let released = released.await;
        if !matches!(released, Ok(0)) {
            client.notify_waiters(&self.name);
        }
        match released {
            // The limiter was deleted, so none of its grants count.
            Err(error) if error.kind() == LimiterErrorKind::UnknownLimiter => Ok(0),
            released => released,
        }
    }
}
