use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::time::Instant;

use super::claim::Claim;
use super::error::LockError;
use super::guard::LockGuard;
use super::lease::Lease;
use super::owner::Owner;
use super::reply::{Sight, yes_or_no};
use super::target::Target;
use super::waiting;
use crate::connection::{LOCK_FORCE, LOCK_LOOK, Redis};
use crate::error::StoreError;

/// A lock that at most one holder in the whole fleet has at a time, for as long as its lease lasts.
///
/// All processes that use the same server and the same name contend for it. See the [module](crate::lock) for what
/// it promises, and what it cannot.
///
/// Every method that takes it gives a [`LockGuard`]; the lock is free again when that is
/// [released](LockGuard::release) or dropped. Its methods need a tokio runtime with its timer and its I/O enabled. The
/// background tasks run in the runtime in which the [`Redis`] handle was made: when that ends, nothing is renewed.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is taken"]
pub struct Lock {
    redis: Redis,
    target: Arc<Target>,
    lease: Duration,
    owner: Option<Owner>,
}

impl Lock {
    /// The default of [`Lock::lease`].
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

    /// A shorter lease would be over before anybody could use it.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);

    /// The longest lease: ten years.
    pub const MAX_LEASE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

    /// The lock of this name, which is also its key in Redis. Nothing is asked yet.
    pub fn new(redis: &Redis, name: &str) -> Self {
        Self {
            redis: redis.clone(),
            target: Target::lock(redis, name),
            lease: Self::DEFAULT_LEASE,
            owner: None,
        }
    }

    /// How long the lock outlives a holder that crashed. While the guard lives it is renewed at a third of this, so it
    /// also bounds for how long Redis may be away. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The same lock as this owner takes it: again and again if it has it, each guard releasing one hold of it.
    ///
    /// Without an owner each acquisition is somebody else's, and waits for all others.
    pub fn by(&self, owner: &Owner) -> Self {
        Self {
            owner: Some(owner.clone()),
            ..self.clone()
        }
    }

    /// Takes it, and waits for as long as that takes.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis refuses, if it could not be asked for 5 s in a row, or if there can be no such lease.
    pub async fn lock(&self) -> Result<LockGuard, LockError> {
        let claim = self.claim(self.lease)?;
        self.wait(claim)
            .await
            .map(Lease::renewed)
            .map(LockGuard::new)
    }

    /// The same for a fixed time: it is never renewed.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`].
    pub async fn lock_for(&self, lease: Duration) -> Result<LockGuard, LockError> {
        let claim = self.claim(lease)?;
        self.wait(claim).await.map(LockGuard::new)
    }

    /// Takes it if nobody has it, in one round trip.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis gives no answer, or if there can be no such lease.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>, LockError> {
        let claim = self.claim(self.lease)?;
        let lease = waiting::try_once(&self.redis, claim).await;
        let lease = lease.map_err(|error| self.error(error))?;
        Ok(lease.map(Lease::renewed).map(LockGuard::new))
    }

    /// Takes it if that takes no longer than this; with zero, as [`Lock::try_lock`].
    ///
    /// A question that is under way at the end is waited for, which takes up to one
    /// [`Redis::timeout`] longer. `None` means that Redis has said that others have the lock.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis refuses, if it did not answer the last question or none for 5 s, or if
    /// there can be no such lease.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<LockGuard>, LockError> {
        if wait.is_zero() {
            return self.try_lock().await;
        }
        let claim = self.claim(self.lease)?;
        // Without end where no clock counts so far.
        let until = Instant::now().checked_add(wait);
        let lease = waiting::wait(&self.redis, claim, until).await;
        let lease = lease.map_err(|error| self.error(error))?;
        Ok(lease.map(Lease::renewed).map(LockGuard::new))
    }

    /// Takes it away from whoever holds it; that one learns of it with its next renewal. Whether anybody did.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis gives no answer.
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        let names = &self.target.names;
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(&*names.channel);
        };
        let connection = &self.target.connection;
        let reply = connection.call(&LOCK_FORCE, &[&names.key], arguments).await;
        let was_held = reply
            .and_then(|reply| yes_or_no(&reply).ok_or_else(|| connection.protocol_error(&reply)));
        was_held.map_err(|error| self.error(error))
    }

    /// Whether anybody holds it.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis gives no answer.
    pub async fn is_locked(&self) -> Result<bool, LockError> {
        Ok(self.look("").await?.is_held)
    }

    /// When the present lease runs out, if it is not renewed; none if nobody holds it, or without end.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis gives no answer.
    pub async fn remaining(&self) -> Result<Option<Duration>, LockError> {
        Ok(self.look("").await?.remaining)
    }

    /// How often this owner has it.
    ///
    /// # Errors
    ///
    /// [`LockError`] if Redis gives no answer.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        Ok(self.look(&self.target.holder(owner)).await?.holds)
    }

    fn claim(&self, lease: Duration) -> Result<Claim, LockError> {
        match (Self::MIN_LEASE..=Self::MAX_LEASE).contains(&lease) {
            true => Ok(Claim::new(&self.target, self.owner.as_ref(), lease)),
            false => Err(LockError::lease(&self.target.names.key, lease)),
        }
    }

    async fn wait(&self, claim: Claim) -> Result<Lease, LockError> {
        let lease = waiting::wait(&self.redis, claim, None).await;
        let lease = lease.map_err(|error| self.error(error))?;
        Ok(lease.expect("without a bound it waits until it has it"))
    }

    async fn look(&self, holder: &str) -> Result<Sight, LockError> {
        let Target {
            connection, names, ..
        } = &*self.target;
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(holder);
        };
        let reply = connection.call(&LOCK_LOOK, &[&names.key], arguments).await;
        let sight = reply
            .and_then(|reply| Sight::read(&reply).ok_or_else(|| connection.protocol_error(&reply)));
        sight.map_err(|error| self.error(error))
    }

    fn error(&self, error: StoreError) -> LockError {
        LockError::store(&self.target.names.key, error)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.target.names.key)
            .field("lease", &self.lease)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
