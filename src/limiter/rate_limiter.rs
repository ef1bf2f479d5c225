use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backend::{Backend, Configure, Sharers, Wanted};
use super::{Generation, LimiterError, LimiterErrorKind, MemoryLimiters, Permit, Rate, RateType};

/// A budget that code asks for permits, and waits for: at most so many in any interval, for a whole fleet.
///
/// The rate is kept with the limiter, so all processes agree on it; whoever sets it first wins. On
/// `Redis` it is Redisson's `RRateLimiter`, on the same keys, so services in Java may share it. In memory,
/// with [`MemoryLimiters`], it is the same for one process.
///
/// It is exact by Redis's clock: no interval ever holds more permits than the rate, whatever the clocks of the processes
/// show. A permit leaves an interval after the millisecond in which it was granted.
///
#[cfg_attr(feature = "redis", doc = "```no_run")]
#[cfg_attr(not(feature = "redis"), doc = "```ignore")]
/// use std::time::Duration;
/// use tidegate::Redis;
/// use tidegate::limiter::{RateLimiter, RateType};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let limiter = RateLimiter::new(&redis, "partner-api");
/// limiter.try_set_rate(RateType::Overall, 10, Duration::from_secs(1)).await?;
///
/// limiter.acquire(1).await?; // as long as it takes
/// if limiter.try_acquire_for(3, Duration::from_millis(500)).await? {
///     // three calls
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Waiting
///
/// Each caller asks at once, sleeps as long as the answer says, at most a second, and up to 5 ms
/// longer, and asks again. So free permits go to whoever asks, and a caller sleeps through no
/// change: it asks at once after a new rate or a release of this process, and within a second after
/// one of another process. Callers of one name that want as many permits share their calls, so ten
/// thousand of them cost a handful of calls each time permits come back. Who is first is decided by
/// [`fair`](Self::fair) alone.
///
/// A future that is not polled holds up nobody: it is asked for in the background, and keeps what it
/// is granted. A future that is dropped leaves nothing behind: permits that were granted to it in the same
/// moment are given back. Permits that were granted when the answer got lost are given back if the
/// server answers again within seconds, and else come back by themselves after the interval.
///
/// # Panics
///
/// Whatever asks for permits panics outside of a tokio runtime.
#[derive(Clone)]
pub struct RateLimiter {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) name: Arc<str>,
    pub(super) generation: Generation,
    pub(super) fair: bool,
    sharers: Sharers,
}

/// Where a [`RateLimiter`] is kept: made of a `Redis` or of [`MemoryLimiters`].
#[derive(Debug, Clone)]
pub struct LimiterBackend(Arc<dyn Backend>);

impl RateLimiter {
    /// The limiter of this name. Nothing is asked yet.
    pub fn new(on: impl Into<LimiterBackend>, name: impl Into<Arc<str>>) -> Self {
        let LimiterBackend(backend) = on.into();
        Self {
            backend,
            name: name.into(),
            generation: Generation::default(),
            fair: false,
            sharers: Sharers::Ours,
        }
    }

    /// How permits are counted. Default: [`Generation::Third`].
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    /// Serves those who wait in the order in which they came, over all processes: the server keeps
    /// their places. A caller that gives up loses its place, and those of a process that has ended
    /// are dropped 5 s later. Default: not fair.
    ///
    /// The order is that of fair callers among each other. Others take what is free when they ask.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// The rates that are set through this say that clients of Redisson ask here, too. Then what is counted is kept
    /// without an expiry, as they keep it: they would take ours away from one half of it, and stumble over the half that is
    /// left. A rate that a client of Redisson has set says the same. Default: what is counted expires by itself.
    #[must_use]
    pub fn shared_with_redisson(mut self) -> Self {
        self.sharers = Sharers::Redisson;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the rate if there is none, and tells whether it did: the first writer wins.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::InvalidRate`] as [`Rate::new`]; [`LimiterErrorKind::Store`].
    pub async fn try_set_rate(
        &self,
        kind: RateType,
        permits: u64,
        interval: Duration,
    ) -> Result<bool, LimiterError> {
        self.try_set(Rate::new(kind, permits, interval)?).await
    }

    /// [`try_set_rate`](Self::try_set_rate) of a rate with a [keep-alive time](Rate::keep_alive).
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn try_set(&self, rate: Rate) -> Result<bool, LimiterError> {
        self.configure(rate, Configure::Try).await
    }

    /// Replaces the rate, or sets the first. What was granted does not count any more, for no client.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::InvalidRate`] as [`Rate::new`]; [`LimiterErrorKind::Store`].
    pub async fn set_rate(
        &self,
        kind: RateType,
        permits: u64,
        interval: Duration,
    ) -> Result<(), LimiterError> {
        self.set(Rate::new(kind, permits, interval)?).await
    }

