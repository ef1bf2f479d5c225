use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::fairness::Fairness;
use super::owner::unique_number;
use super::wait_queue::{NextStep, WaitQueue, WaiterInfo};
use crate::connection::{Heard, Subscriber, Subscription};
use crate::error::StoreError;
use crate::sync::lock;

/// The channel of one lock, and the callers of this process that wait for it.
pub(super) struct LockChannel {
    name: Box<str>,
    state: Mutex<ChannelState>,
    subscriber: Arc<Subscriber>,
}

struct ChannelState {
    queue: WaitQueue,
    /// Of a lock that this process has just held and that other processes wait for.
    fairness: Option<Fairness>,
    /// As long as callers wait.
    subscription: Option<Subscription>,
}

impl LockChannel {
    pub(super) fn new(name: &str, subscriber: &Arc<Subscriber>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            state: Mutex::new(ChannelState {
                queue: WaitQueue::new(),
                fairness: None,
                subscription: None,
            }),
            subscriber: Arc::clone(subscriber),
        })
    }

    pub(super) fn had_others(&self) -> bool {
        let known = &lock(&self.state).fairness;
        let known = known.as_ref();
        known.is_some_and(|it| !it.is_outdated(Instant::now()))
    }

    /// Whether other processes go first, and their turn ends before `until`.
    pub(super) fn others_go_first(&self, until: Option<Instant>) -> bool {
        let paused_until = lock(&self.state).paused_until();
        paused_until.is_some_and(|at| until.is_none_or(|until| at < until))
    }

    /// Lets the first waiting caller ask.
    pub(super) fn wake_one(&self) {
        lock(&self.state).queue.wake_one();
    }

    /// This process has acquired the lock: its owner may acquire it again.
    pub(super) fn acquired(&self, owner: Option<u64>) {
        let mut state = lock(&self.state);
        if let Some(owner) = owner {
            state.queue.wake_owner(owner);
        }
        if let Some(fairness) = &mut state.fairness {
            fairness.acquired(Instant::now());
        }
    }

    /// This process has sent a release: a call that follows it may find the lock free.
    pub(super) fn release_sent(&self) {
        let mut state = lock(&self.state);
        let is_listening = state.subscription.is_some();
        if let Some(fairness) = &mut state.fairness {
            fairness.release_sent(is_listening, Instant::now());
        }
        state.queue.wake_one();
    }

    /// A release of this process was answered: this number of clients received its message,
    /// including this process if it listens. The lock had been acquired at `acquired`.
    pub(super) fn released(&self, listeners: u32, acquired: Instant) {
        let mut state = lock(&self.state);
        let others = listeners.saturating_sub(u32::from(state.subscription.is_some()));
        match &mut state.fairness {
            Some(fairness) if others > 0 => fairness.others = others,
            None if others > 0 => {
                state.fairness = Some(Fairness::new(others, acquired, Instant::now()));
            }
            Some(_) => {
                state.fairness = None;
                state.queue.wake_one();
            }
            None => {}
        }
    }

    fn heard(&self, heard: Heard) {
        let mut state = lock(&self.state);
        match (heard, &mut state.fairness) {
            // Some process has released the lock.
            (Heard::Message, Some(fairness)) => fairness.message_received(Instant::now()),
            (Heard::Lost, fairness) => *fairness = None,
            _ => {}
        }
        state.queue.wake_one();
    }
}

impl ChannelState {
    /// Until when other processes go first; `None` if they do not.
    fn paused_until(&self) -> Option<Instant> {
        self.fairness.as_ref()?.paused_until(Instant::now())
    }
}

/// A caller in the queue of a channel. Dropping it leaves the queue.
pub(super) struct QueuedWaiter {
    number: u64,
    woken: Arc<Notify>,
    channel: Arc<LockChannel>,
}

impl QueuedWaiter {
    /// Enters the queue, by [`WaitQueue::join`] or [`WaitQueue::join_asleep`].
    pub(super) fn new(
        channel: &Arc<LockChannel>,
        info: WaiterInfo,
        join: fn(&mut WaitQueue, u64, WaiterInfo) -> Arc<Notify>,
    ) -> Self {
        let mut state = lock(&channel.state);
        if state.subscription.is_none() {
            let hears = Arc::clone(channel);
            let heard = move |heard| hears.heard(heard);
            state.subscription = Some(channel.subscriber.subscribe(&channel.name, heard));
            state.queue = WaitQueue::new();
        }
        let number = unique_number();
        Self {
            number,
            woken: join(&mut state.queue, number, info),
            channel: Arc::clone(channel),
        }
    }

    /// Redis has answered this caller's call.
    pub(super) fn answered(&self) {
        lock(&self.channel.state).queue.answered();
    }

    /// Redis has denied the lock: the lease of another holder ends after this time.
    pub(super) fn denied(&self, ends_after: Option<Duration>) {
        let mut state = lock(&self.channel.state);
        state.queue.denied(self.number, ends_after);
    }

    /// Redis has not answered this caller's call.
    pub(super) fn failed(&self, error: StoreError) {
        lock(&self.channel.state).queue.failed(self.number, error);
    }

    /// Sleeps until this caller should ask; returns `false` if its deadline passes before.
    ///
    /// # Errors
    ///
    /// The error of the last call, if the deadline has passed and that call was not answered, or if
    /// no call has been answered for 5 s.
    pub(super) async fn woken(&self, until: Option<Instant>) -> Result<bool, StoreError> {
        loop {
            let next = {
                let mut state = lock(&self.channel.state);
                let paused_until = state.paused_until();
                state.queue.next_step(self.number, until, paused_until)
            };
            let at = match next {
                NextStep::Ask => return Ok(true),
                NextStep::GiveUp => return Ok(false),
                NextStep::Fail(error) => return Err(error),
                NextStep::SleepUntil(at) => at,
            };
            tokio::select! {
                () = self.woken.notified() => {}
                () = sleep_until(at) => {}
            }
        }
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        let mut state = lock(&self.channel.state);
        state.queue.leave(self.number);
        if state.queue.is_empty() {
            state.subscription = None;
        }
    }
}
