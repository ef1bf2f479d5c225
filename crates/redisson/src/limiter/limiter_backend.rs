use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::client::Client;
use super::error::{LimiterError, LimiterErrorKind};
use super::memory_limiters::MemoryLimiters;
use super::rate::Rate;
#[cfg(feature = "redis")]
use super::redis_limiters::RedisLimiters;
use super::redisson_use::RedissonPermits;
#[cfg(feature = "redis")]
use super::scripts::OF_LIMITERS;
#[cfg(feature = "redis")]
use crate::clock::Clock;
#[cfg(feature = "redis")]
use crate::connection::Redis;

/// Where a [`RateLimiter`](super::RateLimiter) keeps its state: converted from a `Redis` handle or
/// from [`MemoryLimiters`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::{LimiterBackend, MemoryLimiters, Rate, RateLimiter};
///
/// /// A budget in memory for tests, and in Redis for the service.
/// fn partner(backend: impl Into<LimiterBackend>) -> Result<RateLimiter, Box<dyn std::error::Error>> {
///     let rate = Rate::overall(10, Duration::from_secs(1))?;
///     Ok(RateLimiter::new(backend, "partner").rate(rate))
/// }
/// # let _ = partner(&MemoryLimiters::default());
/// ```
#[derive(Clone)]
pub struct LimiterBackend {
    pub(super) limiters: Arc<dyn Limiters>,
    pub(super) client: Arc<Client>,
}

impl From<MemoryLimiters> for LimiterBackend {
    fn from(limiters: MemoryLimiters) -> Self {
        Self {
            client: Arc::clone(&limiters.client),
            limiters: Arc::new(limiters),
        }
    }
}

impl From<&MemoryLimiters> for LimiterBackend {
    fn from(limiters: &MemoryLimiters) -> Self {
        limiters.clone().into()
    }
}

#[cfg(feature = "redis")]
impl From<&Redis> for LimiterBackend {
    fn from(redis: &Redis) -> Self {
        Self::on_redis(redis, None)
    }
}

#[cfg(feature = "redis")]
impl From<Redis> for LimiterBackend {
    fn from(redis: Redis) -> Self {
        Self::from(&redis)
    }
}

#[cfg(feature = "redis")]
impl LimiterBackend {
    /// Limiters on Redis that decide by a clock that a test moves by hand, instead of the server's
    /// clock. Callers still wait by tokio's clock.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn redis_with_clock(redis: &Redis, clock: crate::clock::ManualClock) -> Self {
        Self::on_redis(redis, Some(Clock::Manual(clock)))
    }

    fn on_redis(redis: &Redis, clock: Option<Clock>) -> Self {
        let client = redis.keep(|connection| {
            connection.preload(OF_LIMITERS);
            Client::with_uuid(redis.id())
        });
        let limiters = RedisLimiters::new(redis, client.id(), clock);
        Self {
            limiters: Arc::new(limiters),
            client,
        }
    }
}

impl fmt::Debug for LimiterBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiters.fmt(f)
    }
}

/// How permits are counted: Redisson's rate limiter has counted them in three ways.
///
/// | Redisson | generation |
/// |---|---|
/// | to 3.13.2 | [`First`](Self::First) |
/// | 3.13.3 to 3.16.3 | [`Second`](Self::Second), best beside 3.15.3 or later |
/// | 3.16.4 to 3.16.8 | none: upgrade Redisson |
/// | 3.17.0 and later | [`Third`](Self::Third) |
///
/// All processes that share a limiter must use the same generation. Clients of Redisson that count
/// in another way would break. So calls fail with
/// [`Unsupported`](super::LimiterErrorKind::Unsupported), and write nothing, while grants of such
/// clients count: if the limiter is [shared](super::RateLimiter::shared_with_redisson), and they
/// came first.
///
/// The generations use the same keys, so a fleet of this crate can move from one to the next while
/// it runs; permits that were granted before keep counting, some of them for longer. Only the third
/// generation can tell grants apart: with the others, a dropped future gives nothing back.
///
/// ```no_run
/// use std::time::Duration;
/// # #[cfg(feature = "redis")]
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::Redis;
/// use tidegate::limiter::{Generation, Rate, RateLimiter};
///
/// // The services in Java still use Redisson 3.12, which counts in a fixed window.
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let partner = RateLimiter::new(&redis, "partner")
///     .rate(Rate::overall(10, Duration::from_secs(1))?)
///     .generation(Generation::First);
/// partner.acquire(1).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Generation {
    /// Redisson to 3.13.2: a fixed window.
    ///
    /// A value holds the remaining permits and expires one interval after the first grant. Around
    /// the end of a window, up to twice the rate is granted within one interval. A denied caller
    /// asks again when the window ends. It supports neither
    /// [`release`](super::RateLimiter::release) nor [`fair`](super::RateLimiter::fair).
    First,
    /// Redisson 3.13.3 to 3.16.3: a sliding window.
    ///
    /// A sorted set holds the grants. A denied caller asks again when the earliest grant expires,
    /// even if too few permits are available then. It supports neither `release` nor `fair`.
    Second,
    /// Redisson since 3.17.0, with its errors corrected: a sliding window.
    ///
    /// A denied caller asks again when as many permits as it wants have expired.
    #[default]
    Third,
}

impl Generation {
    /// What scripts call it.
    #[cfg(feature = "redis")]
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Second => 2,
            Self::Third => 3,
        }
    }

    /// Fails unless this is the third generation, which alone supports this feature.
    pub(super) fn require_third(self, feature: &str) -> Result<(), LimiterError> {
        if self == Self::Third {
            return Ok(());
        }
        let message = format!("the {self:?} generation does not support {feature}");
        Err(LimiterError::of(LimiterErrorKind::Unsupported, message))
    }
}

