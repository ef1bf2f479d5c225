use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::acquire::acquire;
use super::error::LockError;
use super::lease_request::LeaseRequest;
use super::lock_guard::LockGuard;
use super::owner::Owner;
use super::reply::{LockStatus, read_bool};
use super::resource::{Resource, ResourceKind};
use crate::connection::{LOCK_FORCE, LOCK_LOOK, Redis, Script};
use crate::error::StoreError;

/// A lock that at most one holder in the whole fleet has at a time, for as long as its lease lasts.
///
/// All processes that use the same server and the same name contend for it. See the
/// [module](crate::lock) for what a lock promises, and what it cannot promise.
///
/// Each method that acquires the lock returns a [`LockGuard`]. The lock is free again when the
/// guard is [released](LockGuard::release) or dropped. All methods need a tokio runtime with its
/// timer and its I/O enabled. The background tasks run in the runtime in which the [`Redis`] handle
/// was made: when that runtime ends, no lease is renewed.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    redis: Redis,
    resource: Arc<Resource>,
    lease: Duration,
    owner: Option<Owner>,
}

impl Lock {
    /// The default of [`Lock::lease`]: 30 s.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    /// The shortest lease: 10 ms. A shorter one would be over before its holder could use it.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);

    /// The longest lease: ten years.
    pub const MAX_LEASE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

    /// The lock with this name, which is also its key in Redis. It asks Redis nothing yet.
    pub fn new(redis: &Redis, name: &str) -> Self {
        Self {
            redis: redis.clone(),
            resource: Resource::new(redis, ResourceKind::Lock, name),
            lease: Self::DEFAULT_LEASE,
            owner: None,
        }
    }

    /// How long the lock outlives a holder that crashed: [`MIN_LEASE`](Self::MIN_LEASE) to
    /// [`MAX_LEASE`](Self::MAX_LEASE), checked when the lock is acquired. Default: 30 s.
    ///
    /// A background task renews the lease after each third of it. So the lease also bounds for how
    /// long Redis may be away without the lock being lost.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The same lock for this owner, which may acquire it again while it holds it. Each guard
    /// releases one hold. Default: each acquisition is a holder of its own, and waits for all
    /// others.
    pub fn by(&self, owner: &Owner) -> Self {
        Self {
            owner: Some(owner.clone()),
            ..self.clone()
        }
    }

    /// Acquires the lock, and waits for as long as it takes. The lease is renewed.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis refuses, if Redis has not answered for 5 s, or if the lease is out of
    /// range.
    pub async fn lock(&self) -> Result<LockGuard, LockError> {
        let lease = self.acquire_renewed(None).await?;
        Ok(lease.expect("without a bound it waits until the lock is acquired"))
    }

    /// Acquires the lock for a fixed time, and waits for as long as it takes. The lease is never
    /// renewed.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`].
    pub async fn lock_for(&self, lease: Duration) -> Result<LockGuard, LockError> {
        let lease = self.acquire(lease, None).await?;
        Ok(lease.expect("without a bound it waits until the lock is acquired"))
    }

    /// Acquires the lock if it is free, in one round trip. Returns `None` if it is held.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis does not answer or refuses, or if the lease is out of range.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>, LockError> {
        self.acquire_renewed(Some(Duration::ZERO)).await
    }

    /// Acquires the lock, and waits for at most `wait`; with zero, as [`Lock::try_lock`]. Returns
    /// `None` if it is still held.
    ///
    /// A call in progress at the end is awaited, for up to one more [`Redis::timeout`].
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis refuses, if it did not answer the last call, if it has not answered
    /// for 5 s, or if the lease is out of range.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<LockGuard>, LockError> {
        self.acquire_renewed(Some(wait)).await
    }

    /// Takes the lock away from its holder, and returns whether it was held. The holder notices
    /// with its next renewal.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis does not answer or refuses.
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        let channel = &*self.resource.keys.channel;
        self.call(&LOCK_FORCE, channel, read_bool).await
    }

    /// Whether the lock is held.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis does not answer or refuses.
    pub async fn is_locked(&self) -> Result<bool, LockError> {
        Ok(self.status("").await?.is_held)
    }

    /// The time until the lease runs out unless it is renewed; `None` if the lock is free, or if
    /// its lease never ends.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis does not answer or refuses.
    pub async fn remaining(&self) -> Result<Option<Duration>, LockError> {
        Ok(self.status("").await?.remaining)
    }

    /// How many holds this owner has on the lock.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis does not answer or refuses.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        Ok(self.status(&self.resource.holder(owner)).await?.holds)
    }

    async fn acquire_renewed(
        &self,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, LockError> {
        let lease = self.acquire(self.lease, wait).await?;
        Ok(lease.map(LockGuard::with_renewal))
    }

    /// Waits for at most `wait`, or as long as it takes.
    async fn acquire(
        &self,
        lease: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<LockGuard>, LockError> {
        if !(Self::MIN_LEASE..=Self::MAX_LEASE).contains(&lease) {
            return Err(LockError::lease(&self.resource.keys.name, lease));
        }
        let request = LeaseRequest::new(&self.resource, self.owner.as_ref(), lease);
        let acquired = acquire(&self.redis, request, wait).await;
        acquired.map_err(|error| self.error(error))
    }

    async fn status(&self, holder: &str) -> Result<LockStatus, LockError> {
        self.call(&LOCK_LOOK, holder, LockStatus::read).await
    }

    async fn call<T>(
        &self,
        script: &'static Script,
        argument: &str,
        read: fn(&Value) -> Option<T>,
    ) -> Result<T, LockError> {
        let Resource {
            connection, keys, ..
        } = &*self.resource;
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(argument);
        };
        let reply = connection.call(script, &[&keys.name], arguments).await;
        let reply = reply.and_then(|reply| self.resource.read(&reply, read));
        reply.map_err(|error| self.error(error))
    }

    fn error(&self, error: StoreError) -> LockError {
        LockError::store(&self.resource.keys.name, error)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.resource.keys.name)
            .field("lease", &self.lease)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
