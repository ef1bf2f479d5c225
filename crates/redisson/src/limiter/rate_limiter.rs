use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::acquire_queue::AcquireAnswer;
use super::batcher::{Batcher, GrantGuard};
use super::error::{LimiterError, LimiterErrorKind, above_rate};
use super::limiter_backend::{
    AcquireRequest, Generation, GrantId, LimiterBackend, LimiterFuture, SetMode, Sharing,
    StoredRate,
};
#[cfg(doc)]
use super::memory_limiters::MemoryLimiters;
use super::permit::Permit;
use super::rate::Rate;
use super::rate_choice::OwnRate;

/// A budget of permits that code acquires and can wait for: at most a [`Rate`] in any interval.
///
/// The rate is stored with the limiter, so all processes agree on it. On `Redis`, the limiter is
/// Redisson's `RRateLimiter` under the same keys, so services in Java can share it. With
/// [`MemoryLimiters`], it is the same for one process.
///
/// The limiter is exact by Redis's clock: no interval ever holds more permits than the rate,
/// whatever the clocks of the processes show. A permit expires one interval after the millisecond
/// in which it was granted.
///
#[cfg_attr(feature = "redis", doc = "```no_run")]
#[cfg_attr(not(feature = "redis"), doc = "```ignore")]
/// use std::time::Duration;
/// use tidegate::Redis;
/// use tidegate::limiter::{Rate, RateLimiter};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let rate = Rate::overall(10, Duration::from_secs(1))?;
/// let limiter = RateLimiter::new(&redis, "partner-api").rate(rate);
///
/// limiter.acquire(1).await?; // waits until a permit is available
/// if limiter.try_acquire_for(3, Duration::from_millis(500)).await? {
///     // three calls
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Waiting
///
/// Each caller asks immediately. A denied caller sleeps for as long as the reply says, but at most
/// a second, plus up to 5 ms, and asks again. After a new rate or a release in this process it asks
/// again immediately; after one in another process, within a second. Free permits go to whichever
/// caller asks first. Only [`fair`](Self::fair) callers are served in order.
///
/// Callers of one name that want the same number of permits share their calls. Ten thousand of them
/// cost a handful of calls each time permits become available.
///
/// A future that is not polled delays no other caller: a background task asks for it, and the
/// future keeps the permits that it is granted. A future that is dropped gives back the permits
/// that were granted to it at the same moment. If the reply to a call is lost, its permits are
/// given back when the server answers again within seconds; otherwise they come back after the
/// interval.
///
/// # When Redis fails
///
/// [`acquire`](Self::acquire) goes on through time-outs, and while Redis is unavailable, loading,
/// overloaded or read-only. So does [`try_acquire_for`](Self::try_acquire_for) within its time;
/// then it returns the latest error. Callers ask again together, after pauses that double from 50
/// ms to a second. A caller whose reply was lost keeps what it was granted, and is charged once.
/// Any other error ends a call immediately, such as a missing permission. All other calls ask once.
///
/// If Redis has lost its data, a limiter with a [`rate`](Self::rate) of its own sets it again. One
/// interval may then hold up to twice the rate. Without a rate of its own, each call ends with
/// [`LimiterErrorKind::UnknownLimiter`].
///
/// # Panics
///
/// Acquiring permits panics outside of a tokio runtime.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    backend: LimiterBackend,
    name: Arc<str>,
    generation: Generation,
    is_fair: bool,
    sharing: Sharing,
    own_rate: Option<Arc<OwnRate>>,
}

impl RateLimiter {
    /// The limiter with this name. It asks the backend nothing yet.
    pub fn new(backend: impl Into<LimiterBackend>, name: impl Into<Arc<str>>) -> Self {
        Self {
            backend: backend.into(),
            name: name.into(),
            generation: Generation::default(),
            is_fair: false,
            sharing: Sharing::TidegateOnly,
            own_rate: None,
        }
    }

