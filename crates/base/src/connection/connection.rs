use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::{Cmd, FromRedisValue, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::address::{IntoRedisAddress, Topology};
#[cfg(feature = "cluster")]
use super::cluster::{Cluster, slot};
use super::direct::Driver;
use super::errors::{is_mistake, may_pass, store_error};
use super::flight::FlightMaker;
use super::link::Link;
use super::node::{Endpoint, Node};
use super::question::{CallQuestion, Label, Question, ReplyFuture};
use super::queue::Queue;
use super::reconnector::Target;
use super::scripts::{Preload, Script, ScriptList};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::deadline::Deadline;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;
use crate::unawaited::{UnawaitedCall, UnawaitedCalls};

/// How often a caller looks whether there is a connection.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The connections that a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// In a cluster that to any master. Only a server that does not answer yet or is still loading
    /// its data is waited for.
    First,
    /// In a cluster those to the masters of all slots. Only for what is wrong in the set-up the
    /// caller does not wait.
    All,
}

/// The connections to an address: to one server, to the master that sentinels name, or to every
/// master of a cluster.
///
/// A connection that breaks is made again in the background. Once an attempt to connect has failed,
/// questions do not wait for the next one: they get its error. A question that had been sent when
/// its connection broke gets an error and is not sent again, because it may have been executed.
///
/// Clones share the connections. The background tasks end when the last clone is dropped.
///
/// Stores, limiters and locks ask here, and see no nodes. What they ask is a question of a
/// [`FlightMaker`], which puts it into calls that it shares with others, or a call of its own.
///
/// [`ask`](Self::ask) and [`call`](Self::call) queue the question before they return. So the order
/// of arrival is that of these calls, and not that in which their futures are polled.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<ConnectionInner>,
    timeout: Duration,
}

/// What the clones of a [`Connection`] share.
struct ConnectionInner {
    nodes: Nodes,
    preload: Preload,
    /// The address as messages show it: no user and no password.
    label: Arc<Label>,
    /// The runtime of the background tasks.
    runtime: Handle,
    unawaited: UnawaitedCalls,
    /// The task that makes these calls, once there was one.
    background: OnceLock<UnboundedSender<BoxFuture<'static, ()>>>,
}

/// The nodes behind an address.
enum Nodes {
    /// One server, or the master that sentinels name.
    One(Arc<Node>),
    /// The masters of a cluster.
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
}

impl Connection {
    /// How long [`connect`](Self::connect) waits at most.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects and loads the scripts. Waits for a server that does not answer yet or is still
    /// loading its data. Each later question has `timeout`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or
    /// if that takes too long.
    pub async fn connect(
        address: impl IntoRedisAddress,
        scripts: ScriptList,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let connection = Self::lazy(address, scripts, timeout)?;
        let connected = connection.connected(Wanted::First, Self::CONNECT_TIMEOUT);
        connected.await?;
        Ok(connection)
    }

    /// Waits for these connections, for at most `bound`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] with what is missing then, or immediately with what is not waited for.
    pub async fn connected(&self, wanted: Wanted, bound: Duration) -> Result<(), StoreError> {
        let until = Deadline::after(bound).at;
        loop {
            let missing = match &self.inner.nodes {
                _ if wanted == Wanted::First && self.link().is_some() => None,
                Nodes::One(node) => node.missing(),
                #[cfg(feature = "cluster")]
                Nodes::Cluster(cluster) => cluster.missing(),
            };
            let Some((missing, label)) = missing else {
                return Ok(());
            };
            let waits = match wanted {
                Wanted::First => may_pass(&missing),
                Wanted::All => !is_mistake(&missing),
            };
            if !waits || Instant::now() >= until {
                return Err(store_error(&label.text, missing));
            }
            sleep_until(until.min(Instant::now() + LOOK_INTERVAL)).await;
        }
    }

