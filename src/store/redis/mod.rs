//! The counts of a fleet.

mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::RedisResult;
use redis::aio::ConnectionLike;

use super::name::Name;
use super::{Refunding, Store, Take, Taking};
use crate::algorithm::Algorithm;
use crate::connection::{
    FIXED_WINDOW, GCRA, REFUND, Reconnecting, SLIDING_LOG, SLIDING_WINDOW, Script, server,
    store_error,
};
use crate::decision::{Decision, Decisions, Token};
use crate::error::{StoreError, StoreErrorKind};

/// Keeps the counts in Redis, so that all processes that use the same server share them.
///
/// A take is one script call and one round trip. Redis decides alone and by its own clock, so
/// processes may come and go and their clocks may be wrong.
///
/// A decision takes at most the [time-out](RedisStore::timeout), whatever Redis does; then it is a
/// [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout). A take that timed out may still
/// be charged when Redis gets to it.
///
/// The count of a rule and key is one key, named by the prefix, the rule's path and the key:
/// `CurrentLimiter:getId`; a sorted set for the sliding log, a string for the other algorithms. What was given
/// back of it stands beside it, in `{CurrentLimiter:getId}:refunds`. Both expire a second or two after they
/// have ceased to matter.
///
/// It works over any connection of the Redis client that can be cloned; [`RedisStore::connect`]
/// makes one that comes back by itself. Takes need a tokio runtime with its timer enabled.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::{RateLimitLayer, RedisStore};
///
/// # async fn run() -> Result<(), tidegate::StoreError> {
/// let store = Arc::new(RedisStore::connect("redis://127.0.0.1:6379").await?);
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).store(store);
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore<C = Reconnecting> {
    connection: C,
    /// For people: no user and no password.
    address: Arc<str>,
    prefix: Arc<str>,
    timeout: Duration,
    #[cfg(feature = "test-util")]
    clock: Option<crate::clock::ManualClock>,
}

impl RedisStore {
    /// How long [`RedisStore::connect`] waits at most.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects to one server: `redis://[user:password@]host[:port][/db]`, `unix:///path`, and with
    /// the feature `tls` `rediss://...`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or
    /// if all that, with a server that is still loading its data, takes more than
    /// [`CONNECT_TIMEOUT`](Self::CONNECT_TIMEOUT).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let (info, address) = server(url)?;
        let connection = Reconnecting::connect(info, Self::CONNECT_TIMEOUT).await;
        Self::over(connection, address)
    }

    /// Begins to connect in the background, so that a service can start while its Redis cannot be
    /// reached: until then there is no decision, and the error callbacks answer.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(url: &str) -> Result<Self, StoreError> {
        let (info, address) = server(url)?;
        Self::over(Reconnecting::lazy(info), address)
    }

    fn over(connection: RedisResult<Reconnecting>, address: String) -> Result<Self, StoreError> {
        let connection = connection.map_err(|error| store_error(&address, error))?;
        let mut store = Self::new(connection);
        store.address = address.into();
        Ok(store)
    }
}

impl<C> RedisStore<C> {
    /// The default of [`RedisStore::prefix`].
    pub const DEFAULT_PREFIX: &'static str = "CurrentLimiter:";

    /// The default of [`RedisStore::timeout`].
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

    /// Keeps the counts over a connection of your own.
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            address: "redis".into(),
            prefix: Self::DEFAULT_PREFIX.into(),
            timeout: Self::DEFAULT_TIMEOUT,
            #[cfg(feature = "test-util")]
            clock: None,
        }
    }

    /// What the names of all keys begin with, for rules that do not say. Default: `CurrentLimiter:`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a decision may take, with all waiting. Default: 50 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Decides by a clock that a test moves by hand, instead of the server's.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn clock(mut self, clock: crate::clock::ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    fn late(&self) -> StoreError {
        let Self {
            address, timeout, ..
        } = self;
        let message = format!("{address} did not answer within {timeout:?}");
        StoreError::new(StoreErrorKind::Timeout, message)
    }

    #[cfg(feature = "test-util")]
    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(crate::clock::ManualClock::now)
    }

    #[cfg(not(feature = "test-util"))]
    fn now(&self) -> Option<u64> {
        None
    }
}

/// A script keeps everybody else waiting, so a call must not be long: this is about a millisecond.
const MOST_TAKES_A_CALL: usize = 500;

impl<C: ConnectionLike + Clone + Send + Sync> RedisStore<C> {
    async fn decide(&self, takes: &[Take]) -> Result<Decisions, StoreError> {
        // Neighbours that differ in nothing but their cost go in one call. The calls of a batch are
        // written one behind the other: one round trip.
        let alike = |a: &Take, b: &Take| {
            let same_rule = Arc::ptr_eq(a.rule(), b.rule());
            same_rule && a.key() == b.key()
        };
        let neighbours = takes.chunk_by(alike);
        let calls = neighbours.flat_map(|takes| takes.chunks(MOST_TAKES_A_CALL));
        let calls = calls.map(|takes| self.call(takes));
        let decisions = try_join_all(calls).await?;
        Ok(decisions.into_iter().flatten().collect())
    }

    /// One script call: takes of one rule and key.
    async fn call(&self, takes: &[Take]) -> Result<Vec<Decision>, StoreError> {
        let name = Name::new(&takes[0], &self.prefix).to_string();
        let script = script(takes[0].rule().counting().algorithm());
        let mut connection = self.connection.clone();
        let arguments = |command: &mut _| wire::write(command, self.now(), takes);
        let reply = script.call(&mut connection, &[&name], arguments).await;
        let reply = reply.map_err(|error| store_error(&self.address, error))?;
        wire::read(&reply, takes)
    }

    async fn give_back(&self, take: &Take, token: &Token) -> Result<u64, StoreError> {
        let name = Name::new(take, &self.prefix).to_string();
        let records = records_of(&name);
        let most = take.units().min(token.units());
        let mut connection = self.connection.clone();
        let arguments = |command: &mut _| wire::write_refund(command, self.now(), token, most);
        let reply = REFUND
            .call(&mut connection, &[&name, &records], arguments)
            .await;
        let reply = reply.map_err(|error| store_error(&self.address, error))?;
        wire::read_refund(&reply, most)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = tokio::time::timeout(self.timeout, work).await;
        done.unwrap_or_else(|_| Err(self.late()))
    }
}

fn script(algorithm: Algorithm) -> &'static Script {
    match algorithm {
        Algorithm::SlidingLog => &SLIDING_LOG,
        Algorithm::SlidingWindow => &SLIDING_WINDOW,
        Algorithm::Gcra => &GCRA,
        Algorithm::FixedWindow => &FIXED_WINDOW,
    }
}

/// Where it stands what was given back of a count: in the same slot of a cluster, and under a name that no
/// count has, since rules and keys have no braces in theirs.
fn records_of(name: &str) -> String {
    match name.contains('{') {
        true => format!("{name}{{refunds}}"),
        false => format!("{{{name}}}:refunds"),
    }
}

impl<C> Store for RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        Taking::later(self.in_time(self.decide(takes)))
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        Refunding::later(self.in_time(self.give_back(take, token)))
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

impl<C> fmt::Debug for RedisStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.address)
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
