use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batcher::GrantGuard;
use super::error::LimiterError;
use super::limiter_backend::GrantId;
use crate::jitter;

/// The largest number of callers in one call, which then takes the server about 100 us.
const MAX_BATCH: usize = 64;
/// The number of calls in progress with callers that ask for the first time; there are more only
/// for full batches. Retries are sent in one call at a time.
const MAX_CALLS: usize = 2;
/// From this number of waiting callers on, they are asked for at most every
/// [`MIN_PAUSE_OF_MANY`], so that permits that come back one by one are granted in one call.
const MANY_RETRIES: usize = 128;
const MIN_PAUSE_OF_MANY: Duration = Duration::from_millis(10);
/// The server counts in milliseconds.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// After a call that failed, the pauses double from the first to the last of these.
const FAILURE_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The callers of one [`Batcher`](super::batcher::Batcher) that wait for a call, in the order of
/// their arrival: a client counts up the ids of its grants.
#[derive(Default)]
pub(super) struct AcquireQueue {
    /// The callers that were denied before, or whose call failed.
    retries: BTreeMap<GrantId, PendingAcquire>,
    /// The callers that ask for the first time.
    firsts: BTreeMap<GrantId, PendingAcquire>,
    /// No retry is sent before this instant.
    retry_at: Option<Instant>,
    /// Whether a task sleeps until `retry_at`.
    has_timer: bool,
    /// The numbers of the calls in progress, in the order in which they were begun.
    calls: BTreeSet<u64>,
    last_call: u64,
    /// How often the limiter has changed. A denial from before the latest change is out of date.
    changes: u64,
    /// The error of the latest call, if callers ask again after it.
    failure: Option<LimiterError>,
    /// How long the callers pause after the next such error.
    failure_pause: Duration,
}

/// A caller that waits for a call.
pub(super) struct PendingAcquire {
    pub(super) id: GrantId,
    /// The caller's deadline; `None` if it waits as long as it takes.
    until: Option<Instant>,
    is_retry: bool,
    /// Whether a call whose reply was lost may have granted the permits.
    pub(super) is_in_doubt: bool,
    answer: oneshot::Sender<Result<AcquireAnswer, LimiterError>>,
}

pub(super) type AnswerReceiver = oneshot::Receiver<Result<AcquireAnswer, LimiterError>>;

pub(super) type PendingBatch = Vec<PendingAcquire>;

pub(super) enum AcquireAnswer {
    /// Dropping the guard gives the permits back.
    Granted(GrantGuard),
    /// The permits cannot be granted before `wait` has passed, or the call failed. If the caller's
    /// deadline is later, the queue asks again for it, and `retry` receives the answer.
    Denied {
        wait: Duration,
        retry: Option<AnswerReceiver>,
    },
}

impl PendingAcquire {
    pub(super) fn new(id: GrantId, until: Option<Instant>) -> (Self, AnswerReceiver) {
        let (sender, receiver) = oneshot::channel();
        let pending = Self {
            id,
            until,
            is_retry: false,
            is_in_doubt: false,
            answer: sender,
        };
        (pending, receiver)
    }

    pub(super) fn answer(self, answer: Result<AcquireAnswer, LimiterError>) {
        // Sending fails if the caller has left.
        let _ = self.answer.send(answer);
    }

    fn may_wait(&self, wait: Duration) -> bool {
        self.until
            .is_none_or(|until| until.saturating_duration_since(Instant::now()) >= wait)
    }

    fn has_left(&self) -> bool {
        self.answer.is_closed()
    }
}

impl AcquireQueue {
    pub(super) fn add(&mut self, pending: PendingAcquire) {
        self.firsts.insert(pending.id, pending);
    }

    pub(super) fn limiter_changed(&mut self) {
        self.changes += 1;
        self.retry_at = None;
    }

    /// Begins a call: returns its number, its callers, and the number of changes for
    /// [`deny`](Self::deny).
    pub(super) fn next_batch(&mut self, is_fair: bool) -> Option<(u64, PendingBatch, u64)> {
        let max_calls = match self.firsts.len() {
            // Fair callers reach the server in the order of their arrival.
            _ if is_fair => 1,
            0 => 1,
            MAX_BATCH.. => 8 * MAX_CALLS,
            _ => MAX_CALLS,
        };
        self.retry_at = self.retry_at();
        let mut batch = Vec::new();
        while self.calls.len() < max_calls
            && batch.len() < MAX_BATCH
            && let Some((_, pending)) = self.pop(is_fair)
        {
            if !pending.has_left() {
                batch.push(pending);
            }
        }
        if batch.is_empty() {
            return None;
        }
        self.last_call += 1;
        self.calls.insert(self.last_call);
        Some((self.last_call, batch, self.changes))
    }

    fn pop(&mut self, is_fair: bool) -> Option<(GrantId, PendingAcquire)> {
        if self.retry_at.is_some() {
            return self.firsts.pop_first();
        }
        // Fair callers that were denied arrived before those that ask for the first time.
        let (before, behind) = if is_fair {
            (&mut self.retries, &mut self.firsts)
        } else {
            (&mut self.firsts, &mut self.retries)
        };
        before.pop_first().or_else(|| behind.pop_first())
    }

    pub(super) fn call_ended(&mut self, call: u64) {
        self.calls.remove(&call);
    }

    /// The number of the call that was begun last.
    pub(super) const fn last_call(&self) -> u64 {
        self.last_call
    }

