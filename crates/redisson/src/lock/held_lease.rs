use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::channel::LockChannel;
use super::lease_request::LeaseRequest;
use super::scripts::OF_LOCKS;
use crate::connection::{Connection, Redis, ReplyFuture, Subscriber};
use crate::error::{StoreError, StoreErrorKind};
use crate::swept_map::SweptMap;
use crate::sync::{OwnedTask, lock};

/// How often the watchdog renews a lease before it would end: whenever a third has passed.
const RENEWALS_PER_LEASE: u32 = 3;

/// After a renewal that failed, the watchdog asks again when this part of a lease has passed.
const ATTEMPTS_PER_LEASE: u32 = 12;

/// A lease that was granted, shared by its guard and the watchdog.
pub(super) struct HeldLease {
    pub(super) request: LeaseRequest,
    /// The fencing token.
    pub(super) token: u64,
    state: watch::Sender<LeaseState>,
    /// When the request was sent.
    acquired: Instant,
    /// For other callers of this process that wait for the lock.
    channel: Arc<LockChannel>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// Held until this instant: one lease from before the last successful call was sent.
    Until(Instant),
    Lost,
    /// The guard has ended the lease. Until this instant Redis may still hold it.
    Ended(Instant),
}

impl HeldLease {
    pub(super) fn new(
        channel: Arc<LockChannel>,
        request: LeaseRequest,
        token: u64,
        sent: Instant,
    ) -> Arc<Self> {
        let until = sent + request.lease;
        request.granted(token, Some(until));
        channel.acquired(request.owner_number());
        Arc::new(Self {
            request,
            token,
            state: watch::Sender::new(LeaseState::Until(until)),
            acquired: sent,
            channel,
        })
    }

    /// When the lease runs out; `None` if it is over.
    pub(super) fn until(&self) -> Option<Instant> {
        match *self.state.borrow() {
            LeaseState::Until(until) if Instant::now() < until => Some(until),
            _ => None,
        }
    }

    /// Completes when the lease has run out, is lost, or was ended.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut state = self.state.subscribe();
        async move {
            loop {
                let LeaseState::Until(until) = *state.borrow_and_update() else {
                    return;
                };
                tokio::select! {
                    biased;
                    changed = state.changed() => if changed.is_err() { return },
                    () = sleep_until(until) => return,
                }
            }
        }
    }

    /// Ends the renewals. Returns the instant at which the lease runs out.
    pub(super) fn end(&self) -> Instant {
        let mut until = Instant::now();
        self.state.send_modify(|state| {
            if let LeaseState::Until(at) | LeaseState::Ended(at) = *state {
                until = at;
            }
            *state = LeaseState::Ended(until);
        });
        until
    }

    /// When to renew the lease next: a third of the lease after the last call. `None` if the lease
    /// is over.
    fn next_renewal(&self) -> Option<Instant> {
        let lease = self.request.lease;
        Some(self.until()? - (lease - lease / RENEWALS_PER_LEASE))
    }

    /// Renews the lease. Returns when to renew it again; `None` if it is over.
    pub(super) async fn renew(&self) -> Option<Instant> {
        let Some(until) = self.until() else {
            self.set_state(LeaseState::Lost);
            return None;
        };
        let sent = Instant::now();
        match timeout_at(until, self.request.renew(self.token, until)).await {
            Ok(Ok(true)) => {
                self.set_state(LeaseState::Until(sent + self.request.lease));
                self.next_renewal()
            }
            // Several more attempts fit into the lease. The guard notices its end by itself.
            Ok(Err(_)) => {
                Some((Instant::now() + self.request.lease / ATTEMPTS_PER_LEASE).min(until))
            }
            Ok(Ok(false)) | Err(_) => {
                self.set_state(LeaseState::Lost);
                None
            }
        }
    }

    /// Sends the release before its reply is awaited, and wakes the next caller of this process:
    /// its call follows the release on the same connection. [`read`](Self::read) reads the reply,
    /// which is awaited until the lease ends, or this instant.
    pub(super) fn release(&self, until: Instant) -> ReplyFuture<Value> {
        let until = self.end().min(until);
        let reply = self.request.release(Some(self.token), until);
        if self.request.is_nested() {
            self.channel.wake_one()
        } else {
            self.channel.release_sent()
        }
        reply
    }

    /// Reads the reply to the release. Returns whether the lease was still held.
    pub(super) fn read(&self, reply: &Value) -> Result<bool, StoreError> {
        let reply = self.request.read_release(reply)?;
        if let Some(listeners) = reply.listeners {
            self.channel.released(listeners, self.acquired);
        }
        Ok(reply.was_held)
    }

    /// Does nothing once the guard has ended the lease.
    fn set_state(&self, to: LeaseState) {
        self.state.send_if_modified(|state| {
            let is_active = matches!(*state, LeaseState::Until(_));
            if is_active {
                *state = to;
            }
            is_active
        });
    }
}