    /// Begins to connect in the background, and goes on until it succeeds.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, or outside of a tokio runtime.
    pub fn lazy(
        address: impl IntoRedisAddress,
        scripts: ScriptList,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let address = address.into_redis_address()?.checked()?;
        let (text, lag, is_proven) = (address.to_string().into(), Arc::default(), Arc::default());
        let label = Arc::new(Label {
            text,
            lag,
            is_proven,
        });
        let runtime = Handle::try_current().map_err(|_| {
            let message = "no tokio runtime here, expected one: connect inside of an async fn";
            StoreError::new(StoreErrorKind::Configuration, message)
        })?;
        let preload = Preload::default();
        preload.add(scripts);
        let one = |target| {
            let endpoint = Endpoint {
                queue: Arc::new(Queue::new(&label)),
                #[cfg(feature = "cluster")]
                redirects: None,
            };
            let node = Node::start(target, preload.clone(), endpoint, Arc::default());
            Nodes::One(Arc::new(node))
        };
        let nodes = match &address.topology {
            Topology::Single => {
                let mut servers = address.servers();
                let server = servers.next().expect("an address has one server at least");
                one(Target::Server(Box::new(server)))
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster => Nodes::Cluster(Cluster::start(address, &label, preload.clone())),
            #[cfg(feature = "sentinel")]
            Topology::Sentinel(master) => {
                let sentinels = Sentinels::new(&address, master);
                one(Target::Master(Arc::new(sentinels)))
            }
        };
        let inner = ConnectionInner {
            nodes,
            preload,
            label,
            runtime,
            unawaited: UnawaitedCalls::default(),
            background: OnceLock::new(),
        };
        let inner = Arc::new(inner);
        Ok(Self { inner, timeout })
    }

    /// Loads scripts over each link, now and whenever one is made: before what is asked next.
    /// Scripts that cannot be loaded are no failure: their calls are sent again with their text.
    pub fn preload(&self, scripts: ScriptList) {
        let _in_runtime = self.runtime().enter();
        for script in self.inner.preload.add(scripts) {
            let load = |node: &Node| {
                let call = CallQuestion {
                    command: script.load(),
                    script: None,
                };
                // Nobody waits for it, so it says nothing about how patient callers are.
                let deadline = Deadline::after(Self::CONNECT_TIMEOUT);
                let label = &self.inner.label;
                let (question, reply) =
                    Question::new::<Value, _>(call, None, None, deadline, label);
                let reply = reply.sending(node.enqueue(question, Driver::Dispatcher));
                self.runtime().spawn(reply);
            };
            match &self.inner.nodes {
                Nodes::One(node) => load(node),
                #[cfg(feature = "cluster")]
                Nodes::Cluster(cluster) => cluster.each_master(load),
            }
        }
    }

    /// The address as messages show it: no user and no password.
    pub fn label(&self) -> &str {
        &self.inner.label.text
    }

    /// Whether keys lie on several masters, by their slots.
    pub fn is_cluster(&self) -> bool {
        !matches!(self.inner.nodes, Nodes::One(_))
    }

    /// This connection with another timeout for each question.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The runtime of the connection's background tasks. Once it ends, no question is answered.
    pub fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Makes a call that no caller waits for, in one task for all of them.
    pub fn run_unawaited<F: Future<Output = ()> + Send + 'static>(
        &self,
        call: impl FnOnce(UnawaitedCall) -> F,
    ) {
        let task = self.inner.background.get_or_init(|| {
            let (task, calls) = unbounded_channel();
            self.runtime().spawn(run_all(calls));
            task
        });
        // It is dropped if the runtime has ended.
        _ = task.send(call(self.inner.unawaited.add()).boxed());
    }

    /// Waits until no such call is left. Returns whether that came in time.
    pub async fn flush(&self, until: Deadline) -> bool {
        self.inner.unawaited.flush(until).await
    }

    /// The timeout of each question.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks a question that the flight maker puts into calls. `key` is one of its keys. With
    /// [`Driver::Caller`] it is sent when the future is polled first, or with the next flight.
    pub fn ask<T, Q, K>(
        &self,
        flight_maker: FlightMaker,
        question: Q,
        key: impl FnOnce(&Q) -> K,
        deadline: Deadline,
        driver: Driver,
    ) -> ReplyFuture<T>
    where
        T: Send + 'static,
        Q: Send + Sync + 'static,
        K: AsRef<[u8]>,
    {
        let slot = self.slot(|| key(&question));
        self.enqueue(Some(flight_maker), question, slot, deadline, driver)
    }

    /// Calls a script on keys of one slot.
    ///
    /// Calls of scripts keep the order in which they were asked, but not among the questions of a
    /// flight maker.
    pub fn call(
        &self,
        script: &'static Script,
        keys: &[&str],
        arguments: impl FnOnce(&mut Cmd),
    ) -> ReplyFuture<Value> {
        let call = CallQuestion::new(script, keys, arguments);
        self.enqueue_call(call, keys.first().copied().unwrap_or_default())
    }

    /// Runs a command on keys of one slot, of which `key` is one.
    pub async fn query<T: FromRedisValue>(&self, command: Cmd, key: &str) -> Result<T, StoreError> {
        let script = None;
        let reply = self.enqueue_call(CallQuestion { command, script }, key);
        redis::from_redis_value(reply.await?)
            .map_err(|error| store_error(self.label(), error.into()))
    }

