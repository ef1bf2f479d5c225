use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};

use super::link::Link;
use super::{Connection, Script, store_error};
use crate::error::{StoreError, StoreErrorKind};

/// The calls of limiters and locks, each within a timeout. Background tasks have it without the handle, which they would
/// keep alive.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    connection: Connection,
    timeout: Duration,
}

/// Characters of a reply that makes no sense that an error shows.
const MAX_SHOWN: usize = 200;

impl Calls {
    pub(super) fn new(connection: Connection, timeout: Duration) -> Self {
        Self {
            connection,
            timeout,
        }
    }

    /// One script call.
    pub(crate) async fn call(
        &self,
        script: &'static Script,
        keys: &[&str],
        arguments: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        self.connection
            .call(script, keys, arguments, self.timeout)
            .await
    }

    /// One command on one key.
    pub(crate) async fn query<T: FromRedisValue>(
        &self,
        command: Cmd,
        key: &str,
    ) -> Result<T, StoreError> {
        let reply = self.connection.query(command, key, self.timeout).await?;
        redis::from_redis_value(reply).map_err(|error| store_error(self.address(), error.into()))
    }

    /// A connection over which messages can be heard, if one stands.
    pub(crate) fn link(&self) -> Option<Link> {
        self.connection.link()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        self.connection.label()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(crate) fn protocol_error(&self, reply: &Value) -> StoreError {
        let reply: String = format!("{reply:?}").chars().take(MAX_SHOWN).collect();
        let address = self.address();
        let message = format!("{address} gave an answer that makes no sense: {reply}");
        StoreError::new(StoreErrorKind::Protocol, message)
    }
}
