//! The counts of a fleet.

mod clocks;
mod question;
mod reply;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redis::aio::ConnectionLike;
use redis::{Cmd, Value};

use clocks::{Clocks, ServerClock};
use question::{Batch, LARGEST_NUMBER, MARKS, Row, script_of, write_questions};
use reply::{Answer, read_answers};

use super::name::Name;
use super::{Refunding, Store, Take, Taking};
use crate::connection::{IntoRedisAddress, Reconnecting, Redis, store_error};
use crate::decision::{Decision, Decisions, Token};
use crate::error::{StoreError, StoreErrorKind};

/// Keeps the counts in Redis, so that all processes that use the same Redis share them.
///
/// A take is one script call and one round trip; the first one, and the first after a minute without any, is preceded by a
/// look that tells what Redis's clock shows, in a cluster for each slot. Redis decides alone and by its own clock, so
/// processes may come and go and their clocks may be wrong.
///
/// A decision takes at most the [time-out](RedisStore::timeout), whatever Redis does; then it is a
/// [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout). Redis is told with each take until when that is, by
/// its own clock, and charges nothing when it gets to it later. So a take that timed out is charged only where Redis
/// decided in time and its answer was lost or late.
///
/// The count of a rule and key is one key, named by the prefix, the rule's path and algorithm and the key:
/// `CurrentLimiter:getId`, a sorted set, for the sliding log; `CurrentLimiter:getId~window`, `~gcra` and `~fixed`, strings,
/// for the other algorithms. A rule that changes its algorithm starts afresh. What was given back of a count stands beside it, in `{CurrentLimiter:getId}:refunds`. Both expire a second or two after they
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
    clocks: Arc<Clocks>,
    #[cfg(feature = "test-util")]
    clock: Option<crate::clock::ManualClock>,
}

impl RedisStore {
    /// How long [`RedisStore::connect`] waits at most.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects to one server, to a cluster, or to a master that sentinels look after: see [`RedisAddress`](crate::RedisAddress)
    /// for the URLs. For one server it is `redis://[user:password@]host[:port][/db]`, `unix:///path`, or with the feature
    /// `tls` `rediss://...`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or
    /// if all that, with a server that is still loading its data, takes more than
    /// [`CONNECT_TIMEOUT`](Self::CONNECT_TIMEOUT). Of a cluster, one master has to be reached.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Reconnecting::connect(address, Self::CONNECT_TIMEOUT).await?;
        Ok(Self::over(connection))
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
    pub fn connect_lazy(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        Reconnecting::lazy(address).map(Self::over)
    }

    /// Keeps the counts over the connection of this handle, with a [time-out](Self::timeout) of its own.
    ///
    /// ```no_run
    /// use tidegate::{Redis, RedisStore};
    ///
    /// # async fn run() -> Result<(), tidegate::StoreError> {
    /// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
    /// let store = RedisStore::of(&redis);
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of(redis: &Redis) -> Self {
        Self::over(redis.connection())
    }

    fn over(connection: Reconnecting) -> Self {
        let address = connection.address().to_string().into();
        let clocks = Arc::new(Clocks::of(&connection));
        Self {
            address,
            clocks,
            ..Self::new(connection)
        }
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
            clocks: Arc::new(Clocks::of_one_server()),
            #[cfg(feature = "test-util")]
            clock: None,
        }
    }

    /// What the names of all keys begin with, for rules that do not say. Default: `CurrentLimiter:`.
    ///
    /// In a cluster each key has a slot of its own. What the prefix has between braces, such as `{eu}:`, puts all keys
    /// into one slot; with a `}` that closes nothing, nothing can be given back, and [`Store::refund`] says so.
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

/// Longer ones are as good as none, and no instant of the clock is that far away.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A script that finds itself late in vain tells what the clock shows; to be told so again is one clock too many.
const MOST_TRIES: usize = 3;

/// A script keeps everybody else waiting, so a call must not be long: this is about a millisecond.
const MOST_TAKES_A_CALL: usize = 500;

