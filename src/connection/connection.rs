use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

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
use crate::error::StoreError;

/// What is asked at an address: one server, the master that sentinels name, or every master of a cluster.
///
/// Connections that break are made anew in the background. A question never waits for an attempt to connect after one has
/// failed: it gets that failure. A question that was sent when its connection broke gets an error, and is not sent again,
/// because it may have been executed.
///
/// Clones share the connections. The background tasks end with the last of them.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    to: To,
    address: RedisAddress,
    /// The address, for people.
    label: Arc<str>,
}

enum To {
    Server(Node),
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
}

impl Connection {
    /// Connects and loads the scripts, within `timeout`. A server that does not answer yet, or is still loading its data, is
    /// waited for.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or if that takes too long.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(crate) async fn connect(
        address: impl IntoRedisAddress,
        preload: Preload,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let connection = Self::lazy(address, preload)?;
        let first = within(timeout, connection.first()).await;
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
        Ok(Self(Arc::new(Shared { to, address, label })))
    }

    /// Where Redis is, for people: no user and no password.
    pub(crate) fn label(&self) -> &Arc<str> {
        &self.0.label
    }

    /// Asks whether a key may spend a cost.
    pub(crate) fn take(&self, take: TakeQuestion, timeout: Duration) -> AnswerFuture<Decision> {
        let slot = self.slot(take.name.as_bytes());
        self.ask(|caller| Question::new(Body::Take(take, caller), slot, timeout))
    }

    /// Calls a script on keys of one slot.
    pub(crate) fn call(
        &self,
        script: &'static Script,
        keys: &[&str],
        arguments: impl FnOnce(&mut Cmd),
        timeout: Duration,
    ) -> AnswerFuture<Value> {
        let call = CallQuestion {
            command: script.by_hash(keys, arguments),
            script: Some(script),
        };
        let slot = keys.first().map_or(0, |key| self.slot(key.as_bytes()));
        self.ask(|caller| Question::new(Body::Call(call, caller), slot, timeout))
    }

    /// Runs a command on one key.
    pub(crate) fn query(&self, command: Cmd, key: &str, timeout: Duration) -> AnswerFuture<Value> {
        let call = CallQuestion {
            command,
            script: None,
        };
        let slot = self.slot(key.as_bytes());
        self.ask(|caller| Question::new(Body::Call(call, caller), slot, timeout))
    }

    fn ask<T>(&self, ask: impl FnOnce(Caller<T>) -> Question) -> AnswerFuture<T> {
        let (question, answer) = AnswerFuture::of(ask, &self.0.label);
        match &self.0.to {
            To::Server(node) => node.ask(question),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.ask(question),
        }
        answer
    }

    fn slot(&self, key: &[u8]) -> u16 {
        match &self.0.to {
            To::Server(_) => {
                let _ = key;
                0
            }
            #[cfg(feature = "cluster")]
            To::Cluster(_) => slot(key),
        }
    }

    async fn first(&self) -> RedisResult<()> {
        match &self.0.to {
            To::Server(node) => node.first().await,
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.first().await,
        }
    }

    /// A connection over which messages can be heard, if one stands: in a cluster every node has all of them.
    pub(crate) fn link(&self) -> Option<Link> {
        match &self.0.to {
            To::Server(node) => node.link(),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.link(),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.0.address).finish()
    }
}
