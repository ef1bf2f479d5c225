use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::breaker::{Breaker, MAX_FAILURES};
use super::capabilities::{Capabilities, Condition};
use super::denial_cache::Denials;
use super::fallback::LocalFallback;
use super::fleet::Fleet;
use super::guarded::{Guarded, QuestionLimit};
use super::path_stores::PathStores;
use super::{MemoryStore, Store, StoreFuture};
use crate::algorithm::share::Share;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::question::{Ask, Change};
#[cfg(feature = "redis")]
use crate::{
    connection::{IntoRedisAddress, Wanted},
    error::StoreError,
    store::redis::RedisStore,
};

/// The door to a store: requests are answered in bounded time, and as declared, whatever the store
/// does.
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
/// A question passes its parts in this order:
///
/// | part | what it does | default | switched off by |
/// |---|---|---|---|
/// | [fallback](Self::fallback) | answers from memory while the store fails, by a share of each quota | off | `.fallback(None)` |
/// | [denial cache](Self::denial_cache) | answers a denied key until its denial is over, and asks the store again at its max age | 100 ms | `.denial_cache(None)` |
/// | [circuit breaker](Self::failures) | leaves a store alone that fails, and finds out when it answers again | after 10 failures, every 100 ms | `.failures(None)` |
/// | [bound](Self::in_flight) | sheds what is too much at a time | 1,024 | `.in_flight(None)` |
/// | [time-out](Self::timeout) | bounds the time of an answer | off: a `RedisStore` has its own, of 50 ms | `.timeout(None)` |
///
/// Clones share the store and its parts. A setter leaves the clones as they are: the value it
/// returns has new parts around the same store.
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
pub struct Resilient<S> {
    inner: Arc<S>,
    options: ResilientOptions,
    /// Made by the layer, or by the first question.
    parts: Arc<OnceLock<Arc<Guarded<S>>>>,
}

#[derive(Debug, Clone)]
struct ResilientOptions {
    timeout: Option<Duration>,
    in_flight: Option<usize>,
    failures: Option<u32>,
    probe_every: Duration,
    fallback: Option<Share>,
    processes: Option<u32>,
    fallback_keys: usize,
    fallback_stores: Option<Arc<PathStores>>,
    denial_max_age: Option<Duration>,
    denial_keys: usize,
    /// The clock of the denial cache.
    clock: Option<Clock>,
}

#[cfg(feature = "redis")]
impl Resilient<RedisStore> {
    /// A [`RedisStore`] at this address for the service of this name, with the defaults. It
    /// connects in the background, so a service starts while its Redis cannot be reached.
    /// [`ready`](Store::ready) waits for it before the first request, and so does
    /// [`connect`](Self::connect), with an error if it cannot be reached.
    ///
    /// The name is in front of the keys of this service: `shop:CurrentLimiter:login`. So two
    /// services that use the same Redis and both have a rule `login` do not count together. A
    /// [prefix of a rule](crate::Rule::with_prefix) stands behind it. 1 to 64 ASCII letters,
    /// digits, `-`, `.` or `_`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address or the name makes no sense, or outside of a tokio runtime.
    pub fn redis(address: impl IntoRedisAddress, service: &str) -> Result<Self, StoreError> {
        let store = RedisStore::connect_lazy(address)?;
        Ok(Self::new(store.with_service(service)?))
    }

    /// Waits until Redis can be reached.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the server cannot be reached or refuses, or if that takes longer than
    /// [`CONNECT_TIMEOUT`](RedisStore::CONNECT_TIMEOUT).
    pub async fn connect(self) -> Result<Self, StoreError> {
        let (connection, bound) = (&self.inner.connection, RedisStore::CONNECT_TIMEOUT);
        connection.connected(Wanted::First, bound).await?;
        Ok(self)
    }
}

