use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::breaker::{Breaker, CircuitBreaker};
use super::denial_cache::{DenialCache, Denials};
use super::fallback::LocalFallback;
use super::wrapper::{InFlight, QuestionLimit, Wrapped, Wrapper};
use super::{MemoryStore, Store};
use crate::clock::Clock;
use crate::rule::Share;
#[cfg(feature = "redis")]
use crate::{connection::IntoRedisAddress, error::StoreError, store::redis::RedisStore};

/// A store with wrappers around it, so that requests are answered in bounded time, and as declared,
/// whatever the store does.
///
/// `Resilient::redis` is the usual set-up of a service of several processes:
///
#[cfg_attr(feature = "redis", doc = "```no_run")]
#[cfg_attr(not(feature = "redis"), doc = "```ignore")]
/// use std::time::Duration;
/// use tidegate::{PeerIp, RateLimitLayer, Resilient};
///
/// # async fn run() -> Result<(), tidegate::StoreError> {
/// // While Redis is away, each of at most four processes admits a quarter of the limit by itself.
/// let store = Resilient::redis("redis://127.0.0.1:6379", "shop")?.processes(4);
/// let layer = RateLimitLayer::new("login", Duration::from_secs(60), 5).key(PeerIp).store(store);
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// | from outside in | what it does | default | switched off by |
/// |---|---|---|---|
/// | [`Fallback`](crate::store::Fallback) | answers from memory while the store fails, by a share of each quota | off | `.fallback(None)` |
/// | [`DenialCache`] | answers a denied key until its denial is over, and asks the store again at its max age | 100 ms | `.denial_cache(None)` |
/// | [`CircuitBreaker`] | leaves a store alone that fails, and finds out when it answers again | after 10 failures, every 100 ms | `.failures(None)` |
/// | [`InFlight`] | sheds what is too much at once | 1,024 | `.in_flight(None)` |
/// | [`Timeout`](crate::store::Timeout) | bounds the time of an answer | off: a `RedisStore` has its own, of 50 ms | `.timeout(None)` |
///
/// Clones share the store and its wrappers. A setter leaves the clones as they are: the value it
/// returns has wrappers of its own around the same store.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, RateLimitLayer, Resilient};
///
/// // Any store; in place of a Redis.
/// let store = Resilient::new(MemoryStore::new()).timeout(Duration::from_millis(20));
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).store(store);
/// # let _ = layer;
/// ```
#[derive(Debug)]
pub struct Resilient<S> {
    inner: Arc<S>,
    options: Options,
    /// Made by the first question.
    wrapped: Arc<OnceLock<Wrapped<S>>>,
}

#[derive(Debug, Clone)]
struct Options {
    timeout: Option<Duration>,
    in_flight: Option<usize>,
    failures: Option<u32>,
    probe_every: Duration,
    fallback: Option<Share>,
    fallback_keys: usize,
    denial_max_age: Option<Duration>,
    #[cfg(feature = "test-util")]
    clock: Option<crate::test_util::ManualClock>,
}

#[cfg(feature = "redis")]
impl Resilient<RedisStore> {
    /// A [`RedisStore`] at this address for the service of this name, with the defaults. It
    /// connects in the background, so a service starts while its Redis cannot be reached;
    /// [`connect`](Self::connect) waits for it instead.
    ///
    /// The name stands in front of the keys of this service: `shop:CurrentLimiter:login`. So two
    /// services that use the same Redis and both have a rule `login` do not count together. A
    /// [prefix of a rule](crate::Rule::with_prefix) stands behind it. 1 to 64 ASCII letters,
    /// digits, `-`, `.` or `_`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address or the name makes no sense, or outside of a tokio runtime.
    pub fn redis(address: impl IntoRedisAddress, service: &str) -> Result<Self, StoreError> {
        let store = RedisStore::connect_lazy(address)?;
        Ok(Self::new(store.of_service(service)?))
    }

    /// Waits until Redis can be reached.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server cannot be reached or refuses, or if that takes longer than
    /// [`CONNECT_TIMEOUT`](RedisStore::CONNECT_TIMEOUT).
    pub async fn connect(self) -> Result<Self, StoreError> {
        self.inner.wait_until_connected().await?;
        Ok(self)
    }
}

