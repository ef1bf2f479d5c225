//! The counts of a fleet.
//!
//! A [`RedisStore`] is over a connection, which knows no takes. This folder makes its questions,
//! and `calls.rs` is the flight maker that the connection asks for their flights:
//!
//! | what | file |
//! |---|---|
//! | the questions about a count, and the names of its keys | `question.rs` |
//! | groups the questions of a flight into calls, in the order of arrival for each count | `calls.rs` |
//! | takes that share a script call: up to 64 keys and 512 takes | `take_call.rs` |
//! | a take in a call of its own, as most requests ask | `lone_take.rs` |
//! | the bytes that the scripts read and write | `take_script.rs` |
//! | refunds that share a script call | `refund_call.rs` |
//! | permits: the takes of which the answer was lost | `permits.rs` |
//! | the name of this process among the holders of permits | `holder.rs` |
//! | the list of the scripts | `scripts.rs` |
//! | whether the servers decide, before the first request | `ready.rs` |
//!
//! How a question travels is in `crates/base/src/connection/`, the scripts are in `lua/`, and what
//! the fleet shares is in `src/fleet/redis_fleet.rs`.

mod calls;
mod holder;
mod lone_take;
mod permits;
mod question;
mod ready;
mod refund_call;
mod scripts;
mod take_call;
mod take_script;

use std::fmt;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use self::calls::flight;
use self::permits::AskedPermits;
use self::question::{
    CountKey, CountOperation, CountQuestion, KeyPrefix, fleet_key, hold_key, refund_key,
};
use self::scripts::{HOLD, LOCKOUT, OF_STORES, RESET};
use super::capabilities::{Capabilities, Condition, DEFAULT_TIMEOUT, ServerId};
use super::fleet::Fleet;
use super::{Store, StoreFuture};
use crate::algorithm::lockout::Reported;
use crate::connection::{
    CallQuestion, Connection, Driver, IntoRedisAddress, Redis, ReplyFuture, Subscriber,
};
use crate::deadline::Deadline;
use crate::decision::{Decision, Receipt, Source};
use crate::error::{StoreError, StoreErrorKind};
use crate::question::{Ask, Change, CountAsk};
use crate::sync::OwnedTask;
use crate::trace;
use crate::warning::{Warning, WarningKind};

pub(crate) use self::scripts::{REPORT, SET_KEY};

/// Keeps the counts in Redis, so that all processes that use the same Redis share them.
///
/// This is the bare part: [`Resilient::redis`](crate::Resilient::redis) is what a service usually
/// wants. Bare, it has no circuit breaker, so each request waits for its time-out while Redis
/// hangs; no fallback, so there is no decision then; no cache of denials; no bound on the number of
/// requests that wait; and its keys are those of every service that uses the same Redis, so two
/// services that both have a rule `login` count together, unless each has a
/// [`prefix`](Self::prefix) of its own.
///
/// Redis decides alone and by its own clock, so processes may come and go, and their clocks may be
/// wrong. Takes of all callers travel together in *flights*, pipelines of script calls with up to
/// 64 keys each, or 20 refunds: a take is sent when its future is first polled, or with the
/// next flight while others are in progress.
///
/// The takes, refunds and resets of one key that one process asks are executed in the order in
/// which they were asked. Exempt are questions that had to be sent again, because the server had
/// lost its scripts or a cluster was moving the key, and questions on both sides of a connection
/// that was replaced.
///
/// A decision takes at most the [time-out](RedisStore::timeout), whatever Redis does; then it is a
/// [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout). Each take carries its deadline
/// in the server's time, and Redis refuses it afterwards. So a take that timed out is charged only
/// if Redis decided in time and its answer was lost or late.
///
/// The count of a rule and key is one key, named by the prefix, the rule's path and the key:
/// `CurrentLimiter:getId`; a sorted set for the sliding log, a string for the other algorithms.
/// What was given back of a GCRA count has a second key, `{CurrentLimiter:getId~gcra}:back`. Both
/// expire once nothing in them counts any more: one or two seconds later, or, under windows of more
/// than 16 seconds, a sixteenth to an eighth of the window later; and two seconds after a
/// [reset](Store::reset).
///
/// Tasks of the runtime in which the store was made renew broken connections: when that runtime
/// ends, every later answer is an error of the kind [`Unavailable`](StoreErrorKind::Unavailable).
/// Takes need a tokio runtime with its timer enabled.
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
pub struct RedisStore {
    pub(super) connection: Connection,
    pub(super) prefix: Arc<KeyPrefix>,
    /// That of the connection, if it was set.
    timeout: Option<Duration>,
    /// Hears of the permits that come back, once requests wait for some.
    subscriber: Arc<OnceLock<Subscriber>>,
    /// Whether the log says that all counts of a joint rule lie on one master.
    is_slot_told: Arc<OnceLock<()>>,
    /// When it was asked first, and the task that tells if nothing was decided since.
    first: Arc<OnceLock<(Instant, OwnedTask)>>,
    #[cfg(feature = "test-util")]
    clock: Option<crate::clock::ManualClock>,
}

