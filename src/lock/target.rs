use std::sync::Arc;

use super::names::Names;
use super::owner::Owner;
use crate::connection::{Connection, Redis};

/// What is to be had: under which name, and from which server.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) connection: Connection,
    pub(super) names: Names,
    /// What this process is called.
    process: Box<str>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Lock,
    Slots { permits: u32 },
}

impl Target {
    pub(super) fn lock(redis: &Redis, name: &str) -> Arc<Self> {
        Self::of(Kind::Lock, redis, name)
    }

    pub(super) fn slots(redis: &Redis, name: &str, permits: u32) -> Arc<Self> {
        Self::of(Kind::Slots { permits }, redis, name)
    }

    fn of(kind: Kind, redis: &Redis, name: &str) -> Arc<Self> {
        Arc::new(Self {
            connection: redis.connection().clone(),
            names: Names::new(name),
            process: redis.id().into(),
            kind,
        })
    }

    /// How the lock's hash has an owner.
    pub(super) fn holder(&self, owner: &Owner) -> String {
        format!("{}:{}", self.process, owner.number())
    }

    /// What this process is called.
    pub(super) fn process(&self) -> &str {
        &self.process
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }
}
