use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::channel::QueuedWaiter;
use super::held_lease::{BackgroundTasks, Release};
use super::lease_request::{LeaseReply, LeaseRequest};
use super::lock::{LockGuard, is_transient};
use super::wait_queue::{WaitQueue, WaiterInfo};
use crate::connection::Redis;
use crate::error::{StoreError, StoreErrorKind};

/// Acquires a lease, and waits for it up to `wait`, or without a bound as long as it takes. With
/// zero it makes one call. A call in progress at the end is awaited.
///
/// The first call is sent immediately, unless it is the turn of other processes that wait. A caller
/// that is denied sleeps; of all callers in this process, one at a time asks again.
pub(super) async fn acquire(
    redis: &Redis,
    request: LeaseRequest,
    wait: Option<Duration>,
) -> Result<Option<LockGuard>, StoreError> {
    let tries_once = wait == Some(Duration::ZERO);
    // A wait beyond the clock's range has no end.
    let until = wait.and_then(|wait| Instant::now().checked_add(wait));
    let tasks = BackgroundTasks::for_redis(redis);
    let channel = tasks.channel(request.channel());
    let info = WaiterInfo {
        owner: request.owner_number(),
        timeout: request.resource.connection.timeout(),
    };
    let waits_first = !tries_once && !request.is_nested() && channel.others_go_first(until);
    let join_asleep = || QueuedWaiter::new(&channel, info, WaitQueue::join_asleep);
    let mut queued = waits_first.then(join_asleep);
    let mut attempt = Attempt::new(&tasks, request);
    if let Some(queued) = &queued {
        // One call is made even if no time is left.
        queued.woken(until).await?;
    }
    let join = || QueuedWaiter::new(&channel, info, WaitQueue::join);
    loop {
        let queued = match attempt.call().await {
            Ok(Attempted::Granted(lease)) => {
                queued.iter().for_each(QueuedWaiter::answered);
                return Ok(Some(lease));
            }
            Ok(Attempted::Held { .. }) if tries_once => return Ok(None),
            Ok(Attempted::Held { ends_after }) => {
                let queued = queued.get_or_insert_with(join);
                queued.denied(ends_after);
                queued
            }
            Err(error) if !tries_once && is_transient(&error) => {
                let queued = queued.get_or_insert_with(join);
                attempt.start_anew();
                queued.failed(error);
                queued
            }
            Err(error) => return Err(error),
        };
        if !queued.woken(until).await? {
            return Ok(None);
        }
    }
}

/// A request for a lease, and whether Redis may have granted it without a reply. Dropping it then
/// gives the request up in the background.
struct Attempt<'a> {
    tasks: &'a Arc<BackgroundTasks>,
    request: Option<LeaseRequest>,
    may_be_granted: bool,
}

/// The result of one call.
enum Attempted {
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
    pub(super) async fn call(&mut self) -> Result<Attempted, StoreError> {
        let Some(request) = &self.request else {
            return Err(too_late());
        };
        let may_have_been = self.may_be_granted;
        let sent = Instant::now();
        let reply = request.acquire(&mut self.may_be_granted).await;
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
        let lease = LockGuard::new(self.tasks, request, token, sent);
        Ok(Attempted::Granted(lease))
    }

    /// Gives up the request if it may have been granted, and goes on with another one. Its caller
    /// sleeps before the next call, and must not keep the lock from others meanwhile.
    fn start_anew(&mut self) {
        if let Some(request) = self.request.take_if(|_| self.may_be_granted) {
            self.request = Some(request.new_request());
            self.may_be_granted = false;
            self.give_up(request);
        }
    }

    fn give_up(&self, request: LeaseRequest) {
        // Its lease begins when Redis receives it.
        let until = Instant::now() + request.lease;
        self.tasks.release(Release::MayBeGranted(request), until);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take().filter(|_| self.may_be_granted) {
            self.give_up(request);
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