    fn enqueue_call(&self, call: CallQuestion, key: &str) -> ReplyFuture<Value> {
        let (slot, deadline) = (self.slot(|| key), Deadline::after(self.timeout));
        self.enqueue(None, call, slot, deadline, Driver::Dispatcher)
    }

    /// Queues a question for the node that serves its slot, and returns the future of its reply.
    fn enqueue<T: Send + 'static, Q: Send + Sync + 'static>(
        &self,
        flight_maker: Option<FlightMaker>,
        question: Q,
        slot: Option<u16>,
        deadline: Deadline,
        driver: Driver,
    ) -> ReplyFuture<T> {
        let label = &self.inner.label;
        let (question, reply) = Question::new(question, flight_maker, slot, deadline, label);
        reply.sending(match &self.inner.nodes {
            Nodes::One(node) => node.enqueue(question, driver),
            #[cfg(feature = "cluster")]
            Nodes::Cluster(cluster) => cluster.enqueue(question, driver),
        })
    }

    /// The slot of a key, in a cluster.
    fn slot<K: AsRef<[u8]>>(&self, key: impl FnOnce() -> K) -> Option<u16> {
        match &self.inner.nodes {
            Nodes::One(_) => {
                let _ = key;
                None
            }
            #[cfg(feature = "cluster")]
            Nodes::Cluster(_) => Some(slot(key().as_ref())),
        }
    }

    /// Names of keys that lie on all servers: of a cluster, one on each master; of one server, which
    /// may be a node of a cluster, in the first, the middle and the last slot.
    pub fn names_everywhere(&self, name: impl Fn(u32) -> String) -> Vec<String> {
        /// Between braces, they choose the slots 0, 8,192 and 16,383.
        const OF_ONE: [u32; 3] = [3_560, 8_209, 39_296];
        match &self.inner.nodes {
            Nodes::One(_) => OF_ONE.map(name).into(),
            #[cfg(feature = "cluster")]
            Nodes::Cluster(cluster) => cluster.first_on_each(name),
        }
    }

    /// Whether a question of a flight maker was ever answered in time, by any server.
    pub fn is_proven(&self) -> &Arc<AtomicBool> {
        &self.inner.label.is_proven
    }

    /// The error for a reply of another form than its question's.
    pub fn protocol_error(&self, reply: &Value) -> StoreError {
        self.inner.label.protocol_error(reply)
    }

    /// Whether the server evicts keys, as far as is known; in a cluster, whether one of the masters
    /// does.
    pub fn evicts(&self) -> bool {
        self.link().is_some_and(|link| link.inner.evicts)
    }

    /// The server that has a channel: in a cluster the master of its slot, if it is known.
    pub(super) fn node_of(&self, channel: &str) -> Option<Arc<Node>> {
        let _ = channel;
        match &self.inner.nodes {
            Nodes::One(node) => Some(Arc::clone(node)),
            #[cfg(feature = "cluster")]
            Nodes::Cluster(cluster) => cluster.owner(slot(channel.as_bytes())),
        }
    }

    /// Changes whenever the layout of the cluster may have changed, if this is one.
    pub(super) fn layouts(&self) -> Option<watch::Receiver<()>> {
        match &self.inner.nodes {
            Nodes::One(_) => None,
            #[cfg(feature = "cluster")]
            Nodes::Cluster(cluster) => Some(cluster.layouts()),
        }
    }

    /// A connection, if there is one; in a cluster to any master.
    fn link(&self) -> Option<Link> {
        match &self.inner.nodes {
            Nodes::One(node) => node.link(),
            #[cfg(feature = "cluster")]
            Nodes::Cluster(cluster) => cluster.link(),
        }
    }
}

/// Makes calls that no caller waits for, until nobody can have another one.
async fn run_all(mut calls: UnboundedReceiver<BoxFuture<'static, ()>>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(_) = under_way.next() => {}
            call = calls.recv() => match call {
                Some(call) => under_way.push(AssertUnwindSafe(call).catch_unwind()),
                None => return,
            },
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.label())
    }
}

