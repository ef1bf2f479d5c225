use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::background_tasks::BackgroundTasks;
use super::lease_request::{LeaseReply, LeaseRequest};
use super::lock::LockGuard;
use super::owner::unique_number;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// The holds of one owner on all locks, by number, including those that it has asked for. Redis
/// stores only their count and one expiry.
#[derive(Debug, Default)]
pub(super) struct OwnerHolds(Mutex<BTreeMap<u64, HoldEntry>>);

#[derive(Debug)]
struct HoldEntry {
    lock: Arc<str>,
    lease: Duration,
    /// `None` until Redis has granted the hold.
    token: Option<u64>,
    /// When the lease ends; `None` if it is renewed.
    until: Option<Instant>,
}

/// One hold of an owner, from before it is asked for until it is released or dropped.
#[derive(Debug)]
pub(super) struct Hold {
    number: u64,
    lock: Arc<str>,
    holds: Arc<OwnerHolds>,
}

/// The other holds that an owner has on the same lock when one hold is renewed or released.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherHolds {
    /// Whether all of them have the fencing token of this hold. If not, the lock was lost and
    /// acquired again, or may have been.
    pub(super) have_same_token: bool,
    /// How long they need the lock; `None` if there are none.
    pub(super) needed_for: Option<Duration>,
}

impl OtherHolds {
    pub(super) const NONE: Self = Self {
        have_same_token: true,
        needed_for: None,
    };
}

impl Hold {
    /// `name` is that of the lock, distinct in this process.
    pub(super) fn new(holds: &Arc<OwnerHolds>, name: Arc<str>, lease: Duration) -> Self {
        let hold = Self {
            number: unique_number(),
            lock: Arc::clone(&name),
            holds: Arc::clone(holds),
        };
        let entry = HoldEntry {
            lock: name,
            lease,
            token: None,
            until: None,
        };
        lock(&holds.0).insert(hold.number, entry);
        hold
    }

    /// Whether the owner has other holds on the same lock.
    pub(super) fn is_nested(&self) -> bool {
        let entries = lock(&self.holds.0);
        let mut others = entries.iter().filter(|(number, _)| **number != self.number);
        others.any(|(_, other)| other.lock == self.lock && other.token.is_some())
    }

    /// Notes that Redis has granted the hold, until an instant or for as long as it is renewed.
    pub(super) fn granted(&self, token: u64, until: Option<Instant>) {
        if let Some(entry) = lock(&self.holds.0).get_mut(&self.number) {
            (entry.token, entry.until) = (Some(token), until);
        }
    }

    /// Notes that the hold is being released. Returns whether this is the first release.
    pub(super) fn end(&self) -> bool {
        lock(&self.holds.0).remove(&self.number).is_some()
    }

    /// Sends a call about this hold, which has this token if it was granted.
    ///
    /// The owner cannot begin another request meanwhile. So Redis never receives the call after a
    /// request that `send` did not know of.
    pub(super) fn with_others<T>(
        &self,
        token: Option<u64>,
        send: impl FnOnce(OtherHolds) -> T,
    ) -> T {
        let entries = lock(&self.holds.0);
        let others = entries.iter().filter(|(number, other)| {
            let counts = token.is_none() || other.token.is_none() || other.token >= token;
            **number != self.number && other.lock == self.lock && counts
        });
        let mut all = OtherHolds::NONE;
        for (_, other) in others {
            all.have_same_token &= token.is_some() && other.token == token;
            all.needed_for = all.needed_for.max(Some(other.needed_for()));
        }
        send(all)
    }
}

impl HoldEntry {
    /// How long the hold needs the lock from now on.
    fn needed_for(&self) -> Duration {
        let remaining = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map_or(self.lease, remaining)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.holds.0).remove(&self.number);
    }
}

/// A request for a lease, and whether Redis may have granted it without a reply. Dropping it then
/// gives the request up in the background.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    tasks: &'a Arc<BackgroundTasks>,
    request: Option<LeaseRequest>,
    may_be_granted: bool,
}

/// The result of one call.
pub(super) enum Attempted {
    Granted(LockGuard),
    /// Another holder has the lock. Its lease ends after this time; `None` if it never ends.
    Held {
        ends_after: Option<Duration>,
    },
}

impl<'a> Attempt<'a> {
    pub(super) fn new(tasks: &'a Arc<BackgroundTasks>, request: LeaseRequest) -> Self {
        Self {
            tasks,
            request: Some(request),
            may_be_granted: false,
        }
    }

    /// Makes one call.
    pub(super) async fn ask(&mut self) -> Result<Attempted, StoreError> {
        let Some(request) = &self.request else {
            return Err(too_late());
        };
        let may_have_been = std::mem::replace(&mut self.may_be_granted, true);
        let sent = Instant::now();
        let reply = request.acquire().await;
        if reply.as_ref().is_err_and(is_refusal) {
            self.may_be_granted = may_have_been;
        }
        let token = match reply? {
            LeaseReply::Granted { token } => token,
            LeaseReply::Held { ends_after } => {
                // An earlier call may still arrive.
                self.may_be_granted = may_have_been;
                return Ok(Attempted::Held { ends_after });
            }
            LeaseReply::GivenUp => return Err(too_late()),
        };
        if sent.elapsed() >= request.lease {
            return Err(too_late());
        }
        self.may_be_granted = false;
        let request = self.request.take().ok_or_else(too_late)?;
        if let Some(owner) = request.owner_number() {
            self.tasks.channels.wake_owner(request.channel(), owner);
        }
        let lease = LockGuard::new(self.tasks, request, token, sent);
        Ok(Attempted::Granted(lease))
    }

    /// Gives up the request if it may have been granted, and goes on with another one. Its caller
    /// sleeps before the next call, and must not keep the lock from others meanwhile.
    pub(super) fn start_anew(&mut self) {
        if let Some(request) = self.request.take_if(|_| self.may_be_granted) {
            self.request = Some(request.new_request());
            self.may_be_granted = false;
            self.tasks.give_up(request);
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take().filter(|_| self.may_be_granted) {
            self.tasks.give_up(request);
        }
    }
}

/// Whether the error says that nothing was granted.
fn is_refusal(error: &StoreError) -> bool {
    use StoreErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::WrongType | Kind::Refused | Kind::ReadOnly | Kind::OutOfMemory
    )
}

/// The reply came, but the lease that it grants is over.
fn too_late() -> StoreError {
    StoreError::new(
        StoreErrorKind::Timeout,
        "the lease ran out before the answer came",
    )
}