impl<S: Store> Resilient<S> {
    /// This store, with the defaults.
    pub fn new(store: S) -> Self {
        Self::bare(store)
            .in_flight(1_024)
            .failures(MAX_FAILURES)
            .denial_cache(Duration::from_millis(100))
    }

    /// This store, with all parts off that can be: a time-out, a bound, a breaker, a denial cache
    /// and a fallback are only there if they are set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{MemoryStore, Resilient};
    ///
    /// // A time-out and nothing else.
    /// let store = Resilient::bare(MemoryStore::new()).timeout(Duration::from_millis(20));
    /// # let _ = store;
    /// ```
    pub fn bare(store: S) -> Self {
        Self {
            inner: Arc::new(store),
            options: ResilientOptions {
                timeout: None,
                in_flight: None,
                failures: None,
                probe_every: Duration::from_millis(100),
                fallback: None,
                processes: None,
                fallback_keys: MemoryStore::DEFAULT_MAX_KEYS,
                fallback_stores: None,
                denial_max_age: None,
                denial_keys: 10_000,
                clock: None,
            },
            parts: Arc::default(),
        }
    }

    fn options_mut(&mut self) -> &mut ResilientOptions {
        self.parts = Arc::default();
        &mut self.options
    }

    /// How long an answer of the store may take. Default: the store's own time-out; of a
    /// `RedisStore` that is 50 ms.
    ///
    /// After that time the answer is a [`StoreError`](crate::StoreError) of the kind
    /// [`Timeout`](crate::store::StoreErrorKind::Timeout). A process that comes to the end of that
    /// time late, because it was slow itself, waits longer by as much as it was late, at most once
    /// more the time. A `RedisStore` has its server refuse what is later; if its own time-out was
    /// set, too, the earlier one counts.
    ///
    /// It needs a tokio runtime with its timer enabled, unless the store answers immediately.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options_mut().timeout = timeout.into();
        self
    }

    /// How many questions may wait for the store's answer at a time; `None`: any number; 0: no
    /// request may ask it. Default: 1,024. At a time-out of 50 ms, a store that answers in the last
    /// moment still gives 20,000 answers a second.
    ///
    /// Beyond that, a question is answered immediately with a [`StoreError`](crate::StoreError) of
    /// the kind [`Overloaded`](crate::store::StoreErrorKind::Overloaded), so that a store that has
    /// become slow does not gather requests that would all be too late. Whoever may
    /// [wait](crate::RateLimitLayer::wait) asks again 10 to 50 ms later, and leaves a quarter of the
    /// bound to others. Each take needs a place, also where the store answers immediately, except
    /// [repeats](crate::Take::repeat) of callers that wait, and takes of
    /// [shadow rules](crate::Rule::into_shadow). Refunds, settlements, holds and resets have a bound
    /// of their own, of 16,384, and refunds [by outcome](crate::Rule::with_refund_on) another one.
    /// Beyond theirs they ask again every 10 to 50 ms until their time-out is over, and only then
    /// fail. A future that is dropped gives its place back; one that is kept and not polled holds it
    /// beyond its time-out.
    pub fn in_flight(mut self, max: impl Into<Option<usize>>) -> Self {
        self.options_mut().in_flight = max.into();
        self
    }

    /// How many questions wait for an answer of the store now; 0 without a
    /// [bound](Self::in_flight).
    #[must_use]
    pub fn under_way(&self) -> usize {
        let limit = self.guarded().in_flight.as_ref();
        limit.map_or(0, QuestionLimit::under_way)
    }

    /// The circuit breaker: after how many failures in a row, at least 1, the store is no longer
    /// asked; `None`: it is always asked. Default: 10.
    ///
    /// - **Closed**: it passes every question on. After this number of failures in a row,
    ///   without a decision in between, it opens.
    /// - **Open**: it answers immediately with a [`StoreError`](crate::StoreError) of the kind
    ///   [`Unavailable`](crate::store::StoreErrorKind::Unavailable), whose source is the failure
    ///   that opened it. A task probes the store [every 100 ms](Self::probe_every), with the take
    ///   that failed last and then with takes that were refused, which [only
    ///   look](crate::Take::looking). The first answer makes the breaker half-open.
    /// - **Half-open**: one request passes, all others are refused. If that request is decided, the
    ///   breaker closes; if it fails, the breaker opens again. A probe alone is not enough: it
    ///   writes nothing, so a read-only replica and a server without memory answer it, too.
    ///
    /// | kind of error | counts as |
    /// |---|---|
    /// | `Timeout`, `Unavailable`, `ReadOnly`, `OutOfMemory`, `Protocol` | a failure |
    /// | `WrongType`, `Refused`, `Full`, `Configuration`, `Overloaded` | nothing: it may be about one key, or is about this process |
    ///
    /// A decision on a take that does not only look counts as a success, whether it allows or denies,
    /// and also if this process was late to read it. The answer to a question from before the
    /// breaker opened or closed counts for nothing.
    ///
    /// The store needs a time-out, its own or [that of this](Self::timeout): a request that is
    /// dropped while it waits is no failure. The task runs on the runtime in which the breaker
    /// opened, and ends with the last clone. Where there is no runtime, or it has ended, a request
    /// passes instead of each probe.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{MemoryStore, Resilient};
    ///
    /// let store = Resilient::new(MemoryStore::new())
    ///     .failures(20)
    ///     .probe_every(Duration::from_millis(250));
    /// # let _ = store;
    /// ```
    pub fn failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.options_mut().failures = failures.into();
        self
    }

    /// The pause between two probes of a store that is no longer asked: 1 ms to a day, and up to a
    /// fifth more, at random. A probe takes at most a second. Layers say the pause in the
    /// `Retry-After` of their 503. Default: 100 ms.
    pub fn probe_every(mut self, pause: Duration) -> Self {
        self.options_mut().probe_every = pause;
        self
    }

    /// Answers from the memory of this process, by this share of each quota, whenever the store
    /// fails; `None`: there is no fallback. Default: `None`.
    ///
    /// Every take asks the store first, so that it decides again as soon as it can. The [circuit
    /// breaker](Self::failures) lets that cost no time while the store fails. A decision of the
    /// fallback has the source [`Fallback`](crate::decision::Source::Fallback) and the
    /// [failure](Decision::failure) that caused it. Takes whose rule says
    /// [`OnError::Respond`](crate::rule::OnError::Respond) or
    /// [`OnError::Proceed`](crate::rule::OnError::Proceed) get the error instead.
    ///
    /// # What it may admit
    ///
    /// The fallback limits a quota of `max` units to `floor(max * share)` in its window, and to
    /// `max` in `window / share`, or in [ten years](crate::Quota::MAX_WINDOW) where that is less.
    /// Under GCRA it limits the burst to `floor(burst * share)`, and refills `max * share` in a window. A request
    /// above the first number is admitted, and charged whole, where nothing else counts in the
    /// window. So no choice of costs, of their order, or of another max of the same window gives a
    /// key more than the share, or than one request; and who mixes costs may wait up to `window /
    /// share` behind a large one. It admits nothing if `max` is 0, or if one request costs more
    /// than `max`.
    ///
    /// A denial by these quotas says little of when the store, which may be back in a moment, has
    /// room: its retry-after is at most as long as the store has failed, 1 s at least and 5 s at
    /// most, and up to 1 s more, so that clients come back apart. It is a problem document of the
    /// type `temporary-reduced-capacity` with the status 429, or gRPC's 8. Lock-outs, holds and
    /// permits keep their times. Responses show no fields of its quotas.
    ///
    /// The fallback keeps its counts while the store comes and goes. So however often that happens,
    /// a window of `n` processes holds at most `max` of what the store admitted in it, and at most
    /// `n * floor(max * share)` of what the fallbacks admitted, or `n` requests where one is more.
    /// With [`Share::of_processes`] that is `max` in a window in which only the fallbacks decided,
    /// and up to twice `max` in a window in which both did. Where the
    /// [algorithm](crate::Algorithm) itself admits more than `max`, its share is larger alike.
    ///
    /// Of a [calendar](crate::rule::Policy::calendar) quota it admits an hour's part of that share
    /// at once, which is at least one unit, or one request, and what comes evenly; and never more
    /// than the share in the longest such period. A request that costs more than the share is
    /// denied for as long as the store fails. Where the store's last answer left no room for another request like its own, no request that
    /// costs more than what was left is admitted until the period ends. Of more than 10,000 such
    /// keys one is forgotten.
    ///
    /// A key that the store has [locked out](crate::rule::Lockout) stays locked out here, if this
    /// process was told so: by a denial, or by the failure that began it. An answer of the store
    /// that admits the key ends that, and so does a reset through this process; a reset through
    /// another one is not heard while the store fails. Of more than 10,000 such keys, the one whose
    /// hold ends first is forgotten. Where a quota denied the key for longer than its hold, the
    /// time of its longest hold counts, from that denial on.
    ///
    /// A take is charged in one place. Only if the store's outcome is unknown, after a time-out or
    /// a broken connection, may it have been charged there as well: the quota is then kept more
    /// strictly, never more loosely. A [refund](Store::refund) goes to the store that gave its
    /// receipt. A [reset](Store::reset) forgets the key here in any case, and its answer is that of
    /// the store.
    ///
    /// The memory is bounded: the fallback counts in a [`MemoryStore`] for each path, and passes on
    /// its error when it is [full](crate::store::StoreErrorKind::Full).
    ///
    /// ```
    /// use tidegate::rule::Share;
    /// use tidegate::{MemoryStore, Resilient};
    ///
    /// let store = Resilient::new(MemoryStore::new()).fallback(Share::of_processes(4));
    /// # let _ = store;
    /// ```
    pub fn fallback(mut self, share: impl Into<Option<Share>>) -> Self {
        let options = self.options_mut();
        (options.fallback, options.processes) = (share.into(), None);
        self
    }

    /// At most this many processes share the limits: while the store fails, each admits its share
    /// by itself. The same as [`fallback`](Self::fallback) with
    /// [`Share::of_processes`](Share::of_processes). Default: there is no fallback, and requests
    /// get what their rule says, by default a 503. If the [fleet](crate::Limits::join_fleet) counts
    /// more processes that decide, for ten minutes, that is a
    /// [warning](crate::warning::WarningKind::MoreProcesses).
    ///
    /// # Panics
    ///
    /// If the number is 0.
    pub fn processes(self, max: u32) -> Self {
        let mut store = self.fallback(Share::of_processes(max));
        store.options.processes = Some(max);
        store
    }

    /// How many keys the fallback counts at most. Default: 100,000. A path that alone has keys gets
    /// all but an eighth of them; beside others, a new key while it has fewer than are free. So a
    /// flood of invented keys at one path leaves room at others.
    pub fn fallback_keys(mut self, max_keys: usize) -> Self {
        self.options_mut().fallback_keys = max_keys;
        self
    }

    /// A store whose clock and size those of the fallback have, for example one that reads the time
    /// elsewhere. Later clones share them. Default: one for [so many keys](Self::fallback_keys).
    pub fn fallback_store(mut self, store: MemoryStore) -> Self {
        self.options_mut().fallback_stores = Some(Arc::new(PathStores::new(store)));
        self
    }

    /// Remembers denials: while a denial is valid, it answers the same take in the memory of this
    /// process, so that a flood of denied requests costs the store nearly nothing. The max age says
    /// how old a denial may become; `None`: every request asks the store. Default: 100 ms.
    ///
    /// A denial answers takes of the same rule, the same `Arc`, of the same key and of the same
    /// cost. The answer is there immediately, without an allocation, and its source is
    /// [`Cache`](crate::decision::Source::Cache): the verdict is that of the store, whose
    /// [name](Store::name) the cache has, and never that of a fallback.
    ///
    /// # What it answers
    ///
    /// - **The remaining units** are those of the denial.
    /// - **The retry-after** is what is left of it, and ends when that of the first caller does: it
    ///   is counted from the instant at which the store's answer came. The store allows the take at
    ///   that instant, and at most one round trip earlier. The reset-after is what is left, too; a
    ///   rule of several quotas tells that of the denial.
    /// - **The denial ends** its retry-after from the instant at which its question was sent, less
    ///   a thousandth for clocks whose paces differ. The server's time cannot be over before. From
    ///   then on the store answers. So the cache denies nobody for whom time has made room in the
    ///   store.
    /// - **A take that can [never](crate::decision::Verdict::Never) be allowed** has no such end.
    ///
    /// A denial is void immediately after a [refund](Store::refund) or a [reset](Store::reset)
    /// through this cache, and when the rule is replaced by another one. A question from before is
    /// then not remembered, either. The denial of a take of several subjects answers the same keys
    /// of all of them, and is void after a refund or a reset of any of its counts.
    ///
    /// # What may free units without its knowledge
    ///
    /// *What is free is granted* has this one exception: units that another process, or another
    /// store of this process, frees by a refund, a reset or a larger quota may be denied here for
    /// at most the max age. The same holds when the server loses its data or its clock is set
    /// forward, after a refund or a reset that got no answer, and after a rule was replaced by one
    /// under which charges count for a longer time: what was charged before is then free earlier
    /// than the store said.
    ///
    /// Once a denial has three quarters of the max age, the next take asks the store, and only that
    /// one; until its answer comes, the others are answered by the denial, and do not wait. If that
    /// take fails or its future is dropped, the denial is void. So it is at the max age: then every
    /// take asks until there is a new denial.
    ///
    /// # What it does not answer
    ///
    /// Takes at a cost of 0, those that [only look](crate::Take::looking), and [repeats](crate::Take::repeat) of
    /// callers that wait always ask the store.
    ///
    /// The memory is bounded: it remembers [at most 10,000](Self::denial_cache_keys) denials, each
    /// a rule, a key and a cost. Where there is no room, a new denial takes the place of one of the
    /// eight others that its key shares a place with: that of the least recently used one. So a
    /// flood of keys costs no caller more time, and a key that is asked for often stays. Time is
    /// tokio's, so that `tokio::time::pause` works on it. A store whose answers take longer than a
    /// quarter of the max age is asked more often, and by every take if they take longer than all
    /// of it. With [`Duration::ZERO`] the cache is off; with [`Duration::MAX`] a denial lasts as
    /// long as its retry-after.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::decision::Source;
    /// use tidegate::{Key, MemoryStore, Quota, Resilient, Rule, Store, Take};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // In place of a RedisStore.
    /// let store = Resilient::new(MemoryStore::new());
    /// let rule = Arc::new(Rule::new("export", [Quota::per_hour(1)])?);
    /// let take = Take::new(rule, Key::from("alice"));
    /// assert!(store.take(&take).await?.is_allowed());
    ///
    /// let denied = store.take(&take).await?;
    /// assert_eq!(denied.source(), Source::Local);
    /// let again = store.take(&take).await?;
    /// assert_eq!(again.source(), Source::Cache);
    /// assert!(again.retry_after() <= denied.retry_after());
    /// # Ok(())
    /// # }
    /// ```
    pub fn denial_cache(mut self, max_age: impl Into<Option<Duration>>) -> Self {
        self.options_mut().denial_max_age = max_age.into();
        self
    }

    /// How many denials are remembered at most; with 0 the cache is off. Default: 10,000, which
    /// take about 2 MB where the keys are addresses. More than a million become that number: room
    /// for so many takes 200 MB.
    pub fn denial_cache_keys(mut self, max_keys: usize) -> Self {
        self.options_mut().denial_keys = max_keys;
        self
    }

    /// The denial cache reads the time from a clock that a test moves by hand.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::clock::ManualClock) -> Self {
        self.options_mut().clock = Some(Clock::Manual(clock));
        self
    }

    /// This store as an `Arc`, for what wants one.
    #[must_use]
    pub fn build(self) -> Arc<dyn Store> {
        Arc::new(self)
    }

    fn guarded(&self) -> &Arc<Guarded<S>> {
        self.parts.get_or_init(|| self.make_parts())
    }

    fn make_parts(&self) -> Arc<Guarded<S>> {
        let (options, inner) = (self.options.clone(), Arc::clone(&self.inner));
        let name = inner.name();
        let clock = options.clock.unwrap_or_else(Clock::tokio);
        let fallback = options.fallback.map(|share| {
            let own = || PathStores::new(MemoryStore::with_max_keys(options.fallback_keys));
            let stores = options.fallback_stores.unwrap_or_else(|| Arc::new(own()));
            Arc::new(LocalFallback::new(name.clone(), share, stores))
        });
        let denials = options
            .denial_max_age
            .map(|max_age| Arc::new(Denials::new(options.denial_keys, max_age, clock)));
        let breaker = options.failures.map(|failures| {
            let (inner, every) = (Arc::clone(&inner), options.probe_every);
            Arc::new(Breaker::new(inner, failures, every, options.timeout))
        });
        Arc::new(Guarded {
            fallback,
            denials,
            breaker,
            in_flight: options.in_flight.map(|max| QuestionLimit::new(&name, max)),
            timeout: options.timeout,
            inner,
        })
    }
}