    /// Makes the rate a part of the limiter: it is set where it is missing, also after Redis has
    /// lost its data, so that [`acquire`](Self::acquire) never ends with
    /// [`LimiterErrorKind::UnknownLimiter`]. Default: another caller sets the rate.
    ///
    /// Another rate is replaced when a process uses its limiter for the first time; the permits
    /// granted before still count, unless the rate has another [type](super::RateType), which is
    /// counted under other keys and begins afresh. So a deploy with a new number takes effect, and
    /// old processes do not bring their number back: of all processes that use the limiter, the
    /// rate of the one that made its limiter last is in force, by Redis's clock. A rate that is set
    /// by hand later, by [`set_rate`](Self::set_rate), is in force until a process is started anew.
    /// In one process, of several limiters with one name, the rate of the one made last is in force
    /// from its first use on.
    ///
    /// A permit counts while it is inside the new interval and had not expired under the old one.
    /// The counts of other clients, which exist under
    /// [`RateType::PerClient`](super::RateType::PerClient), live only as long as the old rate
    /// needed them, and a second longer. A client that asks meanwhile keeps them.
    ///
    /// Only acquiring permits sets the rate. Apart from the first call of a process that costs
    /// nothing: a call says which rate it expects.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::limiter::{MemoryLimiters, Rate, RateLimiter};
    ///
    /// let rate = Rate::overall(10, Duration::from_secs(1))?;
    /// let partner = RateLimiter::new(MemoryLimiters::default(), "partner").rate(rate);
    /// # let _ = partner;
    /// # Ok::<(), tidegate::limiter::LimiterError>(())
    /// ```
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.own_rate = Some(Arc::new(OwnRate::new(rate, self.sharing)));
        self
    }

    /// How permits are counted: the generation of the Redisson that shares the limiter. Default:
    /// [`Generation::Third`], Redisson 3.17.0 and later.
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    /// Serves waiting callers of all processes in the order of their arrival. Default: not fair.
    ///
    /// The server keeps the queue. A caller that gives up leaves it. The callers of a process that
    /// has ended are removed 5 s later. The order holds among fair callers only: other callers take
    /// what is available when they ask.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.is_fair = true;
        self
    }

    /// Declares, with every rate set through this value, that clients of Redisson use the limiter
    /// as well. Default: only this crate uses it, and its counts expire by themselves. The release
    /// of Redisson decides on the [generation](Self::generation).
    ///
    /// The counts of a shared limiter do not expire: Redisson's scripts remove the expiry from one
    /// of two keys, and fail when the other key has expired. A rate that a client of Redisson has
    /// set declares the same.
    ///
    /// While clients of Redisson use a shared limiter with a rate for all clients, callers of this
    /// crate leave them what they used lately and a little more, up to a third of the rate. Their
    /// callers come back up to 0.1 s after a permit is free, and would find nothing. So a request
    /// may be denied although enough permits are available, and a caller may wait up to 0.1 s
    /// longer than its reply said. Two intervals after the last grant of Redisson, nothing is left
    /// to it but one permit now and then, at most half a percent of the rate, by which it can begin
    /// again.
    #[must_use]
    pub fn shared_with_redisson(mut self) -> Self {
        self.sharing = Sharing::WithRedisson;
        // It is another choice than that of clones without this.
        match self.own_rate.as_ref().map(|own| own.rate) {
            Some(rate) => self.rate(rate),
            None => self,
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the rate if there is none, and returns whether it did: the first process wins.
    ///
    /// If a rate was forgotten before, its permits that have not expired under it still count.
    /// After [`delete`](Self::delete) none do.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool, LimiterError> {
        let chosen_at = self.change_rate(rate, SetMode::IfMissing).await?;
        Ok(chosen_at.is_some())
    }

    /// Sets or replaces the rate. Permits granted before no longer count, for all clients. A new
    /// [`rate`](Self::rate) of a limiter keeps them.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn set_rate(&self, rate: Rate) -> Result<(), LimiterError> {
        self.change_rate(rate, SetMode::Always).await.map(|_| ())
    }

    async fn change_rate(&self, rate: Rate, mode: SetMode) -> Result<Option<u64>, LimiterError> {
        let (limiters, generation) = (&self.backend.limiters, self.generation);
        let set = limiters.set_rate(&self.name, rate, self.sharing, generation, mode);
        self.change(set).await
    }

    /// Makes a call that changes the limiter, after which waiting callers ask again.
    async fn change<T>(&self, call: LimiterFuture<'_, T>) -> Result<T, LimiterError> {
        let changed = call.await;
        self.backend.client.notify_waiters(&self.name);
        changed
    }

    /// The rate that is in force, also if another process has set it; `None` without a rate.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn stored_rate(&self) -> Result<Option<Rate>, LimiterError> {
        Ok(self.stored().await?.map(|stored| stored.rate))
    }

    /// Whether clients of Redisson may use the limiter as well: see
    /// [`shared_with_redisson`](Self::shared_with_redisson). `None` without a rate.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn is_shared(&self) -> Result<Option<bool>, LimiterError> {
        let stored = self.stored().await?;
        Ok(stored.map(|stored| stored.sharing == Sharing::WithRedisson))
    }

    /// The time until the rate is forgotten unless permits are granted before. `None` if it is kept
    /// until it is deleted, or if there is no rate.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Malformed`], [`LimiterErrorKind::Store`].
    pub async fn remaining(&self) -> Result<Option<Duration>, LimiterError> {
        Ok(self.stored().await?.and_then(|stored| stored.expires_in))
    }

    async fn stored(&self) -> Result<Option<StoredRate>, LimiterError> {
        self.backend.limiters.stored(&self.name).await
    }

    /// The number of permits that could be granted now, from 0 to the rate. It changes nothing.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::UnknownLimiter`], [`LimiterErrorKind::Malformed`],
    /// [`LimiterErrorKind::Unsupported`], [`LimiterErrorKind::Store`].
    pub async fn available_permits(&self) -> Result<u64, LimiterError> {
        let limiters = &self.backend.limiters;
        let available = limiters.available(&self.name, self.generation).await;
        self.or_before_it_is_set(available, Rate::permits)
    }

    /// Lets the limiter and its rate expire after this time, rounded up to milliseconds, on Redis
    /// after at least one. Returns whether the limiter exists.
    ///
    /// The permits granted so far count until they expire, also if a rate is
    /// [set](Self::try_set_rate) meanwhile.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn expire(&self, after: Duration) -> Result<bool, LimiterError> {
        let expire = self.backend.limiters.expire(&self.name, after);
        self.change(expire).await
    }

    /// Deletes the limiter, its rate and its counts. Returns whether the limiter existed: of
    /// several callers that delete it, one gets `true`.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn delete(&self) -> Result<bool, LimiterError> {
        self.change(self.backend.limiters.delete(&self.name)).await
    }

    /// Whether the limiter exists.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::Store`].
    pub async fn exists(&self) -> Result<bool, LimiterError> {
        self.backend.limiters.exists(&self.name).await
    }

    /// Acquires permits if they are available now, and returns whether it did.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::NoPermits`], [`LimiterErrorKind::AboveRate`],
    /// [`LimiterErrorKind::UnknownLimiter`], [`LimiterErrorKind::Malformed`],
    /// [`LimiterErrorKind::Unsupported`] beside clients of Redisson that count in another
    /// [generation](Generation), [`LimiterErrorKind::Store`].
    pub async fn try_acquire(&self, permits: u64) -> Result<bool, LimiterError> {
        Ok(self.try_acquire_permit(permits).await?.is_ok())
    }

    /// [`try_acquire`](Self::try_acquire) with a [`Permit`] that can be released. If too few
    /// permits are available, it returns the time until there can be enough.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire).
    pub async fn try_acquire_permit(
        &self,
        permits: u64,
    ) -> Result<Result<Permit, Duration>, LimiterError> {
        let request = AcquireRequest {
            is_fair: false,
            ..self.request(permits)?
        };
        self.acquire_until(request, Some(Instant::now())).await
    }

    /// Acquires permits, and waits for them up to `timeout`. Returns whether it acquired them.
    ///
    /// It does not wait if the permits cannot be granted in time. A timeout of zero is the same as
    /// [`try_acquire`](Self::try_acquire). Any call may last as long as `try_acquire`.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Self::try_acquire), if they last, and
    /// [`LimiterErrorKind::Unsupported`] for a [fair](Self::fair) limiter of an earlier generation.
    pub async fn try_acquire_for(
        &self,
        permits: u64,
        timeout: Duration,
    ) -> Result<bool, LimiterError> {
        if timeout.is_zero() {
            return self.try_acquire(permits).await;
        }
        // A timeout beyond the clock's range is no timeout.
        let until = Instant::now().checked_add(timeout);
        let acquired = self.acquire_until(self.request(permits)?, until);
        Ok(acquired.await?.is_ok())
    }

    /// Acquires permits, and waits for them for as long as it takes. Dropping the future ends the
    /// wait; `Limits::stop_waiting`, which ends those of requests and calls, does not.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire_for`](Self::try_acquire_for), but for a Redis that does not answer,
    /// is unavailable, loading, overloaded or read-only: the wait goes on. They also end a wait: if
    /// the rate is lowered below `permits` meanwhile, the error is [`LimiterErrorKind::AboveRate`].
    pub async fn acquire(&self, permits: u64) -> Result<(), LimiterError> {
        self.acquire_permit(permits).await.map(|_| ())
    }

    /// [`acquire`](Self::acquire) with a [`Permit`] that can be released.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    pub async fn acquire_permit(&self, permits: u64) -> Result<Permit, LimiterError> {
        loop {
            let acquired = self.acquire_until(self.request(permits)?, None);
            if let Ok(permit) = acquired.await? {
                return Ok(permit);
            }
        }
    }

    /// Gives back at most this many permits of this client, and returns how many came back.
    ///
    /// The client is this `Redis` handle with its clones, in this process. The permits that still
    /// count come back, the earliest first. A [`Permit`] gives back its own permits.
    ///
    /// If Redis lost the key of the grants, the permits that were in it count for one more
    /// interval, for nobody in particular. They may be this client's earliest, so until then each
    /// call gives back fewer by their number.
    ///
    /// # Errors
    ///
    /// [`LimiterErrorKind::UnknownLimiter`], [`LimiterErrorKind::Malformed`],
    /// [`LimiterErrorKind::Unsupported`] with an earlier generation, [`LimiterErrorKind::Store`].
    pub async fn release(&self, permits: u64) -> Result<u64, LimiterError> {
        self.generation.require_third("release")?;
        if permits == 0 {
            return Ok(0);
        }
        let LimiterBackend { limiters, client } = &self.backend;
        let permits = permits.min(Rate::MAX_PERMITS);
        let released = limiters.release(&self.name, permits).await;
        if !matches!(released, Ok(0)) {
            client.notify_waiters(&self.name);
        }
        self.or_before_it_is_set(released, |_| 0)
    }

    /// The answer, or what it would be for a limiter whose own rate was just set.
    fn or_before_it_is_set(
        &self,
        answer: Result<u64, LimiterError>,
        just_set: impl FnOnce(&Rate) -> u64,
    ) -> Result<u64, LimiterError> {
        match (answer, &self.own_rate) {
            (Err(error), Some(own)) if error.kind() == LimiterErrorKind::UnknownLimiter => {
                Ok(just_set(&own.rate))
            }
            (answer, _) => answer,
        }
    }

    async fn acquire_until(
        &self,
        request: AcquireRequest,
        until: Option<Instant>,
    ) -> Result<Result<Permit, Duration>, LimiterError> {
        if request.is_fair {
            self.generation.require_third("fair waiting")?;
        }
        let LimiterBackend { limiters, client } = &self.backend;
        let batcher = client.batcher(&request, limiters, self.own_rate.as_ref());
        let acquired = acquire(&batcher, client.next_grant_id(), until).await?;
        Ok(acquired.map(Permit))
    }

    fn request(&self, permits: u64) -> Result<AcquireRequest, LimiterError> {
        if permits == 0 {
            let message = "no permits were asked for, expected at least 1";
            return Err(LimiterError::of(LimiterErrorKind::NoPermits, message));
        }
        // No rate is higher. Far higher numbers are also more than a script can count.
        if permits > Rate::MAX_PERMITS {
            return Err(above_rate(&self.name, permits));
        }
        Ok(AcquireRequest {
            name: Arc::clone(&self.name),
            generation: self.generation,
            is_fair: self.is_fair,
            has_rate: self.own_rate.is_some(),
            permits,
            timeout: self.backend.limiters.timeout(),
        })
    }
}