impl RedisStore {
    /// How long [`RedisStore::connect`] waits at most.
    pub const CONNECT_TIMEOUT: Duration = Connection::CONNECT_TIMEOUT;

    /// Connects to one server, to a cluster, or to a master that sentinels look after: see
    /// [`RedisAddress`](crate::redis::RedisAddress) for the URLs. For one server it is
    /// `redis://[user:password@]host[:port][/db]`, `unix:///path`, or with the feature `tls`
    /// `rediss://...`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, outside of a tokio runtime, if the server
    /// cannot be reached or refuses, or if all that, with a server that is still loading its data,
    /// takes more than [`CONNECT_TIMEOUT`](Self::CONNECT_TIMEOUT). Of a cluster, one master has to
    /// be reached.
    pub async fn connect(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Connection::connect(address, OF_STORES, Self::DEFAULT_TIMEOUT);
        Ok(Self::over(connection.await?))
    }

    /// Begins to connect in the background, so that a service can start while its Redis cannot be
    /// reached: until then there is no decision, and the error callbacks answer.
    /// [`ready`](Store::ready) waits for the connection.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, or outside of a tokio runtime.
    pub fn connect_lazy(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        Connection::lazy(address, OF_STORES, Self::DEFAULT_TIMEOUT).map(Self::over)
    }

