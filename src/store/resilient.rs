use std::sync::Arc;
use std::time::Duration;

use super::breaker::{Breaker, CircuitBreaker};
use super::denial_cache::{DenialCache, Denials};
use super::fallback::LocalFallback;
use super::wrapper::{InFlight, QuestionLimit, Wrapped};
use super::{MemoryStore, Store};
use crate::clock::Clock;
use crate::rule::Share;

/// Puts wrappers around a store, so that requests are answered in bounded time, and as declared,
/// whatever the store does.
///
/// | from outside in | what it does | default | switched off by |
/// |---|---|---|---|
/// | [`Fallback`](crate::store::Fallback) | answers from memory while the store fails, by a share of each quota | off | `.fallback(None)` |
/// | [`DenialCache`] | answers a denied key until its denial is over, and asks the store again at its max age | 100 ms | `.denial_cache(None)` |
/// | [`CircuitBreaker`] | leaves a store alone that fails, and finds out when it answers again | after 10 failures, every 100 ms | `.failures(None)` |
/// | [`InFlight`] | sheds what is too much at once | 1,024 | `.in_flight(None)` |
/// | [`Timeout`](crate::store::Timeout) | bounds the time of an answer | off: a `RedisStore` has its own, of 50 ms | `.timeout(None)` |
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, RateLimitLayer, Resilient};
/// use tidegate::rule::Share;
///
/// // In place of a RedisStore. Up to four processes run, and each admits a quarter while there is no Redis.
/// let store = Resilient::around(MemoryStore::new())
///     .fallback(Share::of_processes(4))
///     .build();
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).store(store);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is put around the store before it is built"]
pub struct Resilient<S> {
    store: S,
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

impl<S: Store> Resilient<S> {
    /// Wraps this store, with the defaults.
    pub fn around(store: S) -> Self {
        Self {
            store,
            timeout: None,
            in_flight: Some(InFlight::<S>::DEFAULT_MAX),
            failures: Some(CircuitBreaker::<S>::DEFAULT_FAILURES),
            probe_every: CircuitBreaker::<S>::DEFAULT_PROBE_EVERY,
            fallback: None,
            fallback_keys: MemoryStore::DEFAULT_MAX_KEYS,
            denial_max_age: Some(DenialCache::<S>::DEFAULT_MAX_AGE),
            #[cfg(feature = "test-util")]
            clock: None,
        }
    }

    /// How long an answer of the store may take. A `RedisStore` has its server refuse what is later.
    /// Default: the store's own time-out.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How many questions may wait for the store's answer at once; `None`: any number. Default:
    /// 1,024.
    pub fn in_flight(mut self, most: impl Into<Option<usize>>) -> Self {
        self.in_flight = most.into();
        self
    }

    /// After how many failures in a row the store is no longer asked; `None`: it is always asked.
    /// Default: 10.
    pub fn failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.failures = failures.into();
        self
    }

    /// The pause between two probes of a store that is no longer asked. Default: 100 ms.
    pub fn probe_every(mut self, pause: Duration) -> Self {
        self.probe_every = pause;
        self
    }

    /// The share of each quota that this process admits while the store fails; `None`: there is no
    /// fallback. Default: `None`.
    pub fn fallback(mut self, share: impl Into<Option<Share>>) -> Self {
        self.fallback = share.into();
        self
    }

    /// How many keys the fallback counts at most. Default: 100,000.
    pub fn fallback_keys(mut self, max_keys: usize) -> Self {
        self.fallback_keys = max_keys;
        self
    }

    /// How old a denial may be before one request [asks the store
    /// again](DenialCache::max_age); `None`: every request asks the store. Units that another
    /// process frees by a refund, a reset or a larger quota may be denied for this time.
    /// Default: 100 ms.
    pub fn denial_cache(mut self, max_age: impl Into<Option<Duration>>) -> Self {
        self.denial_max_age = max_age.into();
        self
    }

    /// The denial cache reads the time from a clock that a test moves by hand.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::test_util::ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The store with its wrappers.
    #[must_use]
    pub fn build(self) -> Arc<dyn Store> {
        let bare = Wrapped::bare(self.store);
        let name = bare.inner.name();
        let fallback = self.fallback.map(|share| {
            let store = MemoryStore::with_max_keys(self.fallback_keys);
            Arc::new(LocalFallback::new(name.clone(), share, store))
        });
        #[cfg(not(feature = "test-util"))]
        let clock = Clock::tokio();
        #[cfg(feature = "test-util")]
        let clock = self.clock.map_or_else(Clock::tokio, Clock::Manual);
        let max_keys = DenialCache::<S>::DEFAULT_MAX_KEYS;
        let denials = self.denial_max_age;
        let denials = denials.map(|max_age| Arc::new(Denials::new(max_keys, max_age, clock)));
        let breaker = self.failures.map(|failures| {
            let inner = Arc::clone(&bare.inner);
            Arc::new(Breaker::new(
                inner,
                failures,
                self.probe_every,
                self.timeout,
            ))
        });
        Arc::new(Wrapped {
            fallback,
            denials,
            breaker,
            in_flight: self.in_flight.map(|max| QuestionLimit::new(&name, max)),
            timeout: self.timeout,
            ..bare
        })
    }
}
