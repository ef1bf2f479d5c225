use super::batcher::GrantGuard;
use super::error::LimiterError;
#[cfg(doc)]
use super::error::LimiterErrorKind;

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
pub struct Permit(pub(super) GrantGuard);

impl Permit {
    /// The guard is disarmed.
    /// The number of permits.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.0.grant.permits
    }

    /// Gives the permits back because they were not used, and returns how many came back.
    ///
    /// It returns 0 if the permits no longer count, because the interval is over or because a new
    /// rate was set. It also returns 0 with an earlier [`Generation`](super::Generation), which
    /// cannot tell grants apart.
    ///
    /// If the future is dropped, or ends without an answer of Redis, the permits are given back in
    /// the background, for which `Redis::flush` waits.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Unsupported`] beside clients of Redisson
    /// that count in another generation, [`LimiterErrorKind::Store`].
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
        self.0.release().await
    }
}