    /// [`set_rate`](Self::set_rate) of a rate with a [keep-alive time](Rate::keep_alive).
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn set(&self, rate: Rate) -> Result<(), LimiterError> {
        self.configure(rate, Configure::Set).await.map(|_| ())
    }

    /// Replaces the rate if there is one, and tells whether there is. What was granted does not count any more.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::InvalidRate`] as [`Rate::new`]; [`LimiterErrorKind::Store`].
    pub async fn update_rate(
        &self,
        kind: RateType,
        permits: u64,
        interval: Duration,
    ) -> Result<bool, LimiterError> {
        self.update(Rate::new(kind, permits, interval)?).await
    }

    /// [`update_rate`](Self::update_rate) of a rate with a [keep-alive time](Rate::keep_alive).
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn update(&self, rate: Rate) -> Result<bool, LimiterError> {
        self.configure(rate, Configure::Update).await
    }

    /// Replaces the rate if there is one, and tells whether there is. What was granted still counts, as far as it is
    /// inside the new interval and has not left the old one. Of what other clients have had by a rate for each client, their
    /// keys know for as long as the old rate needed it.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn update_keeping(&self, rate: Rate) -> Result<bool, LimiterError> {
        self.configure(rate, Configure::Keep).await
    }

    async fn configure(&self, rate: Rate, how: Configure) -> Result<bool, LimiterError> {
        let configured = self.backend.configure(&self.name, rate, how, self.sharers);
        let configured = configured.await;
        self.backend.client().changed(&self.name);
        configured
    }

    /// The rate, if one is set.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn rate(&self) -> Result<Option<Rate>, LimiterError> {
        self.backend.rate(&self.name).await
    }

    /// Whether clients of Redisson may count here: see
    /// [`shared_with_redisson`](Self::shared_with_redisson). `None` without a rate.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn is_shared(&self) -> Result<Option<bool>, LimiterError> {
        let kept = self.backend.keeping(&self.name).await?;
        Ok(kept.map(|kept| kept.sharers == Sharers::Redisson))
    }

    /// How long the rate is kept if nothing is granted until then; `None` if that is for ever, or
    /// if there is no rate.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn remaining(&self) -> Result<Option<Duration>, LimiterError> {
        let kept = self.backend.keeping(&self.name).await?;
        Ok(kept.and_then(|kept| kept.life))
    }

    /// How many permits could be had now, from 0 to the rate. Reading changes nothing.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::UnknownLimiter`], [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn available_permits(&self) -> Result<u64, LimiterError> {
        self.backend.available(&self.name, self.generation).await
    }

    /// Lets the limiter be forgotten after so long, rate and all, and tells whether there is one.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn expire(&self, after: Duration) -> Result<bool, LimiterError> {
        let expires = self.backend.expire(&self.name, after).await;
        self.backend.client().changed(&self.name);
        expires
    }

    /// Forgets the limiter, rate and all, and tells whether there was one: of several that delete it, one.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn delete(&self) -> Result<bool, LimiterError> {
        let deleted = self.backend.delete(&self.name).await;
        self.backend.client().changed(&self.name);
        deleted
    }

    /// Whether there is one.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn exists(&self) -> Result<bool, LimiterError> {
        self.backend.exists(&self.name).await
    }

    /// Takes so many permits if they can be had at once, and tells whether it did.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::NoPermits`], [`LimiterErrorKind::AboveRate`], [`LimiterErrorKind::UnknownLimiter`],
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn try_acquire(&self, permits: u64) -> Result<bool, LimiterError> {
        Ok(self.try_acquire_permit(permits).await?.is_ok())
    }

    /// [`try_acquire`](Self::try_acquire) of permits that can be released one by one; if there are
    /// not enough, how long it takes until there can be.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_permit(
        &self,
        permits: u64,
    ) -> Result<Result<Permit, Duration>, LimiterError> {
        let mut now = self.clone();
        now.fair = false;
        now.wait(permits, Some(Instant::now())).await
    }

    /// Takes so many permits, and waits for them up to `timeout` if that can be of use; a time-out of zero tries exactly
    /// once. Where it is known that there will not be enough in time, it does not wait.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_for(
        &self,
        permits: u64,
        timeout: Duration,
    ) -> Result<bool, LimiterError> {
        if timeout.is_zero() {
            return self.try_acquire(permits).await;
        }
        // A time-out that no clock can show is none.
        let acquired = self.wait(permits, Instant::now().checked_add(timeout));
        Ok(acquired.await?.is_ok())
    }

    /// Takes so many permits, and waits for them as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), also if it has waited already: more permits than a
    /// rate that was lowered are [`LimiterErrorKind::AboveRate`].
    pub async fn acquire(&self, permits: u64) -> Result<(), LimiterError> {
        self.acquire_permit(permits).await.map(|_| ())
    }

    /// [`acquire`](Self::acquire) of permits that can be released.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_permit(&self, permits: u64) -> Result<Permit, LimiterError> {
        loop {
            if let Ok(permit) = self.wait(permits, None).await? {
                return Ok(permit);
            }
        }
    }

    /// Gives back up to so many permits that were granted to this client, that is to this process by
    /// this `Redis` handle and its clones, and tells how many: those that count still, the earliest
    /// first. A [`Permit`] gives back its own permits.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::UnknownLimiter`], [`LimiterErrorKind::Malformed`],
    /// [`LimiterErrorKind::Unsupported`] by earlier generations, [`LimiterErrorKind::Store`].
    pub async fn release(&self, permits: u64) -> Result<u64, LimiterError> {
        self.only_third("release")?;
        if permits == 0 {
            return Ok(0);
        }
        let permits = permits.min(Rate::LARGEST);
        let released = self.backend.release(&self.name, permits).await;
        if !matches!(released, Ok(0)) {
            self.backend.client().changed(&self.name);
        }
        released
    }

    pub(super) fn wanted(&self, permits: u64) -> Result<Wanted, LimiterError> {
        if permits == 0 {
            return Err(LimiterError::no_permits());
        }
        // No rate is above this, and neither is what a script can count.
        if permits > Rate::LARGEST {
            return Err(LimiterError::above_rate(&self.name, permits));
        }
        Ok(Wanted {
            name: Arc::clone(&self.name),
            generation: self.generation,
            is_fair: self.fair,
            permits,
            timeout: self.backend.timeout(),
        })
    }

    pub(super) fn only_third(&self, what: &str) -> Result<(), LimiterError> {
        if self.generation == Generation::Third {
            return Ok(());
        }
        let message = format!(
            "{what} is not there in the {:?} generation",
            self.generation
        );
        Err(LimiterError::new(LimiterErrorKind::Unsupported, message))
    }
}

