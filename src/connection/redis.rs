use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::address::IntoRedisAddress;
use super::connection::Connection;
use super::scripts::Preload;
use crate::error::StoreError;

/// A process's handle to Redis, for all its stores, limiters and locks.
///
/// A process makes one handle and clones it. Clones share the connection, the pipelines in which
/// their questions travel, and the [identity](Redis::id) of the process. The timeout belongs to
/// each clone. The connection is closed when the last clone is dropped, and everything made of it.
///
/// [`RedisStore::of`](crate::RedisStore::of) makes a store of a handle, `RateLimiter::new` a
/// limiter (feature `limiter`), `Lock::new` a lock and `ExclusiveLayer::new` a layer (feature
/// `lock`).
///
/// ```no_run
/// use std::time::Duration;
/// use tidegate::{Redis, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let store = RedisStore::of(&redis);
/// // The same connection, with less patience.
/// let impatient = RedisStore::of(&redis.clone().timeout(Duration::from_millis(20)));
/// # let _ = (store, impatient);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    process: Arc<Process>,
}

/// What the clones of a handle share besides the connection.
struct Process {
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
    /// [`RedisAddress`](crate::redis::RedisAddress) for the URLs; that of one server is
    /// `redis://[user:password@]host[:6379][/db]`.
    ///
    /// Waits for a server that does not answer yet or is still loading its data, for up to
    /// [`CONNECT_TIMEOUT`](Self::CONNECT_TIMEOUT). Of a cluster, one master has to be reached.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or
    /// if connecting takes too long.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Connection::connect(address, Preload::All, Self::DEFAULT_TIMEOUT).await?;
        Ok(Self::over(connection))
    }

    /// Begins to connect in the background, so that a service can start while Redis cannot be
    /// reached. Questions wait for the first attempt to connect, within their timeout. Once it has
    /// failed, they fail at once, until a later attempt succeeds.
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
    /// [`StoreError`] if the address makes no sense.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn connect_lazy(address: impl IntoRedisAddress) -> Result<Self, StoreError> {
        let connection = Connection::lazy(address, Preload::All, Self::DEFAULT_TIMEOUT)?;
        Ok(Self::over(connection))
    }

    /// The handle of a process with a new identity, over this connection.
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

    /// The longest time from a question to its answer, including the wait for a connection. It does
    /// not apply to clones made before. Default: 200 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.connection = self.connection.with_timeout(timeout);
        self
    }

    /// The identity of this process in Redis, a random UUID. Locks and permits in Redis carry it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.process.id
    }

    /// The connection, for the stores, limiters and locks of this handle.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The value of type `T` that all clones share. `make` makes it at the first call. It is
    /// dropped with the last clone of the handle, so it must not contain a handle itself.
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
