use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, sleep};

use super::acquire::acquire;
use super::held_lease::{BackgroundTasks, HeldLease, Release};
use super::lease_request::{LeaseRequest, LockStatus, Resource, read_bool};
use super::owner::Owner;
use super::scripts::{LOCK_FORCE, LOCK_LOOK};
use crate::connection::{Redis, Script, publish_command};
use crate::error::{KindError, StoreError, StoreErrorKind};
use crate::sync::OwnedTask;

/// A lock that at most one holder in the whole fleet has at a time, for as long as its lease lasts.
///
/// All processes that use the same server and the same name contend for it. See the
/// [module](crate::lock) for what a lock promises, and what it cannot promise.
///
/// Each method that acquires the lock returns a [`LockGuard`]. The lock is free again when the
/// guard is [released](LockGuard::release) or dropped. All methods need a tokio runtime with its
/// timer and its I/O enabled. The background tasks run in the runtime in which the [`Redis`] handle
/// was made: when that runtime ends, no lease is renewed.
///
/// ```no_run
/// use tidegate::Redis;
/// use tidegate::lock::Lock;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let guard = Lock::new(&redis, "report").lock().await?;
/// // Here this process is alone, as long as Redis and the clock are well.
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
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
            resource: Resource::new(redis, name),
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

    /// This lock for an owner, which may acquire it again while it holds it. Each guard
    /// releases one hold. Default: each acquisition is a holder of its own, and waits for all
    /// others.
    pub fn by(&self, owner: &Owner) -> Self {
        Self {
            owner: Some(owner.clone()),
            ..self.clone()
        }
    }

    /// Acquires the lock, and waits for as long as it takes. The lease is renewed. Dropping the
    /// future ends the wait; `Limits::stop_waiting`, which ends those of requests and calls, does
    /// not.
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
        let publish = publish_command(self.resource.connection.is_cluster());
        let arguments = [&*self.resource.keys.channel, publish];
        self.call(&LOCK_FORCE, &arguments, read_bool).await
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
            return Err(impossible_lease(&self.resource.keys.name, lease));
        }
        let request = LeaseRequest::new(&self.resource, self.owner.as_ref(), lease);
        let acquired = acquire(&self.redis, request, wait).await;
        acquired.map_err(|error| self.error(error))
    }

    async fn status(&self, holder: &str) -> Result<LockStatus, LockError> {
        self.call(&LOCK_LOOK, &[holder], LockStatus::read).await
    }

    async fn call<T>(
        &self,
        script: &'static Script,
        arguments: &[&str],
        read: fn(&Value) -> Option<T>,
    ) -> Result<T, LockError> {
        let (connection, keys) = (&self.resource.connection, &self.resource.keys);
        let reply = connection.call(script, &[&keys.name], |cmd: &mut Cmd| {
            cmd.arg(arguments);
        });
        let reply = reply.await;
        let reply = reply.and_then(|reply| self.resource.read(&reply, read));
        reply.map_err(|error| self.error(error))
    }

    fn error(&self, error: StoreError) -> LockError {
        of_store(&self.resource.keys.name, error)
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

/// A held lock, which is freed when this guard is [released](LockGuard::release) or dropped.
///
/// Dropping the guard queues the release immediately, before any later call of this process. A
/// background task sends it, and repeats it if it is not answered. If more than a thousand guards
/// are dropped at the same time, the last ones are released a moment later. Dropping never blocks
/// and never panics.
///
/// The task ends with its runtime, as at the end of `main`: what it has not released then stays
/// locked until the lease runs out, and a warning counts it. So the last guard is
/// [released](LockGuard::release), or `main` awaits [`Redis::flush`] behind its drop.
///
/// ```
/// use tidegate::Redis;
/// use tidegate::lock::Lock;
///
/// # async fn write(_: u64) {}
/// # async fn run(redis: &Redis) -> Result<(), tidegate::lock::LockError> {
/// if let Some(guard) = Lock::new(redis, "report").try_lock().await? {
///     // A resource that knows the last token refuses a holder that comes late.
///     write(guard.fencing_token()).await;
///     guard.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is freed as soon as the guard is dropped"]
pub struct LockGuard {
    held: Arc<HeldLease>,
    tasks: Arc<BackgroundTasks>,
    /// The task that renews the lease, unless it is fixed.
    renewals: Option<OwnedTask>,
    is_released: bool,
}

/// From one attempt to release to the next.
const PAUSE: Duration = Duration::from_millis(50);

impl LockGuard {
    /// The guard of a request that was sent at `sent` and granted.
    pub(super) fn new(
        tasks: &Arc<BackgroundTasks>,
        request: LeaseRequest,
        token: u64,
        sent: Instant,
    ) -> Self {
        let channel = tasks.channel(request.channel());
        Self {
            held: HeldLease::new(channel, request, token, sent),
            tasks: Arc::clone(tasks),
            renewals: None,
            is_released: false,
        }
    }

    /// Lets the lease be renewed.
    pub(super) fn with_renewal(mut self) -> Self {
        self.held.request.granted(self.held.token, None);
        self.renewals = Some(self.tasks.renew(&self.held));
        self
    }

    /// Frees the lock, or one of its owner's holds, and waits until Redis has done it.
    ///
    /// A call without a reply is repeated until the lease runs out, for at most 10 s; it counts
    /// once. If the future is dropped, or ends with an error, a background task goes on.
    ///
    /// # Errors
    ///
    /// [`LockError`] of the kind [`NotHeld`](super::LockErrorKind::NotHeld) if the lock had been
    /// lost: another holder may have had it at the same time. Of the kind
    /// [`Store`](super::LockErrorKind::Store) if Redis did not answer, or refused.
    pub async fn release(mut self) -> Result<(), LockError> {
        let until = self.held.end();
        let until = until.min(Instant::now() + LeaseRequest::MAX_RELEASE);
        let name = &self.held.request.resource.keys.name;
        loop {
            let reply = self.held.release(until).await;
            let was_held = reply.and_then(|reply| self.held.read(&reply));
            match was_held {
                Err(error) if is_transient(&error) && Instant::now() + PAUSE < until => {
                    sleep(PAUSE).await;
                }
                // Dropping the guard lets a background task try again.
                Err(error) => return Err(of_store(name, error)),
                Ok(was_held) => {
                    self.is_released = true;
                    let result = was_held.then_some(());
                    return result.ok_or_else(|| not_held(name));
                }
            }
        }
    }

    /// The fencing token: higher than the tokens of all earlier holders, so that the protected
    /// resource can refuse a holder that comes late. Overlapping guards of one owner share a
    /// token.
    ///
    /// The token is at least the microseconds since 1970 by Redis's clock. So it rises also after
    /// the lock has expired, and after Redis has lost its data, unless Redis's clock goes back at
    /// the same time.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.held.token
    }

    /// Whether the lease goes on, as far as this process knows. It does not ask Redis.
    ///
    /// The process may be paused right after this call. The
    /// [fencing token](LockGuard::fencing_token) protects against that.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.until().is_some()
    }

    /// Completes when the lease is over.
    ///
    /// It is over when it has run out, because it is fixed or because Redis could not be reached,
    /// when the lock was taken away, and when the guard is gone.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn run(guard: tidegate::lock::LockGuard) {
    /// tokio::select! {
    ///     () = work() => println!("done"),
    ///     () = guard.lost() => println!("another process may hold the lock by now"),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.held.over()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.renewals = None;
        if !self.is_released {
            let until = self.held.end();
            let release = Release::Held(Arc::clone(&self.held));
            self.tasks.release(release, until);
        }
    }
}