impl From<MemoryLimiters> for LimiterBackend {
    fn from(limiters: MemoryLimiters) -> Self {
        Self(Arc::new(limiters))
    }
}

impl From<&MemoryLimiters> for LimiterBackend {
    fn from(limiters: &MemoryLimiters) -> Self {
        limiters.clone().into()
    }
}

#[cfg(feature = "redis")]
impl From<&crate::Redis> for LimiterBackend {
    fn from(redis: &crate::Redis) -> Self {
        Self(Arc::new(super::on_redis::OnRedis::new(redis)))
    }
}

#[cfg(feature = "redis")]
impl From<crate::Redis> for LimiterBackend {
    fn from(redis: crate::Redis) -> Self {
        Self::from(&redis)
    }
}

#[cfg(all(feature = "redis", feature = "test-util"))]
impl LimiterBackend {
    /// Decides by a clock that a test moves by hand, instead of the server's. Waiting still goes by tokio's.
    #[must_use]
    pub fn redis_with_clock(redis: &crate::Redis, clock: crate::test_util::ManualClock) -> Self {
        Self(Arc::new(super::on_redis::OnRedis::with_clock(redis, clock)))
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("name", &self.name)
            .field("generation", &self.generation)
            .field("fair", &self.fair)
            .field("on", &self.backend)
            .finish()
    }
}