impl<C: ConnectionLike + Clone + Send + Sync + 'static> RedisStore<C> {
    async fn decide(&self, takes: &[Take], until: Instant) -> Result<Decisions, StoreError> {
        // Neighbours that differ in nothing but their cost go in one call. The calls of a batch are
        // written one behind the other: one round trip.
        let alike = |a: &Take, b: &Take| {
            let same_rule = Arc::ptr_eq(a.rule(), b.rule());
            same_rule && a.key() == b.key()
        };
        let neighbours = takes.chunk_by(alike);
        let calls = neighbours.flat_map(|takes| takes.chunks(MOST_TAKES_A_CALL));
        let calls = calls.map(|takes| self.call(takes, until));
        let decisions = try_join_all(calls).await?;
        Ok(decisions.into_iter().flatten().collect())
    }

    /// One script call: takes of one rule and key, of which nothing is charged later than that.
    async fn call(&self, takes: &[Take], until: Instant) -> Result<Vec<Decision>, StoreError> {
        let name = Name::new(&takes[0], &self.prefix).to_string();
        let clock = self.clocks.at(&name);
        let alike = takes.chunk_by(|a, b| a.units() == b.units());
        let row = |takes: &[Take]| Row {
            cost: takes[0].units(),
            takes: u16::try_from(takes.len()).expect("calls are short"),
            deadline: LARGEST_NUMBER,
        };
        let mut rows: Vec<_> = alike.map(row).collect();
        if self.now().is_none() && !clock.is_known(Instant::now()) {
            let look = Row {
                cost: 0,
                takes: 1,
                deadline: LARGEST_NUMBER,
            };
            self.ask(&name, &takes[0], &[look], clock).await?;
        }
        for _ in 0..MOST_TRIES {
            let deadline = clock.at(until).filter(|_| self.now().is_none());
            for row in &mut rows {
                row.deadline = deadline.unwrap_or(LARGEST_NUMBER);
            }
            if let Some(decisions) = self.ask(&name, &takes[0], &rows, clock).await? {
                return Ok(decisions);
            }
            // Not by our clock, or nobody would be here: the server's was set, or is another server's.
        }
        Err(self.late())
    }

    /// The decisions, or none if it was too late for them. Each answer says what the server's clock shows.
    async fn ask(
        &self,
        name: &str,
        take: &Take,
        rows: &[Row],
        clock: ServerClock<'_>,
    ) -> Result<Option<Vec<Decision>>, StoreError> {
        let mut connection = self.connection.clone();
        let ours = (&self.connection as &dyn Any).downcast_ref::<Reconnecting>();
        let rule = take.rule();
        let batches = [Batch { rule, name, rows }];
        let mut question = Vec::with_capacity(64);
        write_questions(&batches, &mut question);
        let (mark, now) = (next_mark(), self.now());
        let arguments = |command: &mut Cmd| {
            command.arg(&question).arg(mark);
            if let Some(now) = now {
                command.arg(now);
            }
        };
        let asked = Instant::now();
        let script = script_of(rule.counting().algorithm());
        let reply = script.call(&mut connection, &[name], arguments).await;
        let reply = reply.map_err(|error| store_error(&self.address, error))?;
        let reply = match &reply {
            Value::BulkString(bytes) if reply::has_mark(bytes, mark) => bytes,
            _ => {
                if let Some(ours) = ours {
                    ours.out_of_step(name, asked);
                }
                return Err(reply::nonsense(&self.address));
            }
        };
        let takes = rows.iter().map(|row| usize::from(row.takes)).sum();
        let mut decisions = Ok(Some(Vec::with_capacity(takes)));
        let now = read_answers(&self.address, reply, mark, &batches, |_, answer| {
            match (answer, &mut decisions) {
                (Answer::Decided(decision), Ok(Some(decisions))) => decisions.push(decision),
                (Answer::Decided(_), _) | (Answer::Late, Err(_)) => {}
                (Answer::Late, _) => decisions = Ok(None),
                (Answer::Failed(error), _) => decisions = Err(error),
            }
        })?;
        clock.learn(now, asked, Instant::now());
        decisions
    }

    async fn give_back(&self, take: &Take, token: &Token) -> Result<u64, StoreError> {
        let name = Name::new(take, &self.prefix).to_string();
        let records = records_of(&name);
        let most = take.units().min(token.units());
        let mut connection = self.connection.clone();
        let arguments = |command: &mut _| question::write_refund(command, self.now(), token, most);
        let script = script_of(take.rule().counting().algorithm());
        let reply = script
            .call(&mut connection, &[&name, &records], arguments)
            .await;
        let reply = reply.map_err(|error| store_error(&self.address, error))?;
        reply::read_refund(&self.address, &reply, most)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = tokio::time::timeout(self.timeout, work).await;
        done.unwrap_or_else(|_| Err(self.late()))
    }
}

/// Tells the replies to this process's calls apart.
fn next_mark() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) % MARKS
}

/// Where it stands what was given back of a count: under a name that no count has, since rules and keys have no braces
/// in theirs, and in the same slot of a cluster. That is the slot of what the prefix has between its braces, or of the
/// whole name.
fn records_of(name: &str) -> String {
    let has_tag = name
        .split_once('{')
        .is_some_and(|(_, rest)| rest.contains('}'));
    match has_tag {
        true => format!("{name}{{refunds}}"),
        false => format!("{{{name}}}:refunds"),
    }
}

impl<C> Store for RedisStore<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        Taking::later(async {
            let until = Instant::now() + self.timeout.min(LONGEST_TIMEOUT);
            self.in_time(self.decide(takes, until)).await
        })
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        Refunding::later(self.in_time(self.give_back(take, token)))
    }

    fn name(&self) -> String {
        self.address.to_string()
    }

    fn give_up_after(mut self, timeout: Duration) -> Self {
        self.timeout = self.timeout.min(timeout);
        self
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
