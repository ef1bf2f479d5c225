use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::backend::{Answer, Backend, Configure, Sharers, Wanted};
use super::{Generation, LimiterError, LimiterErrorKind, MemoryLimiters, Rate, RateType};

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
/// use tidegate::{RateLimiter, RateType, Redis};
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
/// Of all tasks of a process that wait for one name, the one that has waited longest asks; it comes back when as many
/// permits as it wants can be had, and up to 5 ms later. So ten thousand waiters ask as often as one. Between processes
/// it is not decided who is first, unless waiting is [`fair`](Self::fair).
///
/// A future that is dropped leaves nothing behind: no waiter, and if permits were granted to it in the same moment,
/// they are given back; if somebody's [`release`](Self::release) took just these, as many come back after the interval.
/// Permits that were granted when the answer got lost come back by themselves after the interval; what was reserved is
/// given back if the server answers again within seconds, so that those who come later need not wait for it.
#[derive(Clone)]
pub struct RateLimiter {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) name: Arc<str>,
    generation: Generation,
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

    /// Serves who waits in the order in which they came, over all processes: each reserves its permits with one call, for
    /// when they will be free, and then only sleeps. Who is dropped before that gives them back. Default: not fair.
    ///
    /// Whoever comes later stands behind the newest reservation, so a slot in the middle that was given up stays empty until
    /// its time has come; a wait that is known to be in vain reserves nothing.
    ///
    /// Reservations come before all that ask later, also before those that do not wait or are not fair.
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
        let rate = Rate::new(kind, permits, interval)?;
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
        configured.await
    }

    /// The rate, if one is set.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn rate(&self) -> Result<Option<Rate>, LimiterError> {
        self.backend.rate(&self.name).await
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
        self.backend.expire(&self.name, after).await
    }

    /// Forgets the limiter, rate and all, and tells whether there was one: of several that delete it, one.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn delete(&self) -> Result<bool, LimiterError> {
        self.backend.delete(&self.name).await
    }

    /// Whether there is one.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn exists(&self) -> Result<bool, LimiterError> {
        self.backend.exists(&self.name).await
    }

    /// Takes so many permits if they can be had at once: one call.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::NoPermits`], [`LimiterErrorKind::AboveRate`], [`LimiterErrorKind::UnknownLimiter`],
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn try_acquire(&self, permits: u64) -> Result<bool, LimiterError> {
        let wanted = self.wanted(permits)?;
        match self.backend.acquire(wanted).await? {
            Answer::Granted(grant, _) => {
                grant.keep();
                Ok(true)
            }
            Answer::Wait(_) => Ok(false),
        }
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
        self.wait(permits, Instant::now().checked_add(timeout))
            .await
    }

    /// Takes so many permits, and waits for them as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), also if it has waited already.
    pub async fn acquire(&self, permits: u64) -> Result<(), LimiterError> {
        match self.wait(permits, None).await? {
            true => Ok(()),
            false => Err(LimiterError::without_end(&self.name)),
        }
    }

    /// Gives back up to so many permits that were granted, and tells how many: never more than count. Of what counts, it
    /// is the permits that would come back soonest, so that no interval ever holds more than the rate, whichever of them
    /// were not used.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::NoPermits`], [`LimiterErrorKind::UnknownLimiter`], [`LimiterErrorKind::Malformed`],
    /// [`LimiterErrorKind::Unsupported`] by earlier generations, [`LimiterErrorKind::Store`].
    pub async fn release(&self, permits: u64) -> Result<u64, LimiterError> {
        self.only_third("release")?;
        let wanted = self.wanted(permits)?;
        self.backend.release(&self.name, wanted.permits).await
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
            permits,
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
    pub fn redis_with_clock(redis: &crate::Redis, clock: crate::ManualClock) -> Self {
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
