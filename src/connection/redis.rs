use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::address::IntoRedisAddress;
use super::connection::Connection;
use super::scripts::Preload;
use crate::error::StoreError;

/// A process's connection to Redis: for `RateLimiter`s, `Lock`s and `ExclusiveLayer`s, which need the
/// features `limiter` and `lock`, and for [`RedisStore`](crate::RedisStore)s [over the same
/// connection](crate::RedisStore::of).
///
/// Make one for a process and clone it: clones share the connection, the identity under which Redis
/// knows this process, and the calls in which its tasks ask.
///
/// ```no_run
/// use tidegate::{Redis, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let store = RedisStore::of(&redis);
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    process: Arc<Process>,
}

/// What all clones share.
struct Process {
    id: Box<str>,
    /// What the limiter and the lock keep for the whole process, by their types.
    kept: Mutex<http::Extensions>,
}

impl Redis {
    /// How long [`Redis::connect`] waits at most.
    pub const CONNECT_TIMEOUT: Duration = Connection::CONNECT_TIMEOUT;

    /// The default of [`Redis::timeout`].
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

    /// Connects to one server, to a cluster, or to a master that sentinels look after: see
    /// [`RedisAddress`](crate::redis::RedisAddress) for the URLs. For one server it is
    /// `redis://[user:password@]host[:port][/db]`, `unix:///path`, or with the feature `tls`
    /// `rediss://...`.
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
        let connection = Connection::connect(address, Preload::All, Self::DEFAULT_TIMEOUT).await?;
        Ok(Self::over(connection))
    }

    /// Begins to connect in the background, so that a service can start while its Redis cannot be
    /// reached: until then every call is an error.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Connection::lazy(address, Preload::All, Self::DEFAULT_TIMEOUT)?;
        Ok(Self::over(connection))
    }

    fn over(connection: Connection) -> Self {
        let process = Process {
            id: Uuid::new_v4().to_string().into(),
            kept: Mutex::default(),
        };
        Self {
            connection,
            process: Arc::new(process),
        }
    }

    /// How long one call may take, with all waiting for a connection. Default: 200 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.connection = self.connection.with_timeout(timeout);
        self
    }

    /// What this process is called in Redis: a random UUID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.process.id
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What this process keeps one of; made when it is asked for first, dropped with the last clone
    /// of the handle. It must not hold a handle itself.
    #[cfg_attr(not(any(feature = "limiter", feature = "lock")), expect(dead_code))]
    pub(crate) fn keep<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce(&Connection) -> T,
    ) -> Arc<T> {
        let kept = self.process.kept.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
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
            .field("address", self.connection.label())
            .field("timeout", &self.connection.timeout())
            .field("id", &self.process.id)
            .finish_non_exhaustive()
    }
}
