use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::acquire_queue::{AcquireAnswer, AcquireQueue, PendingAcquire, PendingBatch};
use super::client::LimiterState;
use super::error::{LimiterError, LimiterErrorKind};
use super::limiter_backend::{
    AcquireCall, AcquireReply, AcquireRequest, Generation, Grant, GrantId, Limiters,
};
use crate::deadline::Deadline;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;
use crate::trace;

/// Asks for permits on behalf of all callers of this process with the same request, up to 64
/// callers in one call.
pub(super) struct Batcher {
    pub(super) request: AcquireRequest,
    limiters: Arc<dyn Limiters>,
    queue: Mutex<AcquireQueue>,
    /// Notified when denied callers may be asked for at another instant than before.
    retry_changed: Notify,
    /// Notified when a call has ended.
    call_ended: Notify,
    unused: Mutex<UnusedGrants>,
    state: Arc<LimiterState>,
}

/// Grants, and places in the fair queue, that no caller uses. A background task gives them back.
///
/// No caller is left to hear of an error. Permits that cannot be given back expire after the
/// interval.
#[derive(Default)]
struct UnusedGrants {
    grants: Vec<Grant>,
    has_task: bool,
}

/// The largest number of grants that are given back in one call.
const GIVE_BACK_BATCH: usize = 64;
/// How often a server that does not answer is asked to take grants back.
const GIVE_BACK_ATTEMPTS: u32 = 12;
/// From one attempt to the next.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(250);

impl Batcher {
    pub(super) fn new(
        request: &AcquireRequest,
        limiters: &Arc<dyn Limiters>,
        state: &Arc<LimiterState>,
    ) -> Self {
        Self {
            request: request.clone(),
            limiters: Arc::clone(limiters),
            queue: Mutex::default(),
            retry_changed: Notify::new(),
            call_ended: Notify::new(),
            unused: Mutex::default(),
            state: Arc::clone(state),
        }
    }

