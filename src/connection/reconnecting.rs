use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};

use super::address::{IntoRedisAddress, RedisAddress, Topology};
#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::keeper::{Target, within};
use super::line::Line;
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::store_error;
use crate::error::StoreError;

/// A connection to Redis, made anew in the background when it breaks: to one server, to the master that sentinels name,
/// or to every master of a cluster, as its [address](RedisAddress) says.
///
/// A call never waits for a reconnect that has already failed once: it gets that failure at once. A
/// call that was under way when the connection broke gets the error; it is not sent again, because it
/// may have been executed.
///
/// It is also made anew when the server turns out to be a replica or to have lost its master, and
/// when ten calls in a row were given up without an answer; those that one task gives up within five milliseconds,
/// such as a batch, count as one. From one attempt to the next it takes at most 180 ms; if the
/// first is still under way by then, 300 ms, and after a connection that was made more slowly eight times what that took, at most
/// two seconds. It goes on beside the next ones then, until it has taken two seconds: never more than two are under way.
///
/// Behind sentinels, each attempt asks all of them who the master is. In a cluster each node has a connection that breaks
/// and comes back alone; a command goes to the master of its first key, one without a key to any master, and a pipeline to
/// the master of its first key. Commands follow slots that have moved or are moving; pipelines get the error.
///
/// Clones share the connection. The background tasks end with the last of them.
#[derive(Clone)]
pub struct Reconnecting {
    shared: Arc<Shared>,
}

struct Shared {
    to: To,
    address: RedisAddress,
}

enum To {
    Server(Line),
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
}

impl Reconnecting {
    /// Connects and loads the scripts, within `timeout`. A server that does not answer yet, or is
    /// still loading its data, is waited for.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or if that takes too
    /// long.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(
        address: impl IntoRedisAddress,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        Self::connect_with(address, Preload::Stores, timeout).await
    }

    pub(super) async fn connect_with(
        address: impl IntoRedisAddress,
        preload: Preload,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let connection = Self::lazy_with(address, preload)?;
        let first = within(timeout, connection.first()).await;
        first.map_err(|error| store_error(&connection.address().to_string(), error))?;
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
    pub fn lazy(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        Self::lazy_with(address, Preload::Stores)
    }

    pub(super) fn lazy_with(
        address: impl IntoRedisAddress,
        preload: Preload,
    ) -> Result<Self, StoreError> {
        let address = address.into_redis_address()?.checked()?;
        let line = |target| To::Server(Line::start(target, preload, Arc::default()));
        let to = match &address.topology {
            Topology::Single => {
                let mut servers = address.servers();
                let server = servers.next().expect("there is one");
                line(Target::Server(Box::new(server)))
            }
            #[cfg(feature = "cluster")]
            Topology::Cluster => To::Cluster(Cluster::start(address.clone(), preload)),
            #[cfg(feature = "sentinel")]
            Topology::Sentinel(master) => {
                let sentinels = Sentinels::new(&address, master);
                line(Target::Master(Arc::new(sentinels)))
            }
        };
        Ok(Self {
            shared: Arc::new(Shared { to, address }),
        })
    }

    /// Whether this is a cluster, whose nodes each have a clock of their own.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        match &self.shared.to {
            To::Server(_) => false,
            #[cfg(feature = "cluster")]
            To::Cluster(_) => true,
        }
    }

    /// Where Redis is, as the connection was told.
    #[must_use]
    pub fn address(&self) -> &RedisAddress {
        &self.shared.address
    }

    async fn first(&self) -> RedisResult<()> {
        match &self.shared.to {
            To::Server(line) => line.first().await,
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.first().await,
        }
    }

    /// Where a connection besides is made to: the first that answers.
    pub(super) async fn servers(&self) -> RedisResult<Vec<redis::ConnectionInfo>> {
        match &self.shared.to {
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => Ok(cluster.servers()),
            To::Server(_) => match &self.shared.address.topology {
                #[cfg(feature = "sentinel")]
                Topology::Sentinel(master) => {
                    let sentinels = Sentinels::new(&self.shared.address, master);
                    Ok(vec![sentinels.master().await?.server])
                }
                _ => Ok(self.shared.address.servers().collect()),
            },
        }
    }

    /// A reply over the connection to this key's server was not the one to its question, which was asked then: that
    /// connection is made anew, if that did not happen since.
    pub(crate) fn out_of_step(&self, key: &str, asked: Instant) {
        match &self.shared.to {
            To::Server(line) => line.out_of_step(asked),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.out_of_step(key, asked),
        }
        let _ = key;
    }

    /// Completes when a connection besides to this server has become one to the wrong server.
    pub(super) async fn left(&self, at: &str) {
        match &self.shared.to {
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => cluster.left(at).await,
            #[cfg(feature = "sentinel")]
            To::Server(line) if matches!(self.shared.address.topology, Topology::Sentinel(_)) => {
                line.left(at).await;
            }
            To::Server(_) => {
                let _ = at;
                std::future::pending().await
            }
        }
    }
}

impl ConnectionLike for Reconnecting {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match &self.shared.to {
            To::Server(line) => Box::pin(line.command(cmd)),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => Box::pin(cluster.command(cmd)),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match &self.shared.to {
            To::Server(line) => Box::pin(line.commands(pipeline, offset, count)),
            #[cfg(feature = "cluster")]
            To::Cluster(cluster) => Box::pin(cluster.commands(pipeline, offset, count)),
        }
    }

    fn get_db(&self) -> i64 {
        self.shared.address.database()
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting")
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}