/// The number of renewals and releases in progress: enough to renew ten thousand leases in a
/// fraction of a second, and few beside the other calls on the connection.
const MAX_CALLS: usize = 64;
/// The number of releases that are sent when their guards are dropped. The rest wait for their
/// turn, because other calls need room in the connection's queue.
const MAX_SENT: usize = 1_024;
/// From the first attempt to release to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The tasks that serve all locks of one `Redis` handle and its clones. They run in the runtime of
/// the connection.
pub(super) struct BackgroundTasks {
    connection: Connection,
    channels: Mutex<SweptMap<Box<str>, Arc<LockChannel>>>,
    subscriber: Arc<Subscriber>,
    /// Permits for [`MAX_CALLS`] calls.
    calls: Arc<Semaphore>,
    /// Permits for [`MAX_SENT`] releases.
    may_send: Arc<Semaphore>,
}

impl BackgroundTasks {
    /// The tasks of this handle. The first call starts the one that hears of releases.
    pub(super) fn for_redis(redis: &Redis) -> Arc<Self> {
        redis.keep(|connection| {
            connection.preload(OF_LOCKS);
            Self {
                connection: connection.clone(),
                channels: Mutex::default(),
                subscriber: Arc::new(Subscriber::new(connection)),
                calls: Arc::new(Semaphore::new(MAX_CALLS)),
                may_send: Arc::new(Semaphore::new(MAX_SENT)),
            }
        })
    }

    /// The channel with this name, as long as it is in use.
    pub(super) fn channel(&self, name: &str) -> Arc<LockChannel> {
        let mut channels = lock(&self.channels);
        if let Some(channel) = channels.get(name) {
            return Arc::clone(channel);
        }
        channels.sweep(|channel| Arc::strong_count(channel) > 1 || channel.had_others());
        let channel = LockChannel::new(name, &self.subscriber);
        channels.insert(name.into(), Arc::clone(&channel));
        channel
    }

    /// Renews the lease until it is over, or until the task is dropped.
    pub(super) fn renew(&self, held: &Arc<HeldLease>) -> OwnedTask {
        let (held, calls) = (Arc::clone(held), Arc::clone(&self.calls));
        let renewals = async move {
            let mut due = held.next_renewal();
            while let Some(at) = due {
                sleep_until(at).await;
                let _permit = calls.acquire().await;
                due = held.renew().await;
            }
        };
        OwnedTask(self.connection.runtime().spawn(renewals).abort_handle())
    }

    /// Releases this, with repeated attempts until the lease runs out at `until`. The first call is
    /// sent at once, before all later calls of this process.
    pub(super) fn release(&self, release: Release, until: Instant) {
        let (sent, calls) = (self.send(&release, until), Arc::clone(&self.calls));
        let release = release.repeat(sent, until, calls);
        self.connection.run_unawaited(|call| call.until(release));
    }

    /// Returns `None` if the thread ends, or if too many releases have been sent.
    fn send(&self, release: &Release, until: Instant) -> Option<SentRelease> {
        let current = Handle::try_current();
        if current.is_err_and(|error| error.is_thread_local_destroyed()) {
            return None;
        }
        let permit = Arc::clone(&self.may_send).try_acquire_owned().ok()?;
        let _runtime = self.connection.runtime().enter();
        Some((release.send(until), permit))
    }
}

/// A release under way, and its permit.
type SentRelease = (ReplyFuture<Value>, OwnedSemaphorePermit);

/// A release that no caller waits for.
pub(super) enum Release {
    Held(Arc<HeldLease>),
    /// A request that may have been granted without a reply. It may still arrive.
    MayBeGranted(LeaseRequest),
}

impl Release {
    /// Calls until Redis has answered, or until the lease runs out by itself.
    async fn repeat(self, mut sent: Option<SentRelease>, until: Instant, calls: Arc<Semaphore>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let (reply, permit) = match sent.take() {
                Some((reply, permit)) => (reply, Ok(permit)),
                None => {
                    let permit = Arc::clone(&calls).acquire_owned().await;
                    (self.send(until), permit)
                }
            };
            // A late call is still made: the lease in Redis ends a bit later than here.
            let give_up_at = until.max(Instant::now() + MAX_PAUSE);
            let reply = timeout_at(give_up_at, reply).await;
            drop(permit);
            let next_attempt = Instant::now() + pause;
            let is_done = reply.is_ok_and(|reply| match reply.and_then(|it| self.read(&it)) {
                Ok(_) => true,
                // The key holds something else by now.
                Err(error) => error.kind() == StoreErrorKind::WrongType,
            });
            if is_done || next_attempt >= until {
                return;
            }
            sleep_until(next_attempt).await;
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    fn send(&self, until: Instant) -> ReplyFuture<Value> {
        match self {
            Self::Held(held) => held.release(until),
            Self::MayBeGranted(request) => request.release(None, until),
        }
    }

    fn read(&self, reply: &Value) -> Result<bool, StoreError> {
        match self {
            Self::Held(held) => held.read(reply),
            Self::MayBeGranted(request) => Ok(request.read_release(reply)?.was_held),
        }
    }
}
