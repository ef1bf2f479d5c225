use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisResult, Value};
use uuid::Uuid;

use super::{Preload, Reconnecting, Script, store_error};
use crate::error::{StoreError, StoreErrorKind};

/// A Redis server as one process uses it: for [`RateLimiter`](crate::RateLimiter)s, [`Lock`](crate::Lock)s and
/// [`ExclusiveLayer`](crate::ExclusiveLayer)s, and for [`RedisStore`](crate::RedisStore)s over the same connection.
///
/// Make one for a process and clone it: clones share the connection, the identity under which Redis knows this process,
/// and the lines in which its tasks wait.
///
/// ```no_run
/// use tidegate::{RateLimiter, Redis};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let limiter = RateLimiter::new(&redis, "partner-api");
/// # let _ = limiter;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redis {
    calls: Calls,
    process: Arc<Process>,
}

/// What all clones share.
struct Process {
    id: Box<str>,
    /// What the limiter and the lock keep for the whole process, by their types.
    kept: Mutex<http::Extensions>,
}

/// The connection alone, for background tasks: it keeps nothing else alive.
#[derive(Clone)]
pub(crate) struct Calls {
    connection: Reconnecting,
    info: Arc<ConnectionInfo>,
    address: Arc<str>,
    timeout: Duration,
}

impl Redis {
    /// How long [`Redis::connect`] waits at most.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// The default of [`Redis::timeout`].
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

    /// Connects to one server: `redis://[user:password@]host[:port][/db]`, `unix:///path`, and with
    /// the feature `tls` `rediss://...`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the address makes no sense, if the server cannot be reached or refuses, or
    /// if all that, with a server that is still loading its data, takes more than [`CONNECT_TIMEOUT`](Self::CONNECT_TIMEOUT).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let (info, address) = server(url)?;
        let connection =
            Reconnecting::connect_with(info.clone(), Preload::All, Self::CONNECT_TIMEOUT);
        let connection = connection.await;
        Self::over(connection, info, &address)
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
    pub fn connect_lazy(url: &str) -> Result<Self, StoreError> {
        let (info, address) = server(url)?;
        Self::over(
            Reconnecting::lazy_with(info.clone(), Preload::All),
            info,
            &address,
        )
    }

    fn over(
        connection: RedisResult<Reconnecting>,
        info: ConnectionInfo,
        address: &str,
    ) -> Result<Self, StoreError> {
        let connection = connection.map_err(|error| store_error(address, error))?;
        let calls = Calls {
            connection,
            info: Arc::new(info),
            address: address.into(),
            timeout: Self::DEFAULT_TIMEOUT,
        };
        let process = Process {
            id: Uuid::new_v4().to_string().into(),
            kept: Mutex::default(),
        };
        Ok(Self {
            calls,
            process: Arc::new(process),
        })
    }

    /// How long one call may take, with all waiting for a connection. Default: 200 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.calls.timeout = timeout;
        self
    }

    /// The connection, for a [`RedisStore`](crate::RedisStore) of the same server.
    #[must_use]
    pub fn connection(&self) -> Reconnecting {
        self.calls.connection.clone()
    }

    /// What this process is called in Redis: a random UUID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.process.id
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// What this process keeps one of; made when it is asked for first, dropped with the last clone of the handle. It
    /// must not hold a handle itself.
    pub(crate) fn keep<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Calls) -> T) -> Arc<T> {
        let kept = self.process.kept.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        if kept.get::<Arc<T>>().is_none() {
            kept.insert(Arc::new(make(&self.calls)));
        }
        let kept = kept.get::<Arc<T>>();
        Arc::clone(kept.expect("it was inserted"))
    }
}

impl Calls {
    /// One script call, within the time-out.
    pub(crate) async fn call(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut connection = self.connection.clone();
        let call = script.call(&mut connection, keys, arguments);
        let reply = tokio::time::timeout(self.timeout, call).await;
        let reply = reply.map_err(|_| self.late())?;
        reply.map_err(|error| store_error(&self.address, error))
    }

    /// One command, within the time-out.
    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        let reply = command.query_async(&mut connection);
        let reply = tokio::time::timeout(self.timeout, reply).await;
        let reply = reply.map_err(|_| self.late())?;
        reply.map_err(|error| store_error(&self.address, error))
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Where the server is and who we are there, for a connection besides.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(crate) fn protocol_error(&self, reply: &Value) -> StoreError {
        let message = format!(
            "{} gave an answer that makes no sense: {reply:?}",
            self.address
        );
        StoreError::new(StoreErrorKind::Protocol, message)
    }

    fn late(&self) -> StoreError {
        let message = format!("{} did not answer within {:?}", self.address, self.timeout);
        StoreError::new(StoreErrorKind::Timeout, message)
    }
}

/// What an address means, and its name for people. Nothing of one that makes no sense is repeated: it
/// may hold a password.
pub(crate) fn server(url: &str) -> Result<(ConnectionInfo, String), StoreError> {
    let info = url.into_connection_info();
    let info = info.map_err(|error| store_error("redis", error))?;
    let address = format!("redis at {}", info.addr());
    Ok((info, address))
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("address", &self.calls.address)
            .field("timeout", &self.calls.timeout)
            .field("id", &self.process.id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("address", &self.address)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
