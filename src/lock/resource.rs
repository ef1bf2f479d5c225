use std::sync::Arc;

use redis::Value;

use super::lock_keys::LockKeys;
use super::owner::Owner;
use crate::connection::{Connection, Redis};
use crate::error::StoreError;

/// A lock or a semaphore: its keys, and the connection to its server.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) connection: Connection,
    pub(super) keys: LockKeys,
    pub(super) kind: ResourceKind,
    /// The id of this process, in the fields of a lock's hash.
    pub(super) process: Box<str>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ResourceKind {
    Lock,
    /// At most this many holders at a time.
    Semaphore {
        permits: u32,
    },
}

impl Resource {
    pub(super) fn new(redis: &Redis, kind: ResourceKind, name: &str) -> Arc<Self> {
        Arc::new(Self {
            connection: redis.connection().clone(),
            keys: LockKeys::new(name),
            kind,
            process: redis.id().into(),
        })
    }

    /// The field of this owner in a lock's hash.
    pub(super) fn holder(&self, owner: &Owner) -> String {
        format!("{}:{}", self.process, owner.number())
    }

    /// Reads a script's reply.
    pub(super) fn read<T>(
        &self,
        reply: &Value,
        read: fn(&Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        read(reply).ok_or_else(|| self.connection.protocol_error(reply))
    }
}