    /// Keeps the counts over the connection of this handle, with a [time-out](Self::timeout) of its
    /// own.
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
        redis.connection().preload(OF_STORES);
        Self::over(redis.connection().clone())
    }

    fn over(connection: Connection) -> Self {
        Self {
            connection,
            timeout: None,
            subscriber: Arc::default(),
            is_slot_told: Arc::default(),
            first: Arc::default(),
            prefix: Arc::new(KeyPrefix {
                service: Box::default(),
                default: Self::DEFAULT_PREFIX.into(),
            }),
            #[cfg(feature = "test-util")]
            clock: None,
        }
    }

    /// The default of [`RedisStore::prefix`].
    pub const DEFAULT_PREFIX: &'static str = "CurrentLimiter:";

    /// The default of [`RedisStore::timeout`].
    pub const DEFAULT_TIMEOUT: Duration = DEFAULT_TIMEOUT;

    /// What the names of all keys begin with, for rules that do not say. Default:
    /// `CurrentLimiter:`.
    ///
    /// In a cluster each key has a slot of its own. What the prefix has between braces, such as
    /// `{eu}:`, puts all keys into one slot; with a `}` that closes nothing, nothing can be given
    /// back, and [`Store::refund`] says so, and takes under [outgoing](crate::Rule::with_outgoing)
    /// rules fail there. With an empty pair of braces these fail, too, and takes under rules of
    /// [several subjects](crate::Rule::joint).
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        Arc::make_mut(&mut self.prefix).default = prefix.into();
        self
    }

    /// The keys of this service have its name in front of everything else, also of the prefix of a
    /// rule: `shop:CurrentLimiter:login`.
    pub(super) fn with_service(mut self, service: &str) -> Result<Self, StoreError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !(1..=64).contains(&service.len()) || !service.bytes().all(is_plain) {
            let message = format!(
                "the service's name is {service:?}, expected 1 to 64 ASCII letters, digits, \
                 \"-\", \".\" or \"_\""
            );
            return Err(StoreError::new(StoreErrorKind::Configuration, message));
        }
        Arc::make_mut(&mut self.prefix).service = format!("{service}:").into();
        Ok(self)
    }

    /// How long a decision may take, with all waiting. A process that was slow itself waits longer
    /// by as much as it was late, at most once more this time. However long it is, a decision fails
    /// after 0.3 to 2 s without a connection to its server; the longer the last connection took to
    /// open, the later. If [`Resilient::timeout`](crate::Resilient::timeout) around the store ends
    /// earlier, that one counts. Default: that around the store; without one, 50 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Decides by a clock that a test moves by hand, instead of the server's.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn clock(mut self, clock: crate::clock::ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    #[cfg(feature = "test-util")]
    fn now(&self) -> Option<u64> {
        self.clock.as_ref().map(crate::clock::ManualClock::now)
    }

    #[cfg(not(feature = "test-util"))]
    fn now(&self) -> Option<u64> {
        None
    }

    /// Until when the caller waits, or until when the answer is awaited that no caller waits for.
    fn deadline(&self, ask: &Ask) -> Deadline {
        let own = || Deadline::after(self.timeout.unwrap_or(Self::DEFAULT_TIMEOUT));
        match (self.timeout, ask.deadline()) {
            (Some(_), deadline) if !ask.is_unawaited() => own().or_earlier(deadline),
            (_, deadline) => deadline.unwrap_or_else(own),
        }
    }

    fn key_of(&self, count: &CountAsk) -> CountKey {
        CountKey {
            name: count.name_in_store().clone(),
            spec: Arc::clone(count.spec()),
            cost: count.cost(),
            prefix: Arc::clone(&self.prefix),
        }
    }

    /// The name of the key of a count.
    fn text_of(&self, count: &CountAsk) -> String {
        let KeyPrefix { service, default } = &*self.prefix;
        count.name_in_store().text(service, default)
    }

    /// Tells operators of a cluster once where the counts of one take lie.
    fn tell_slot(&self, ask: &Ask) {
        if ask.counts().len() > 1 && self.connection.is_cluster() {
            self.is_slot_told.get_or_init(|| {
                let path = ask.path();
                trace::event!(
                    info: path,
                    "all counts of a rule of several subjects lie in one slot, so on one master"
                );
            });
        }
    }

    /// Logs once that nothing was decided since the first question.
    fn watch(&self) -> (Instant, OwnedTask) {
        let is_proven = Arc::clone(self.connection.is_proven());
        let task = self.connection.runtime().spawn(async move {
            sleep(DECIDES_WITHIN).await;
            if !is_proven.load(Ordering::Relaxed) {
                Warning::new(WarningKind::NoDecision).log();
            }
        });
        (Instant::now(), OwnedTask(task.abort_handle()))
    }

    /// A take over several counts, or of permits.
    #[cold]
    fn take_together(&self, ask: &Ask) -> StoreFuture<Decision> {
        self.first.get_or_init(|| self.watch());
        self.tell_slot(ask);
        let holds = |count: &CountAsk| count.spec().is_permits() && count.cost() > 0;
        let holder = ask.counts().iter().any(holds).then(holder::next);
        let whole = ask.is_joint().then(|| Arc::new(ask.clone()));
        let what = CountOperation::Take {
            whole,
            holder: holder.clone(),
        };
        let reply = self.ask(ask, what, Driver::Caller);
        match holder {
            None => StoreFuture::redis(reply),
            Some(holder) => {
                let asked = AskedPermits::new(self.clone(), ask.clone(), holder);
                StoreFuture::boxed(asked.answered(reply))
            }
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        ask: &Ask,
        what: CountOperation,
        driver: Driver,
    ) -> ReplyFuture<T> {
        let counts = match ask.counts() {
            [one] => SmallVec::from_buf([self.key_of(one)]),
            all => all.iter().map(|count| self.key_of(count)).collect(),
        };
        let question = CountQuestion {
            counts,
            now: self.now(),
            what,
        };
        let key = |question: &CountQuestion| question.first().text();
        let deadline = self.deadline(ask);
        self.connection.ask(flight, question, key, deadline, driver)
    }

    /// Asks for a change of a take's only count.
    fn ask_change(&self, ask: &Ask, what: CountOperation) -> StoreFuture<u64> {
        StoreFuture::redis(self.ask(ask, what, Driver::Dispatcher))
    }

    fn refund_counts(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64> {
        if !ask.is_joint() {
            let (receipt, max) = (receipt.clone(), ask.cost().min(receipt.units()));
            return self.ask_change(ask, CountOperation::Refund { receipt, max });
        }
        let asked = ask.parts(receipt).enumerate().map(|(at, (count, part))| {
            // A permit goes back when its request has ended.
            let is_nothing = count.cost().min(part.units()) == 0 || count.spec().is_permits();
            match is_nothing {
                true => StoreFuture::ready(Ok(0)),
                false => self.refund_counts(&ask.only(at), part),
            }
        });
        let (whole, of_whole) = (ask.clone(), receipt.clone());
        merged(asked.collect(), move |given_back| {
            whole.refunded_units(&of_whole, &given_back)
        })
    }

    /// It is asked once: without an answer nobody knows whether it was charged.
    fn owe(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64> {
        let asked = ask.counts_owed().map(|(at, _)| {
            let stamp = receipt.counts().get(at).map_or(0, Receipt::stamp);
            self.ask_change(&ask.only(at), CountOperation::Owe { stamp })
        });
        merged(asked.collect(), |charged| {
            charged.into_iter().min().unwrap_or(0)
        })
    }

    fn renew(&self, ask: &Ask, holder: &Receipt) -> StoreFuture<u64> {
        let permits = ask.first().and_then(|count| count.spec().permits());
        let Some(lease) = permits.map(|it| it.lease) else {
            return StoreFuture::ready(Ok(0));
        };
        let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let holder = holder.clone();
        let reply = self.ask(
            ask,
            CountOperation::Renew { holder, lease },
            Driver::Dispatcher,
        );
        let name = self.name();
        StoreFuture::boxed(async move {
            let renewed = reply.await?;
            if renewed == 0 {
                let message = format!("{name} read the renewal of a permit too late");
                return Err(StoreError::new(StoreErrorKind::Timeout, message));
            }
            Ok(renewed)
        })
    }

    fn forget(&self, ask: &Ask) -> StoreFuture<u64> {
        if ask.is_joint() {
            let counts = ask.counts().iter().enumerate();
            let counts = counts.filter(|(_, count)| !count.spec().is_permits());
            let asked = counts.map(|(at, _)| self.forget(&ask.only(at)));
            return merged(asked.collect(), |found| {
                found.into_iter().max().unwrap_or(0)
            });
        }
        let Some(name) = ask.first().map(|count| self.text_of(count)) else {
            return StoreFuture::ready(Ok(0));
        };
        let (back, hold) = (refund_key(&name), hold_key(&name));
        let lockout = ask.first().and_then(|count| count.spec().lockout());
        let call = CallQuestion::new(&RESET, &[&name, &back, &hold], |command| {
            command
                .arg(lockout.map_or(0, |it| it.within))
                .arg(self.now());
        });
        self.own_call(ask, call)
    }

    /// Notes what became of a take of the count whose key failures lock out.
    fn report(&self, ask: &Ask, (admitted, what): (u64, Reported)) -> StoreFuture<u64> {
        let Some((count, spec)) = ask.lockout_count().zip(ask.lockout()) else {
            return StoreFuture::ready(Ok(0));
        };
        let (id, late) = match what {
            Reported::Failed { id, late } => (id.to_string(), late),
            Reported::Succeeded => ("0".to_owned(), 0),
            Reported::Nothing => ("?".to_owned(), 0),
            Reported::AskAttempts => ("left".to_owned(), 0),
        };
        let call = CallQuestion::new(&LOCKOUT, &[&hold_key(&self.text_of(count))], |command| {
            let holds: Vec<_> = spec.holds.iter().map(u64::to_string).collect();
            command
                .arg(admitted)
                .arg(id)
                .arg(spec.after)
                .arg(spec.within);
            let command = command.arg(holds.join(" ")).arg(spec.forget_after);
            command.arg(late).arg(self.now());
        });
        self.own_call(ask, call)
    }

    fn hold(&self, ask: &Ask, time: Duration) -> StoreFuture<u64> {
        let Some(name) = ask.first().map(|count| hold_key(&self.text_of(count))) else {
            return StoreFuture::ready(Ok(0));
        };
        let call = CallQuestion::new(&HOLD, &[&name], |command| {
            let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            command.arg(time).arg(self.now());
        });
        self.own_call(ask, call)
    }

    /// Asks by a script call of its own, whose reply is a number.
    fn own_call(&self, ask: &Ask, call: CallQuestion) -> StoreFuture<u64> {
        let connection = self.connection.clone();
        let reply = self.ask(ask, CountOperation::Own(call), Driver::Dispatcher);
        StoreFuture::boxed(async move {
            let reply: Value = reply.await?;
            let number = match &reply {
                Value::Int(number) => u64::try_from(*number).ok(),
                // Lua replies with text where a number has more digits than its own can say.
                Value::BulkString(text) => str::from_utf8(text).ok().and_then(|it| it.parse().ok()),
                _ => None,
            };
            number.ok_or_else(|| connection.protocol_error(&reply))
        })
    }
}

/// By then a Redis has decided something, or it is a warning.
const DECIDES_WITHIN: Duration = Duration::from_secs(10);

/// One answer of those to questions that travel together.
fn merged(
    asked: Vec<StoreFuture<u64>>,
    merge: impl FnOnce(Vec<u64>) -> u64 + Send + 'static,
) -> StoreFuture<u64> {
    StoreFuture::boxed(async move {
        let answers = join_all(asked).await.into_iter();
        Ok(merge(answers.collect::<Result<_, _>>()?))
    })
}

impl RedisStore {
    /// Its connection, for questions of the fleet.
    pub(crate) fn connection_within(&self, timeout: Duration) -> Connection {
        self.connection.clone().with_timeout(timeout)
    }

    /// The name of a key that the processes of its service share.
    pub(crate) fn fleet_key(&self, what: &str) -> String {
        let prefix = [&*self.prefix.service, &*self.prefix.default].concat();
        fleet_key(&prefix, what)
    }
}

impl Store for RedisStore {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        match ask.counts() {
            [] => return StoreFuture::ready(Ok(ask.decision_of(Vec::new()))),
            [one] if !ask.is_joint() && !one.spec().is_permits() => {}
            _ => return self.take_together(ask),
        }
        self.first.get_or_init(|| self.watch());
        let (whole, holder) = (None, None);
        let what = CountOperation::Take { whole, holder };
        StoreFuture::redis(self.ask(ask, what, Driver::Caller))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        match change {
            Change::Refund(receipt) => self.refund_counts(ask, receipt),
            Change::Owe(receipt) => self.owe(ask, receipt),
            Change::Renew(holder) => self.renew(ask, holder),
            Change::Hold(time) => self.hold(ask, *time),
            Change::Forget => self.forget(ask),
            other => match other.reported() {
                Some(reported) => self.report(ask, reported),
                None => StoreFuture::ready(Ok(0)),
            },
        }
    }

    fn listen(&self, ask: &Ask, changed: Box<dyn Fn() + Send + Sync>) -> Option<StoreFuture<()>> {
        let name = self.text_of(ask.first()?);
        let start = || Subscriber::new(&self.connection);
        let subscriber = self.subscriber.get_or_init(start);
        let listening = subscriber.subscribe(&name, move |_| changed());
        Some(StoreFuture::boxed(async move {
            let _listening = listening;
            pending().await
        }))
    }

    fn ready(&self, bound: Duration) -> StoreFuture<()> {
        self.ready_within(bound, None)
    }

    fn ready_within(&self, bound: Duration, timeout: Option<Duration>) -> StoreFuture<()> {
        let timeout = self.timeout.into_iter().chain(timeout).min();
        let timeout = timeout.unwrap_or(Self::DEFAULT_TIMEOUT);
        StoreFuture::boxed(self.clone().until_it_decides(bound, timeout))
    }

    fn flush(&self, bound: Duration) -> StoreFuture<bool> {
        let (connection, until) = (self.connection.clone(), Deadline::after(bound));
        StoreFuture::boxed(async move { Ok(connection.flush(until).await) })
    }

    fn name(&self) -> String {
        self.connection.label().to_string()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            timeout: self.timeout,
            joint: true,
            permits: true,
            calendar: true,
            owes: true,
            holds: true,
            server: Some(ServerId::of(&self.name())),
            source: Some(Source::Redis),
            ..Capabilities::default()
        }
    }

    fn condition(&self) -> Condition {
        let KeyPrefix { service, default } = &*self.prefix;
        let is_default = service.is_empty() && **default == *Self::DEFAULT_PREFIX;
        let prefix = is_default.then(|| Warning::named(WarningKind::DefaultPrefix, "prefix"));
        let evicts = self.connection.evicts();
        let evicts = evicts.then(|| Warning::named(WarningKind::RedisEvicts, "maxmemory-policy"));
        let first = self.first.get();
        let is_late = first.is_some_and(|(at, _)| at.elapsed() >= DECIDES_WITHIN)
            && !self.connection.is_proven().load(Ordering::Relaxed);
        let undecided = is_late.then(|| Warning::new(WarningKind::NoDecision));
        let warnings = prefix.into_iter().chain(evicts).chain(undecided);
        Condition {
            warnings: warnings.collect(),
            is_breaker_open: None,
        }
    }

    fn fleet(&self) -> Option<Arc<dyn Fleet>> {
        Some(Arc::new(self.clone()))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.connection.label())
            .field(
                "prefix",
                &[&*self.prefix.service, &*self.prefix.default].concat(),
            )
            .field("timeout", &self.timeout.unwrap_or(Self::DEFAULT_TIMEOUT))
            .finish_non_exhaustive()
    }
}