/// Asks for permits immediately, and again whenever they may be granted, until the caller's
/// deadline.
///
/// Returns the grant, or how long the caller would have to wait for it.
pub(super) async fn acquire(
    batcher: &Arc<Batcher>,
    id: GrantId,
    until: Option<Instant>,
) -> Result<Result<GrantGuard, Duration>, LimiterError> {
    // The permits may be granted while the reply gets lost, or while this future is dropped.
    let guard = batcher.guard(id, 0);
    let answer = acquire_until(batcher, id, until).await;
    let is_fair = batcher.request.is_fair;
    let may_be_granted = match &answer {
        Ok(AcquireAnswer::Granted(_)) => false,
        Ok(AcquireAnswer::Denied { retry, .. }) => retry.is_some() || is_fair,
        Err(error) => error.kind().is_of_store() || is_fair,
    };
    if !may_be_granted {
        guard.disarm();
    }
    match answer? {
        AcquireAnswer::Granted(granted) => Ok(Ok(granted.disarm())),
        AcquireAnswer::Denied { wait, .. } => Ok(Err(wait)),
    }
}

/// Returns the last answer. A denial has a `retry` if the caller is still in the queue.
async fn acquire_until(
    batcher: &Arc<Batcher>,
    id: GrantId,
    until: Option<Instant>,
) -> Result<AcquireAnswer, LimiterError> {
    loop {
        let (wait, mut retry) = match batcher.acquire(id, until).await? {
            AcquireAnswer::Denied {
                wait,
                retry: Some(retry),
            } => (wait, retry),
            answer => return Ok(answer),
        };
        let answer = match until {
            Some(until) => timeout_at(until, &mut retry).await,
            None => Ok((&mut retry).await),
        };
        match answer {
            // The runtime that was to ask again has ended.
            Ok(Ok(Ok(AcquireAnswer::Denied { .. })) | Err(_)) => {}
            Ok(Ok(answer)) => return answer,
            Err(_) => {
                let retry = Some(retry);
                let denied = AcquireAnswer::Denied { wait, retry };
                return batcher.failure().map_or(Ok(denied), Err);
            }
        }
    }
}