/// The future of a call to [`Limiters`].
pub(super) type LimiterFuture<'a, T> = BoxFuture<'a, Result<T, LimiterError>>;

/// The rate limiters of one server or of this process, by name.
///
/// Each method is atomic. `acquire`, `give_back`, `release` and `available` of a name without a
/// rate fail with [`UnknownLimiter`](super::LimiterErrorKind::UnknownLimiter).
pub(super) trait Limiters: fmt::Debug + Send + Sync + 'static {
    /// Grants the request to one caller after the other, while enough permits are left.
    fn acquire(
        &self,
        request: AcquireRequest,
        call: AcquireCall,
    ) -> LimiterFuture<'static, AcquireReply>;

    /// Gives back the grants that still count, and removes callers without a grant from the fair
    /// queue. Returns the number of permits given back. The answer may take longer than
    /// [`timeout`](Self::timeout): a slow process is only late.
    fn give_back(&self, name: Arc<str>, grants: Vec<Grant>) -> LimiterFuture<'static, u64>;

    /// Makes calls that no caller waits for. By default they are answered immediately.
    fn run_unawaited(&self, calls: BoxFuture<'static, ()>) {
        _ = calls.now_or_never();
    }

    /// Gives back at most `permits` that this client was granted. Returns the number given back.
    fn release<'a>(&'a self, name: &'a str, permits: u64) -> LimiterFuture<'a, u64>;

    /// Returns the number of permits that can be granted now.
    fn available<'a>(&'a self, name: &'a str, generation: Generation) -> LimiterFuture<'a, u64>;

    /// Sets the rate as `mode` says, for callers of this generation. Returns when it was chosen, in
    /// microseconds of the server's clock; `None` if it was not set. A choice of the process has that time in any case, for the
    /// next time and for [`AcquireCall::chosen_at`].
    fn set_rate<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        sharing: Sharing,
        generation: Generation,
        mode: SetMode,
    ) -> LimiterFuture<'a, Option<u64>>;

    /// Returns the rate as it is stored; `None` without a rate.
    fn stored<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<StoredRate>>;

    /// Lets the limiter expire after this time. Returns whether the limiter exists.
    fn expire<'a>(&'a self, name: &'a str, after: Duration) -> LimiterFuture<'a, bool>;

    /// Deletes the limiter. Returns whether it existed.
    fn delete<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool>;

    fn exists<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool>;

    /// How long one call may take.
    fn timeout(&self) -> Duration;

    /// The runtime that makes the calls; `None` for the runtime of the caller.
    fn runtime(&self) -> Option<&Handle>;
}

/// Identifies a client: the first half of the id of each of its grants.
pub(super) type ClientId = [u8; 8];

/// Identifies one caller's request and its grant: the client in 8 bytes, and a number in 8 bytes.
///
/// The number is less than 2^48: by that the scripts know grants from those of Redisson.
pub(super) type GrantId = [u8; 16];

/// What a caller asks for. Callers with equal requests share calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcquireRequest {
    pub(super) name: Arc<str>,
    pub(super) generation: Generation,
    /// Whether callers of all processes are served in the order of their arrival.
    pub(super) is_fair: bool,
    /// Whether the limiter carries its rate.
    pub(super) has_rate: bool,
    /// The number of permits that each caller wants.
    pub(super) permits: u64,
    /// How long a call may take. Callers with another timeout make calls of their own.
    pub(super) timeout: Duration,
}

/// One call, for several callers with the same request.
#[derive(Debug, Clone)]
pub(super) struct AcquireCall {
    pub(super) callers: Vec<GrantId>,
    /// Whether a call whose reply was lost may have granted some of these callers their permits.
    /// They still have them then, and are not charged again.
    #[cfg_attr(not(feature = "redis"), expect(dead_code))]
    pub(super) is_in_doubt: bool,
    /// How many permits of Redisson counted lately; `None` if they need not be counted.
    #[cfg_attr(not(feature = "redis"), expect(dead_code))]
    pub(super) redisson_average: Option<u64>,
    /// When the callers' process chose its rate. If an earlier choice stands, the call fails with
    /// [`UnknownLimiter`](super::LimiterErrorKind::UnknownLimiter).
    pub(super) chosen_at: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct AcquireReply {
    /// The indices of the callers whose permits were granted.
    pub(super) granted: Vec<usize>,
    /// The stamp of the grants: see [`Grant::stamp`].
    pub(super) stamp: u64,
    /// How long the first caller without permits has to wait at least.
    pub(super) wait: Duration,
    /// How many permits of Redisson count, if they were counted.
    pub(super) redisson: Option<RedissonPermits>,
}

/// Permits that were granted, or that may have been granted in a call without a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) id: GrantId,
    /// The millisecond by which limiters in memory find the grant again; 0 on Redis, which finds it
    /// by `id`.
    pub(super) stamp: u64,
    pub(super) permits: u64,
}

/// A rate that is in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredRate {
    pub(super) rate: Rate,
    pub(super) sharing: Sharing,
    /// When the rate is forgotten unless permits are granted before; `None` for never.
    pub(super) expires_in: Option<Duration>,
}

/// Whether clients of Redisson use the limiter as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    TidegateOnly,
    WithRedisson,
}

/// When a rate is set, and what becomes of the permits that were granted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetMode {
    /// Only if there is no rate. Earlier grants still count if their rate was forgotten.
    IfMissing,
    /// Always. Earlier grants no longer count.
    Always,
    /// Unless a later choice is in force. Earlier grants still count. The process chose the rate
    /// this long ago, and sets it for the first time: it replaces any other rate.
    ChosenAgo(Duration),
    /// As `ChosenAgo`, for a rate that was set before: at this time, as the server said then.
    ChosenAt(u64),
}