/// Why a call of a [`Lock`](super::Lock) or [`LockGuard`](super::LockGuard) failed. A lock that
/// is held by another holder is not an error.
///
/// ```
/// use tidegate::Redis;
/// use tidegate::lock::{Lock, LockErrorKind};
///
/// # async fn run(redis: &Redis) {
/// match Lock::new(redis, "report").try_lock().await {
///     Ok(Some(guard)) => drop(guard),
///     Ok(None) => println!("another process writes the report"),
///     Err(error) if error.kind() == LockErrorKind::NotHeld => println!("it was held for too
///     long"), Err(error) => println!("nobody knows: {error}"),
/// }
/// # }
/// ```
pub type LockError = KindError<LockErrorKind>;

/// The kinds of [`LockError`].
///
/// ```
/// use tidegate::lock::{LockError, LockErrorKind};
///
/// /// Whether Redis could not be asked.
/// fn is_outage(error: &LockError) -> bool {
///     matches!(error.kind(), LockErrorKind::Store(_))
/// }
/// # let _ = is_outage;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The lock was lost before it was released: its lease ran out, or it was taken away.
    NotHeld,
    /// The lease is shorter than [`Lock::MIN_LEASE`](super::Lock::MIN_LEASE), or longer than
    /// [`Lock::MAX_LEASE`](super::Lock::MAX_LEASE).
    Lease,
    /// Redis did not answer, or refused. If the lock may have been acquired without a reply, a
    /// background task releases it.
    Store(StoreErrorKind),
}

fn not_held(lock: &str) -> LockError {
    let message = format!("lock {lock:?}: it is no longer held");
    LockError::of(LockErrorKind::NotHeld, message)
}

fn impossible_lease(lock: &str, lease: Duration) -> LockError {
    let message = format!("lock {lock:?}: a lease of {lease:?}, expected 10 ms to 10 years");
    LockError::of(LockErrorKind::Lease, message)
}

pub(super) fn of_store(lock: &str, error: StoreError) -> LockError {
    let message = format!("lock {lock:?}: {error}");
    LockError::of(LockErrorKind::Store(error.kind()), message).with_source(error)
}

/// Whether the next call may succeed.
pub(super) fn is_transient(error: &StoreError) -> bool {
    use StoreErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Timeout | Kind::Unavailable | Kind::ReadOnly | Kind::Protocol
    )
}
