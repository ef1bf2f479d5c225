use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Script;
use super::address::{IntoRedisAddress, RedisAddress, Topology};
#[cfg(feature = "cluster")]
use super::cluster::{Cluster, slot};
use super::errors::store_error;
use super::flight::Home;
use super::link::Link;
use super::node::Node;
use super::question::{AnswerFuture, Body, CallQuestion, Caller, Question, TakeQuestion};
use super::queue::Queue;
use super::reconnector::{Target, within};
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};

/// The way to an address: to one server, to the master that sentinels name, or to every master of a
/// cluster.
///
/// Connections that break are made anew in the background. A question never waits for an attempt to
/// connect after one has failed: it gets that failure. A question that was sent when its connection
/// broke gets an error, and is not sent again, because it may have been executed.
///
/// Clones share the connections. The background tasks end with the last of them.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    to: To,
    address: RedisAddress,
    /// The address, for people.
    label: Arc<str>,
    /// Where the background tasks run.
    runtime: Handle,
}

enum To {
    Server(Node),
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
}

impl Connection {
    /// How long [`connect`](Self::connect) waits at most.
    pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Connects and loads the scripts. A server that does not answer yet, or is still loading its
    /// data, is waited for. Later questions have `timeout` each.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or
    /// if that takes too long.
    pub(crate) async fn connect(
        address: impl IntoRedisAddress,
        preload: Preload,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let connection = Self::lazy(address, preload, timeout)?;
        let first = within(Self::CONNECT_TIMEOUT, connection.first()).await;
        first.map_err(|error| store_error(connection.label(), error))?;
        Ok(connection)
    }

    /// Begins to connect in the background, and goes on until it succeeds.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(crate) fn lazy(
        address: impl IntoRedisAddress,
        preload: Preload,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let address = address.into_redis_address()?.checked()?;
        let label: Arc<str> = address.to_string().into();
        let node = |target| {
            let home = Home {
                address: Arc::clone(&label),
                queue: Arc::new(Queue::new(&label)),
                #[cfg(feature = "cluster")]
                redirects: None,
            };
            To::Server(Node::start(target, preload, home, Arc::default()))
        };
        let to = match &address.topology {
            Topology::Single => {
                let mut servers = address.servers();
                let server = servers.next().expect("an address has one server at least");
                node(Target::Server(Box::new(server)))
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster => To::Cluster(Cluster::start(address.clone(), &label, preload)),
            #[cfg(feature = "sentinel")]
            Topology::Sentinel(master) => {
                let sentinels = Sentinels::new(&address, master);
                node(Target::Master(Arc::new(sentinels)))
            }
        };
        let shared = Arc::new(Shared {
            to,
            address,
            label,
            runtime: Handle::current(),
        });
        Ok(Self { shared, timeout })
    }

    /// Where Redis is, for people: no user and no password.
    pub(crate) fn label(&self) -> &Arc<str> {
        &self.shared.label
    }

    /// The same with another timeout for each question.
    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The runtime of the connection's background tasks. Without it nothing is answered.
    #[cfg_attr(not(any(feature = "limiter", feature = "lock")), expect(dead_code))]
    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Asks whether a key may spend a cost.
    pub(crate) fn take(&self, take: TakeQuestion) -> AnswerFuture<Decision> {
        let slot = self.slot(&take.name);
        self.ask(|caller| Question::new(Body::Take(take, caller), slot, self.timeout))
    }

    /// Calls a script on keys of one slot.
    pub(crate) fn call(
        &self,
        script: &'static Script,
        keys: &[&str],
        arguments: impl FnOnce(&mut Cmd),
    ) -> AnswerFuture<Value> {
        let command = script.by_hash(keys, arguments);
        self.command(
            command,
            Some(script),
            keys.first().copied().unwrap_or_default(),
        )
    }

    /// Runs a command on one key.
    #[cfg_attr(not(feature = "limiter"), expect(dead_code))]
    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        command: Cmd,
        key: &str,
    ) -> Result<T, StoreError> {
        let reply = self.command(command, None, key).await?;
        redis::from_redis_value(reply).map_err(|error| store_error(self.label(), error.into()))
    }

    fn command(
        &self,
        command: Cmd,
        script: Option<&'static Script>,
        key: &str,
    ) -> AnswerFuture<Value> {
        let (call, slot) = (CallQuestion { command, script }, self.slot(key));
        self.ask(|caller| Question::new(Body::Call(call, caller), slot, self.timeout))
    }

    fn ask<T>(&self, ask: impl FnOnce(Caller<T>) -> Question) -> AnswerFuture<T> {
        let (question, answer) = AnswerFuture::of(ask, &self.shared.label);
        match &self.shared.to {
            To::Server(node) => node.ask(question),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.ask(question),
        }
        answer
    }

    fn slot(&self, key: &str) -> u16 {
        match &self.shared.to {
            To::Server(_) => {
                let _ = key;
                0
            }
            #[cfg(feature = "cluster")]
            To::Cluster(_) => slot(key.as_bytes()),
        }
    }

    /// Completes with the first connection, in a cluster to any master, or with why there is none,
    /// if that does not pass by itself.
    async fn first(&self) -> RedisResult<()> {
        loop {
            let status = match &self.shared.to {
                To::Server(node) => node.status(),
                #[cfg(feature = "cluster")]
                To::Cluster(cluster) => cluster.status(),
            };
            match status {
                Some(Err(error)) if is_passing(&error) => {}
                Some(status) => return status,
                None => {}
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// The error for a reply that makes no sense.
    #[cfg_attr(not(any(feature = "limiter", feature = "lock")), expect(dead_code))]
    pub(crate) fn protocol_error(&self, reply: &Value) -> StoreError {
        /// Characters of the reply that are shown.
        const MAX_SHOWN: usize = 200;
        let reply: String = format!("{reply:?}").chars().take(MAX_SHOWN).collect();
        let message = format!(
            "{} gave an answer that makes no sense: {reply}",
            self.label()
        );
        StoreError::new(StoreErrorKind::Protocol, message)
    }

    /// A connection over which messages can be heard, if one stands: in a cluster every node has
    /// all of them.
    #[cfg_attr(not(feature = "lock"), expect(dead_code))]
    pub(crate) fn link(&self) -> Option<Link> {
        match &self.shared.to {
            To::Server(node) => node.link(),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.link(),
        }
    }
}

/// How often it is looked whether there is a connection.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Whether this is a server that does not answer yet, or is still loading its data.
fn is_passing(error: &RedisError) -> bool {
    let loading = ErrorKind::Server(ServerErrorKind::BusyLoading);
    error.is_timeout() || error.kind() == loading
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.shared.address)
            .finish()
    }
}