    /// Whether this call and all before it have ended.
    pub(super) fn has_ended(&self, call: u64) -> bool {
        self.calls.first().is_none_or(|first| *first > call)
    }

    /// Lets these callers wait: the server cannot grant their permits before `wait` has passed.
    /// Returns the callers that have left.
    ///
    /// `changes` is the number of changes when the call began.
    pub(super) fn deny(
        &mut self,
        batch: PendingBatch,
        wait: Duration,
        changes: u64,
        is_fair: bool,
    ) -> Vec<GrantId> {
        self.drop_first_that_left();
        // The wait of a fair caller at the end of the queue says nothing about the first caller.
        let has_first = match self.retries.first_key_value() {
            Some((first, _)) if is_fair => batch[0].id < *first,
            _ => true,
        };
        if self.changes == changes && has_first {
            let min = match self.retries.len() {
                MANY_RETRIES.. => MIN_PAUSE_OF_MANY,
                _ => MIN_PAUSE,
            };
            self.retry_at = Some(Instant::now() + jitter::pause_before_repeat(wait, min));
        }
        let mut have_left = Vec::new();
        for mut pending in batch {
            pending.is_in_doubt = false;
            if pending.has_left() {
                have_left.push(pending.id);
            } else if pending.is_retry || pending.may_wait(wait) {
                self.retry_later(pending, wait);
            } else {
                pending.answer(Ok(AcquireAnswer::Denied { wait, retry: None }));
            }
        }
        have_left
    }

    /// Lets the callers of a call that failed wait, and those that ask for the first time: a call
    /// may succeed after a pause. Callers that cannot wait get the error.
    ///
    /// Returns the callers of the call that have left.
    pub(super) fn fail(&mut self, batch: PendingBatch, error: &LimiterError) -> Vec<GrantId> {
        self.drop_first_that_left();
        // Several calls may have been in progress when the server was lost.
        if self.failure.is_none() || self.retry_at().is_none() {
            let [min, max] = FAILURE_PAUSES;
            let pause = self.failure_pause.clamp(min, max);
            self.failure_pause = 2 * pause;
            self.retry_at = Some(Instant::now() + pause - jitter::up_to(pause / 4));
        }
        self.failure = Some(error.clone());
        let have_left = batch.iter().filter(|pending| pending.has_left());
        let have_left = have_left.map(|pending| pending.id).collect();
        let firsts = std::mem::take(&mut self.firsts).into_values();
        for pending in batch.into_iter().chain(firsts) {
            if pending.may_wait(MIN_PAUSE) {
                self.retry_later(pending, MIN_PAUSE);
            } else {
                pending.answer(Err(error.clone()));
            }
        }
        have_left
    }

    /// A call was answered: callers that pause after an error need not wait any longer.
    pub(super) fn worked(&mut self) {
        if self.failure.take().is_some() {
            self.failure_pause = Duration::ZERO;
            self.retry_at = None;
        }
    }

    /// The error of the latest call, if callers ask again after it.
    pub(super) fn failure(&self) -> Option<LimiterError> {
        self.failure.clone()
    }

    /// Keeps a caller for the next retry, and tells it so if it is the first time.
    fn retry_later(&mut self, pending: PendingAcquire, wait: Duration) {
        if pending.is_retry {
            self.retries.insert(pending.id, pending);
            return;
        }
        let (mut retry, receiver) = PendingAcquire::new(pending.id, pending.until);
        retry.is_retry = true;
        retry.is_in_doubt = pending.is_in_doubt;
        self.retries.insert(retry.id, retry);
        let retry = Some(receiver);
        pending.answer(Ok(AcquireAnswer::Denied { wait, retry }));
    }

    fn drop_first_that_left(&mut self) {
        while let Some(first) = self.retries.first_entry()
            && first.get().has_left()
        {
            first.remove();
        }
    }

    /// Whether a timer has to be started for the retries. If so, it counts as started.
    pub(super) fn needs_timer(&mut self) -> bool {
        let is_waiting = self.retry_at.is_some() && !self.retries.is_empty();
        is_waiting && !std::mem::replace(&mut self.has_timer, true)
    }

    pub(super) fn timer_ended(&mut self) {
        self.has_timer = false;
    }

    /// The instant before which no retry is sent, if it is in the future.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at.filter(|at| *at > Instant::now())
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = PendingAcquire> + use<> {
        let all = [&mut self.retries, &mut self.firsts].map(std::mem::take);
        all.into_iter().flat_map(BTreeMap::into_values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(number: u8) -> (PendingAcquire, AnswerReceiver) {
        let mut id = GrantId::default();
        id[15] = number;
        PendingAcquire::new(id, None)
    }

    /// One behind the first lacks more units than it: the first one asks when it can be granted.
    #[tokio::test(start_paused = true)]
    async fn a_fair_caller_behind_others_does_not_delay_them() {
        let mut queue = AcquireQueue::default();
        let mut waits = [Duration::from_millis(20), Duration::from_secs(60)].into_iter();
        let mut receivers = Vec::new();
        let mut retry_at = Vec::new();
        for number in [1, 2] {
            let (pending, receiver) = caller(number);
            receivers.push(receiver);
            queue.add(pending);
            let (call, batch, changes) = queue.next_batch(true).expect("a caller");
            let wait = waits.next().expect("two");
            assert!(queue.deny(batch, wait, changes, true).is_empty());
            queue.call_ended(call);
            retry_at.push(queue.retry_at());
        }
        assert!(retry_at[0].is_some());
        assert_eq!(retry_at[0], retry_at[1]);
    }
}
