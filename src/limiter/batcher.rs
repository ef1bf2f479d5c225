use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::acquire_queue::{AcquireAnswer, AcquireQueue, PendingAcquire, PendingBatch};
use super::client::LimiterState;
use super::error::{LimiterError, LimiterErrorKind};
use super::give_back_queue::GiveBackQueue;
use super::limiter_backend::{
    AcquireCall, AcquireReply, AcquireRequest, Generation, Grant, GrantId, Limiters,
};
use super::rate_choice::Chosen;
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
    give_back: Arc<GiveBackQueue>,
    state: Arc<LimiterState>,
}

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
            give_back: GiveBackQueue::new(limiters, request, state),
            state: Arc::clone(state),
        }
    }

    /// Returns the number of a new caller.
    pub(super) fn next_arrival(&self) -> u64 {
        lock(&self.queue).next_arrival()
    }

    /// Asks for this caller's permits.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        arrival: u64,
        id: GrantId,
        until: Option<Instant>,
    ) -> Result<AcquireAnswer, LimiterError> {
        /// A runtime that ends drops its calls, including those of callers in other runtimes.
        const MAX_ATTEMPTS: usize = 4;
        for _ in 0..MAX_ATTEMPTS {
            let (pending, answer) = PendingAcquire::new(id, until);
            lock(&self.queue).add(arrival, pending);
            self.send_pending();
            match answer.await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        Err(LimiterError::runtime_ended())
    }

    /// Lets all waiting callers ask again: the rate has changed, or permits were given back.
    pub(super) fn limiter_changed(self: &Arc<Self>) {
        lock(&self.queue).limiter_changed();
        self.send_pending();
    }

    /// A guard that gives back the grant of this caller. Grants of earlier generations cannot be
    /// given back.
    pub(super) fn guard(&self, id: GrantId, stamp: u64) -> GrantGuard {
        let grant = Grant {
            id,
            stamp,
            permits: self.request.permits,
        };
        let can_give_back = self.request.generation == Generation::Third;
        GrantGuard::new(&self.give_back, grant, can_give_back)
    }

    /// Sends as many calls as may be in progress, and starts a timer for the callers that have to
    /// wait.
    ///
    /// A runtime that has ended drops at once what it is given to run. The dropped task locks the
    /// queue, so the queue must not be locked here at that moment.
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
            let Some((batch, changes)) = next else {
                break;
            };
            let task = Task::new(self, AcquireQueue::call_ended);
            runtime.spawn(task.run(Arc::clone(self).call(batch, changes)));
        }
        let needs_timer = lock(&self.queue).needs_timer();
        if needs_timer {
            let task = Task::new(self, AcquireQueue::timer_ended);
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
            trace::event!(warn: limiter, "the limiter is answered again");
        }
        if let Some(counted) = reply.redisson {
            lock(&self.state.redisson).add(counted, Instant::now());
        }
        let mut denied = Vec::new();
        for (index, (arrival, pending)) in batch.into_iter().enumerate() {
            if reply.granted.contains(&index) {
                let guard = self.guard(pending.id, reply.stamp);
                pending.answer(Ok(AcquireAnswer::Granted(guard)));
            } else {
                denied.push((arrival, pending));
            }
        }
        if !denied.is_empty() {
            self.deny(denied, reply.wait, changes);
        }
    }

    async fn ask(&self, batch: &PendingBatch) -> Result<AcquireReply, LimiterError> {
        let redisson_average = lock(&self.state.redisson).average(Instant::now());
        let call = AcquireCall {
            callers: batch.iter().map(|(_, pending)| pending.id).collect(),
            is_in_doubt: batch.iter().any(|(_, pending)| pending.is_in_doubt),
            redisson_average,
            chosen_at: None,
        };
        if !self.request.has_rate {
            return self.limiters.acquire(self.request.clone(), call).await;
        }
        let chosen = lock(&self.state.rate).get().map(|rate| rate.chosen);
        let chosen_at = match chosen {
            Some(Chosen::At(at)) => Some(at),
            _ => self.ensure_rate().await?,
        };
        let first = AcquireCall {
            chosen_at,
            ..call.clone()
        };
        match self.limiters.acquire(self.request.clone(), first).await {
            Err(error) if error.kind() == LimiterErrorKind::UnknownLimiter => {
                let chosen_at = self.ensure_rate().await?;
                let again = AcquireCall { chosen_at, ..call };
                self.limiters.acquire(self.request.clone(), again).await
            }
            answer => answer,
        }
    }

    /// Sets the rate that this process chose, and returns when it chose it.
    async fn ensure_rate(&self) -> Result<Option<u64>, LimiterError> {
        let Some(chosen) = lock(&self.state.rate).get() else {
            return Ok(None);
        };
        let chosen_at = self.limiters.ensure(&self.request.name, chosen).await?;
        lock(&self.state.rate).is_known(&chosen, chosen_at);
        self.state.notify_waiters();
        Ok(Some(chosen_at))
    }

    /// All pending callers hear of the error at once, or wait for a better answer. Otherwise
    /// thousands of callers would run into a timeout one batch after the other.
    fn fail(&self, mut batch: PendingBatch, error: &LimiterError) {
        for (_, pending) in &mut batch {
            pending.is_in_doubt |= error.is_store_error();
        }
        let mut queue = lock(&self.queue);
        let is_lost = error.kind() == LimiterErrorKind::UnknownLimiter && self.request.has_rate;
        if error.may_pass() || is_lost {
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
        for (_, pending) in batch.into_iter().chain(others) {
            pending.answer(Err(error.clone()));
        }
    }

    /// The error of the latest call, if callers ask again after it.
    pub(super) fn failure(&self) -> Option<LimiterError> {
        lock(&self.queue).failure()
    }

    fn deny(&self, batch: PendingBatch, wait: Duration, changes: u64) {
        let is_fair = self.request.is_fair;
        let have_left = lock(&self.queue).deny(batch, wait, changes, is_fair);
        // The call may have put a caller into the fair queue after that caller had left.
        if is_fair {
            have_left.into_iter().for_each(|id| drop(self.guard(id, 0)));
        }
        self.retry_changed.notify_one();
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

/// A background task of a batcher. When it ends, the queue is told, and pending calls are sent.
///
/// A task that is dropped before its end says that its runtime has ended. Then the pending callers
/// are dropped from the queue, and [`Batcher::acquire`] asks for them again.
struct Task {
    batcher: Arc<Batcher>,
    tell_queue: fn(&mut AcquireQueue),
    is_complete: bool,
}

impl Task {
    fn new(batcher: &Arc<Batcher>, tell_queue: fn(&mut AcquireQueue)) -> Self {
        Self {
            batcher: Arc::clone(batcher),
            tell_queue,
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
        (self.tell_queue)(&mut queue);
        let dropped = (!self.is_complete).then(|| queue.take_all());
        drop(queue);
        drop(dropped);
    }
}

/// Gives a grant back when it is dropped, unless it was disarmed.
///
/// The grant may also be one that the caller has not heard of, or its place in the fair queue.
pub(super) struct GrantGuard {
    give_back: Arc<GiveBackQueue>,
    grant: Grant,
    is_armed: bool,
}

impl GrantGuard {
    pub(super) fn new(give_back: &Arc<GiveBackQueue>, grant: Grant, is_armed: bool) -> Self {
        Self {
            give_back: Arc::clone(give_back),
            grant,
            is_armed,
        }
    }

    /// The grant is used, or was never made: dropping the guard does nothing.
    pub(super) fn disarm(&mut self) -> Grant {
        self.is_armed = false;
        self.grant
    }
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        if self.is_armed {
            self.give_back.add(self.grant);
        }
    }
}