    /// Asks for this caller's permits.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        id: GrantId,
        until: Option<Instant>,
    ) -> Result<AcquireAnswer, LimiterError> {
        /// A runtime that ends drops its calls, including those of callers in other runtimes.
        const MAX_ATTEMPTS: usize = 4;
        for _ in 0..MAX_ATTEMPTS {
            let (pending, answer) = PendingAcquire::new(id, until);
            lock(&self.queue).add(pending);
            self.send_pending();
            match answer.await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        let ended = StoreError::new(StoreErrorKind::Unavailable, "the runtime has ended");
        Err(ended.into())
    }

    /// Lets all waiting callers ask again: the rate has changed, or permits were given back.
    pub(super) fn limiter_changed(self: &Arc<Self>) {
        lock(&self.queue).limiter_changed();
        self.send_pending();
    }

    /// A guard that gives back the grant of this caller. Grants of earlier generations cannot be
    /// given back.
    pub(super) fn guard(self: &Arc<Self>, id: GrantId, stamp: u64) -> GrantGuard {
        GrantGuard {
            batcher: Arc::clone(self),
            grant: Grant {
                id,
                stamp,
                permits: self.request.permits,
            },
            is_armed: self.request.generation == Generation::Third,
        }
    }

    /// Sends as many calls as may be in progress, and starts a timer for the callers that have to
    /// wait.
    ///
    /// A runtime that has ended drops immediately what it is given to run. The dropped task locks
    /// the queue, so the queue must not be locked here at that moment.
    fn send_pending(self: &Arc<Self>) {
        let runtime = match self.limiters.runtime() {
            Some(runtime) => Ok(runtime.clone()),
            None => Handle::try_current(),
        };
        let Ok(runtime) = runtime else {
            drop(lock(&self.queue).take_all());
            return;
        };
        loop {
            let next = lock(&self.queue).next_batch(self.request.is_fair);
            let Some((call, batch, changes)) = next else {
                break;
            };
            let task = Task::new(self, Some(call));
            runtime.spawn(task.run(Arc::clone(self).call(batch, changes)));
        }
        let needs_timer = lock(&self.queue).needs_timer();
        if needs_timer {
            let task = Task::new(self, None);
            runtime.spawn(task.run(Arc::clone(self).sleep_until_retry()));
        }
    }

    /// Makes one call. `changes` comes from [`AcquireQueue::next_batch`].
    async fn call(self: Arc<Self>, batch: PendingBatch, changes: u64) {
        let reply = match self.ask(&batch).await {
            Ok(reply) => reply,
            Err(error) => return self.fail(batch, &error),
        };
        lock(&self.queue).worked();
        if self.state.failures.worked() {
            let limiter = &*self.request.name;
            trace::event!(info: limiter, "the limiter is answered again");
        }
        if let Some(counted) = reply.redisson {
            lock(&self.state.redisson).add(counted, Instant::now());
        }
        let mut denied = Vec::new();
        for (index, pending) in batch.into_iter().enumerate() {
            if reply.granted.contains(&index) {
                let guard = self.guard(pending.id, reply.stamp);
                pending.answer(Ok(AcquireAnswer::Granted(guard)));
            } else {
                denied.push(pending);
            }
        }
        if !denied.is_empty() {
            self.deny(denied, reply.wait, changes);
        }
    }

    async fn ask(&self, batch: &PendingBatch) -> Result<AcquireReply, LimiterError> {
        let redisson_average = lock(&self.state.redisson).average(Instant::now());
        let call = AcquireCall {
            callers: batch.iter().map(|pending| pending.id).collect(),
            is_in_doubt: batch.iter().any(|pending| pending.is_in_doubt),
            redisson_average,
            chosen_at: None,
        };
        if !self.request.has_rate {
            return self.limiters.acquire(self.request.clone(), call).await;
        }
        let mut chosen_at = lock(&self.state.rate).as_ref().and_then(|it| it.chosen_at);
        if chosen_at.is_none() {
            chosen_at = self.set_own_rate().await?;
        }
        let first = AcquireCall {
            chosen_at,
            ..call.clone()
        };
        match self.limiters.acquire(self.request.clone(), first).await {
            Err(error) if error.kind() == LimiterErrorKind::UnknownLimiter => {
                let chosen_at = self.set_own_rate().await?;
                let again = AcquireCall { chosen_at, ..call };
                self.limiters.acquire(self.request.clone(), again).await
            }
            answer => answer,
        }
    }

    /// Sets the rate that this process chose, and returns when it chose it.
    async fn set_own_rate(&self) -> Result<Option<u64>, LimiterError> {
        let Some(choice) = lock(&self.state.rate).clone() else {
            return Ok(None);
        };
        let (request, own) = (&self.request, &choice.own);
        let (name, generation, mode) = (&request.name, request.generation, choice.mode());
        let set = self
            .limiters
            .set_rate(name, own.rate, own.sharing, generation, mode);
        let chosen_at = set.await?;
        if let Some(current) = &mut *lock(&self.state.rate)
            && current.is_same_as(&choice)
        {
            current.chosen_at = chosen_at;
        }
        self.state.notify_waiters();
        Ok(chosen_at)
    }

    /// All pending callers hear of the error immediately, or wait for a better answer. Otherwise
    /// thousands of callers would run into a timeout one batch after the other.
    fn fail(self: &Arc<Self>, mut batch: PendingBatch, error: &LimiterError) {
        for pending in &mut batch {
            pending.is_in_doubt |= error.kind().is_of_store();
        }
        let mut queue = lock(&self.queue);
        let is_lost = error.kind() == LimiterErrorKind::UnknownLimiter && self.request.has_rate;
        if error.kind().may_pass() || is_lost {
            let have_left = queue.fail(batch, error);
            drop(queue);
            // Such a caller may have been granted its permits after it had given them back.
            have_left.into_iter().for_each(|id| drop(self.guard(id, 0)));
            self.retry_changed.notify_one();
            if self.state.failures.failed() {
                let (limiter, error) = (&*self.request.name, error.to_string());
                trace::event!(warn: limiter, error, "the limiter's callers wait and ask again");
            }
            return;
        }
        let others = queue.take_all();
        drop(queue);
        for pending in batch.into_iter().chain(others) {
            pending.answer(Err(error.clone()));
        }
    }

    /// The error of the latest call, if callers ask again after it.
    pub(super) fn failure(&self) -> Option<LimiterError> {
        lock(&self.queue).failure()
    }

    fn deny(self: &Arc<Self>, batch: PendingBatch, wait: Duration, changes: u64) {
        let is_fair = self.request.is_fair;
        let have_left = lock(&self.queue).deny(batch, wait, changes, is_fair);
        // The call may have put a caller into the fair queue after that caller had left.
        if is_fair {
            have_left.into_iter().for_each(|id| drop(self.guard(id, 0)));
        }
        self.retry_changed.notify_one();
    }

    /// Adds a grant that no caller uses, and starts the task if none runs.
    fn give_back(self: &Arc<Self>, grant: Grant) {
        let mut unused = lock(&self.unused);
        unused.grants.push(grant);
        let has_task = std::mem::replace(&mut unused.has_task, true);
        drop(unused);
        if has_task {
            return;
        }
        let give_back = Arc::clone(self).give_back_all();
        self.limiters.run_unawaited(give_back.boxed());
    }

    async fn give_back_all(self: Arc<Self>) {
        while let Some(grants) = self.next_unused() {
            // Without a server, nothing that was granted outlives the process.
            if self.limiters.runtime().is_some() {
                self.calls_have_ended().await;
            }
            self.give_back_batch(grants).await;
        }
    }

    /// Waits for the calls that have been begun: one that was overtaken would grant what was given
    /// back before.
    async fn calls_have_ended(&self) {
        let last = lock(&self.queue).last_call();
        loop {
            let ended = self.call_ended.notified();
            if lock(&self.queue).has_ended(last) {
                return;
            }
            ended.await;
        }
    }

    async fn give_back_batch(&self, grants: Vec<Grant>) {
        let AcquireRequest { name, is_fair, .. } = &self.request;
        for _ in 0..GIVE_BACK_ATTEMPTS {
            let given_back = self.limiters.give_back(Arc::clone(name), grants.clone());
            match given_back.await {
                Err(error) if error.kind().is_of_store() => sleep(GIVE_BACK_PAUSE).await,
                // A place in the fair queue that is given up belongs to the next caller.
                Ok(permits) if permits > 0 || *is_fair => return self.state.notify_waiters(),
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The grants of the task's next call. `None` ends the task; a grant that is added later starts
    /// another one.
    fn next_unused(&self) -> Option<Vec<Grant>> {
        let mut unused = lock(&self.unused);
        let from = unused.grants.len().saturating_sub(GIVE_BACK_BATCH);
        let batch = unused.grants.split_off(from);
        unused.has_task = !batch.is_empty();
        unused.has_task.then_some(batch)
    }

    async fn sleep_until_retry(self: Arc<Self>) {
        loop {
            let retry_at = lock(&self.queue).retry_at();
            let Some(retry_at) = retry_at else {
                return;
            };
            tokio::select! {
                () = sleep_until(retry_at) => {}
                () = self.retry_changed.notified() => {}
            }
        }
    }
}

/// A background task of a batcher. When it ends, the queue learns of it, and pending calls are
/// sent.
///
/// A task that is dropped before its end says that its runtime has ended. Then the pending callers
/// are dropped from the queue, and [`Batcher::acquire`] asks for them again.
struct Task {
    batcher: Arc<Batcher>,
    /// The number of the call that it makes; `None` for the timer.
    call: Option<u64>,
    is_complete: bool,
}

impl Task {
    fn new(batcher: &Arc<Batcher>, call: Option<u64>) -> Self {
        Self {
            batcher: Arc::clone(batcher),
            call,
            is_complete: false,
        }
    }

    async fn run(mut self, work: impl Future<Output = ()>) {
        work.await;
        self.is_complete = true;
        let batcher = Arc::clone(&self.batcher);
        drop(self);
        batcher.send_pending();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let mut queue = lock(&self.batcher.queue);
        match self.call {
            Some(call) => queue.call_ended(call),
            None => queue.timer_ended(),
        }
        let dropped = (!self.is_complete).then(|| queue.take_all());
        drop(queue);
        self.batcher.call_ended.notify_waiters();
        drop(dropped);
    }
}

/// Gives a grant back when it is dropped, unless it was disarmed.
///
/// The grant may also be one that the caller has not heard of, or its place in the fair queue.
pub(super) struct GrantGuard {
    batcher: Arc<Batcher>,
    pub(super) grant: Grant,
    is_armed: bool,
}

impl GrantGuard {
    /// The grant is used, or was never made: dropping the guard does nothing.
    pub(super) fn disarm(mut self) -> Self {
        self.is_armed = false;
        self
    }

    /// Gives the grant back, and returns how many permits came back. Without an answer, and if the
    /// future is dropped, it is given back in the background.
    pub(super) async fn release(mut self) -> Result<u64, LimiterError> {
        let batcher = Arc::clone(&self.batcher);
        let (limiters, request) = (&batcher.limiters, &batcher.request);
        if request.generation != Generation::Third {
            return Ok(0);
        }
        self.is_armed = true;
        let deadline = Deadline::after(limiters.timeout());
        let released = limiters.give_back(Arc::clone(&request.name), vec![self.grant]);
        let released = deadline.wait_for(released).await;
        let released = released.unwrap_or_else(|| Err(deadline.missed(&request.name).into()));
        self.is_armed &= matches!(&released, Err(error) if error.kind().is_of_store());
        if !matches!(released, Ok(0)) {
            batcher.state.notify_waiters();
        }
        match released {
            // The limiter was deleted, so none of its grants count.
            Err(error) if error.kind() == LimiterErrorKind::UnknownLimiter => Ok(0),
            released => released,
        }
    }
}

impl fmt::Debug for GrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.grant.fmt(f)
    }
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        if self.is_armed {
            self.batcher.give_back(self.grant);
        }
    }
}