impl<S: Store> Resilient<S> {
    /// This store, with the defaults.
    pub fn new(store: S) -> Self {
        Self {
            inner: Arc::new(store),
            options: Options {
                timeout: None,
                in_flight: Some(InFlight::<S>::DEFAULT_MAX),
                failures: Some(CircuitBreaker::<S>::DEFAULT_FAILURES),
                probe_every: CircuitBreaker::<S>::DEFAULT_PROBE_EVERY,
                fallback: None,
                fallback_keys: MemoryStore::DEFAULT_MAX_KEYS,
                denial_max_age: Some(DenialCache::<S>::DEFAULT_MAX_AGE),
                #[cfg(feature = "test-util")]
                clock: None,
            },
            wrapped: Arc::default(),
        }
    }

    fn change(&mut self) -> &mut Options {
        self.wrapped = Arc::default();
        &mut self.options
    }

    /// How long an answer of the store may take. A `RedisStore` has its server refuse what is
    /// later. Default: the store's own time-out; of a `RedisStore` that is 50 ms.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.change().timeout = timeout.into();
        self
    }

    /// How many questions may wait for the store's answer at once; `None`: any number; 0: no request
    /// may ask it. Default: 1,024.
    pub fn in_flight(mut self, most: impl Into<Option<usize>>) -> Self {
        self.change().in_flight = most.into();
        self
    }

    /// After how many failures in a row the store is no longer asked, at least 1; `None`: it is
    /// always asked. Default: 10.
    pub fn failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.change().failures = failures.into();
        self
    }

    /// The pause between two probes of a store that is no longer asked: 1 ms to a day, and up to a
    /// fifth more, at random. Default: 100 ms.
    pub fn probe_every(mut self, pause: Duration) -> Self {
        self.change().probe_every = pause;
        self
    }

    /// The share of each quota that this process admits while the store fails; `None`: there is no
    /// fallback. Default: `None`.
    pub fn fallback(mut self, share: impl Into<Option<Share>>) -> Self {
        self.change().fallback = share.into();
        self
    }

    /// At most this many processes share the limits: while the store fails, each admits its share
    /// by itself. The same as [`fallback`](Self::fallback) with
    /// [`Share::of_processes`](Share::of_processes). Default: there is no fallback, and requests
    /// get what their rule says, by default a 503.
    ///
    /// # Panics
    ///
    /// If the number is 0.
    pub fn processes(self, max: u32) -> Self {
        self.fallback(Share::of_processes(max))
    }

    /// How many keys the fallback counts at most. Default: 100,000.
    pub fn fallback_keys(mut self, max_keys: usize) -> Self {
        self.change().fallback_keys = max_keys;
        self
    }

    /// How old a denial may be before one request [asks the store
    /// again](DenialCache::max_age); `None`: every request asks the store. Units that another
    /// process frees by a refund, a reset or a larger quota may be denied for this time.
    /// Default: 100 ms.
    pub fn denial_cache(mut self, max_age: impl Into<Option<Duration>>) -> Self {
        self.change().denial_max_age = max_age.into();
        self
    }

    /// The denial cache reads the time from a clock that a test moves by hand.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::test_util::ManualClock) -> Self {
        self.change().clock = Some(clock);
        self
    }

    /// The same store as an `Arc`, for what wants one.
    #[must_use]
    pub fn build(self) -> Arc<dyn Store> {
        Arc::new(self)
    }

    fn wrap(&self) -> Wrapped<S> {
        let options = &self.options;
        let name = self.inner.name();
        let fallback = options.fallback.map(|share| {
            let store = MemoryStore::with_max_keys(options.fallback_keys);
            Arc::new(LocalFallback::new(name.clone(), share, store))
        });
        #[cfg(not(feature = "test-util"))]
        let clock = Clock::tokio();
        #[cfg(feature = "test-util")]
        let clock = options
            .clock
            .clone()
            .map_or_else(Clock::tokio, Clock::Manual);
        let max_keys = DenialCache::<S>::DEFAULT_MAX_KEYS;
        let denials = options.denial_max_age;
        let denials = denials.map(|max_age| Arc::new(Denials::new(max_keys, max_age, clock)));
        let breaker = options.failures.map(|failures| {
            let inner = Arc::clone(&self.inner);
            let (every, timeout) = (options.probe_every, options.timeout);
            Arc::new(Breaker::new(inner, failures, every, timeout))
        });
        Wrapped {
            fallback,
            denials,
            breaker,
            in_flight: options.in_flight.map(|max| QuestionLimit::new(&name, max)),
            timeout: options.timeout,
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<S: Store> Wrapper for Resilient<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        self.wrapped.get_or_init(|| self.wrap())
    }
}

impl<S> Clone for Resilient<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            options: self.options.clone(),
            wrapped: Arc::clone(&self.wrapped),
        }
    }
}
