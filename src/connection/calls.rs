use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::PubSub;
use redis::{Cmd, FromRedisValue, RedisResult, Value};

use super::keeper::within;
use super::open::client;
use super::{Reconnecting, Script, store_error};
use crate::error::{StoreError, StoreErrorKind};

/// The connection alone, for background tasks: it keeps nothing else alive.
#[derive(Clone)]
pub(crate) struct Calls {
    connection: Reconnecting,
    /// For people.
    address: Arc<str>,
    timeout: Duration,
}

/// How long a server may take until it can be listened to, before another one is tried.
const LISTEN: Duration = Duration::from_millis(500);

/// So much of a reply that makes no sense is shown.
const MOST_SHOWN: usize = 200;

impl Calls {
    pub(super) fn new(connection: Reconnecting, timeout: Duration) -> Self {
        Self {
            address: connection.address().to_string().into(),
            connection,
            timeout,
        }
    }

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

    /// A connection besides, to listen over, and the server that it is to: the master, or any node of a cluster.
    pub(crate) async fn listen(&self) -> RedisResult<(PubSub, String)> {
        let mut failure = None;
        for server in self.connection.servers().await? {
            let at = server.addr().to_string();
            let listening = async { client(server)?.get_async_pubsub().await };
            match within(LISTEN, listening).await {
                Ok(link) => return Ok((link, at)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("there is one server at least"))
    }

    /// Completes when that server is not the one any more that is to be listened to.
    pub(crate) async fn left(&self, at: &str) {
        self.connection.left(at).await;
    }

    pub(crate) fn connection(&self) -> &Reconnecting {
        &self.connection
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(crate) fn protocol_error(&self, reply: &Value) -> StoreError {
        let reply: String = format!("{reply:?}").chars().take(MOST_SHOWN).collect();
        let message = format!(
            "{} gave an answer that makes no sense: {reply}",
            self.address
        );
        StoreError::new(StoreErrorKind::Protocol, message)
    }

    fn late(&self) -> StoreError {
        let message = format!("{} did not answer within {:?}", self.address, self.timeout);
        StoreError::new(StoreErrorKind::Timeout, message)
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