/// A process's handle to Redis, for all its stores, limiters and locks.
///
/// A process makes one handle and clones it. Clones share the connection, the pipelines in which
/// their questions travel, and the [identity](Redis::id) of the process. The timeout belongs to
/// each clone. The connection is closed when the last clone is dropped, and everything made of it.
///
/// `RedisStore::of` makes a store of a handle, `RateLimiter::new` a limiter (feature `limiter`),
/// and `Lock::new` a lock (feature `lock`).
///
/// ```no_run
/// use std::time::Duration;
/// use tidegate::{Redis, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let store = RedisStore::of(&redis);
/// // The same connection, with less patience.
/// let impatient = RedisStore::of(&redis).timeout(Duration::from_millis(20));
/// # let _ = (store, impatient);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    process: Arc<HandleInner>,
}

/// What the clones of a handle share besides the connection.
struct HandleInner {
    id: Box<str>,
    /// The values of [`Redis::keep`], one of each type.
    kept: Mutex<http::Extensions>,
}

impl Redis {
    /// The longest time that [`Redis::connect`] takes: 5 seconds.
    pub const CONNECT_TIMEOUT: Duration = Connection::CONNECT_TIMEOUT;

    /// The default of [`Redis::timeout`]: 200 milliseconds.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

    /// Connects to one server, to a cluster, or to a master that sentinels look after. See
    /// [`RedisAddress`](super::RedisAddress) for the URLs; that of one server is
    /// `redis://[user:password@]host[:6379][/db]`.
    ///
    /// Waits for a server that does not answer yet or is still loading its data, for up to
    /// [`CONNECT_TIMEOUT`](Self::CONNECT_TIMEOUT). Of a cluster, one master has to be reached.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, outside of a tokio runtime, if the server
    /// cannot be reached or refuses, or if connecting takes too long.
    pub async fn connect(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Connection::connect(address, &[], Self::DEFAULT_TIMEOUT).await?;
        Ok(Self::over(connection))
    }

    /// Begins to connect in the background, so that a service can start while Redis cannot be
    /// reached. Questions wait for the first attempt to connect, within their timeout. Once it has
    /// failed, they fail immediately, until a later attempt succeeds.
    ///
    /// ```no_run
    /// use tidegate::{Redis, RedisStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = Redis::connect_lazy("redis-cluster://10.0.0.1:7000,10.0.0.2:7000")?;
    /// let store = RedisStore::of(&redis);
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, or outside of a tokio runtime.
    pub fn connect_lazy(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Connection::lazy(address, &[], Self::DEFAULT_TIMEOUT)?;
        Ok(Self::over(connection))
    }

    /// The handle of a process with a new identity, over this connection.
    fn over(connection: Connection) -> Self {
        let process = HandleInner {
            id: Uuid::new_v4().to_string().into(),
            kept: Mutex::default(),
        };
        Self {
            connection,
            process: Arc::new(process),
        }
    }

    /// The longest time from a question to its answer, including the wait for a connection. It does
    /// not apply to clones made before. Default: 200 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.connection = self.connection.with_timeout(timeout);
        self
    }

    /// Waits until what locks and limiters of this handle and its clones give back in the
    /// background is released, for at most `bound`: locks whose guards were dropped, and what may
    /// have been granted to callers that left. Returns whether nothing waits any more.
    ///
    /// Call it at the end of `main`, when the last guard is gone. What is not released by then
    /// stays held until its lease or interval ends.
    ///
    /// ```
    /// # async fn run(redis: &tidegate::Redis) -> Result<(), tidegate::lock::LockError> {
    /// use std::time::Duration;
    /// use tidegate::lock::Lock;
    ///
    /// let guard = Lock::new(redis, "report").lock().await?;
    /// drop(guard);
    /// if !redis.flush(Duration::from_secs(1)).await {
    ///     eprintln!("a lock may be held for its lease");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self, bound: Duration) -> bool {
        self.connection.flush(Deadline::after(bound)).await
    }

    /// The identity of this process in Redis, a random UUID. Locks and permits in Redis carry it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.process.id
    }

    /// The connection, for the stores, limiters and locks of this handle.
    #[doc(hidden)]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The value of type `T` that all clones share. `make` makes it at the first call. It is
    /// dropped with the last clone of the handle, so it must not contain a handle itself.
    #[doc(hidden)]
    pub fn keep<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Connection) -> T) -> Arc<T> {
        let mut kept = lock(&self.process.kept);
        if kept.get::<Arc<T>>().is_none() {
            kept.insert(Arc::new(make(&self.connection)));
        }
        let kept = kept.get::<Arc<T>>();
        Arc::clone(kept.expect("it was inserted"))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("address", &self.connection.label())
            .field("timeout", &self.connection.timeout())
            .field("id", &self.process.id)
            .finish_non_exhaustive()
    }
}
