use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::background_tasks::BackgroundTasks;
use super::lease_request::LeaseRequest;
use super::lock_guard::LockGuard;
use super::reply::LeaseReply;
use crate::error::{StoreError, StoreErrorKind};

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