impl<S: Store> Store for Resilient<S> {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        self.guarded().take(ask)
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        self.guarded().change(ask, change)
    }

    fn listen(&self, ask: &Ask, changed: Box<dyn Fn() + Send + Sync>) -> Option<StoreFuture<()>> {
        self.inner.listen(ask, changed)
    }

    fn ready(&self, bound: Duration) -> StoreFuture<()> {
        self.ready_within(bound, None)
    }

    fn ready_within(&self, bound: Duration, timeout: Option<Duration>) -> StoreFuture<()> {
        let timeout = self.options.timeout.into_iter().chain(timeout).min();
        self.inner.ready_within(bound, timeout)
    }

    fn flush(&self, bound: Duration) -> StoreFuture<bool> {
        self.inner.flush(bound)
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        let (guarded, inner) = (self.guarded(), self.inner.capabilities());
        Capabilities {
            timeout: guarded.timeout.into_iter().chain(inner.timeout).min(),
            probe_every: guarded.breaker.as_ref().map(|_| self.options.probe_every),
            has_fallback: guarded.fallback.is_some() || inner.has_fallback,
            processes: self.options.processes.or(inner.processes),
            has_denial_cache: guarded.denials.is_some() || inner.has_denial_cache,
            ..inner
        }
    }

    fn condition(&self) -> Condition {
        let (guarded, mut condition) = (self.guarded(), self.inner.condition());
        let of_fallback = guarded.fallback.iter();
        let of_fallback = of_fallback.flat_map(|it| it.stores.warnings());
        condition.warnings.extend(of_fallback);
        if let Some(breaker) = &guarded.breaker {
            let inner = condition.is_breaker_open == Some(true);
            condition.is_breaker_open = Some(inner || breaker.is_open());
        }
        condition
    }

    fn fleet(&self) -> Option<Arc<dyn Fleet>> {
        self.inner.fleet()
    }
}

impl<S: fmt::Debug> fmt::Debug for Resilient<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resilient")
            .field("inner", &self.inner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<S> Clone for Resilient<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            options: self.options.clone(),
            parts: Arc::clone(&self.parts),
        }
    }
}
