use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::channels::{ChannelMap, Channels};
use super::wait_queue::{NextStep, WaitQueue, WaiterInfo};
use crate::error::StoreError;

/// A caller in the queue of a channel. Dropping it leaves the queue.
#[derive(Debug)]
pub(in crate::lock) struct QueuedWaiter {
    channel: Arc<str>,
    number: u64,
    woken: Arc<Notify>,
    channels: Arc<Channels>,
}

impl QueuedWaiter {
    /// Enters the queue after a first call.
    pub(in crate::lock) fn join(channels: &Arc<Channels>, channel: &str, info: WaiterInfo) -> Self {
        let join = |queue: &mut WaitQueue, number| queue.join(number, info);
        Self::new(channels, &mut channels.map(), channel, join)
    }

    /// Enters the queue before a first call, if it is the turn of other processes and their turn
    /// ends before `until`.
    pub(in crate::lock) fn join_behind_others(
        channels: &Arc<Channels>,
        channel: &str,
        info: WaiterInfo,
        until: Option<Instant>,
    ) -> Option<Self> {
        let mut map = channels.map();
        let paused_until = map.paused_until(channel, Instant::now())?;
        let join = |queue: &mut WaitQueue, number| queue.join_asleep(number, info);
        let has_time = until.is_none_or(|until| paused_until < until);
        has_time.then(|| Self::new(channels, &mut map, channel, join))
    }

    fn new(
        channels: &Arc<Channels>,
        map: &mut ChannelMap,
        channel: &str,
        join: impl FnOnce(&mut WaitQueue, u64) -> Arc<Notify>,
    ) -> Self {
        let (number, channel) = (map.next_number(), Arc::from(channel));
        let queue = map.queues.entry(Arc::clone(&channel));
        let queue = queue.or_insert_with(WaitQueue::new);
        let is_new = queue.is_empty();
        let woken = join(queue, number);
        if is_new {
            map.note_change(&channel);
            channels.changed.notify_one();
        }
        Self {
            channel,
            number,
            woken,
            channels: Arc::clone(channels),
        }
    }

    /// Redis has answered this caller's call.
    pub(in crate::lock) fn answered(&self) {
        self.channels.with_queue(&self.channel, WaitQueue::answered);
    }

    /// Redis has denied the lock: the lease of another holder ends after this time.
    pub(in crate::lock) fn denied(&self, ends_after: Option<Duration>) {
        let denied = |queue: &mut WaitQueue| queue.denied(self.number, ends_after);
        self.channels.with_queue(&self.channel, denied);
    }

    /// Redis has not answered this caller's call.
    pub(in crate::lock) fn failed(&self, error: StoreError) {
        let failed = |queue: &mut WaitQueue| queue.failed(self.number, error);
        self.channels.with_queue(&self.channel, failed);
    }

    /// Sleeps until this caller should ask; returns `false` if its deadline passes before.
    ///
    /// # Errors
    ///
    /// The error of the last call, if the deadline has passed and that call was not answered, or if
    /// no call has been answered for 5 s.
    pub(in crate::lock) async fn woken(&self, until: Option<Instant>) -> Result<bool, StoreError> {
        loop {
            let next = {
                let mut map = self.channels.map();
                let paused_until = map.paused_until(&self.channel, Instant::now());
                let queue = map.queues.get_mut(&self.channel);
                queue.map_or(NextStep::Ask, |queue| {
                    queue.next_step(self.number, until, paused_until)
                })
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
        let mut map = self.channels.map();
        let Some(queue) = map.queues.get_mut(&self.channel) else {
            return;
        };
        queue.leave(self.number);
        if queue.is_empty() {
            map.queues.remove(&self.channel);
            map.note_change(&self.channel);
            self.channels.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: WaiterInfo = WaiterInfo {
        owner: None,
        timeout: Duration::from_millis(200),
    };

    #[test]
    fn changes_do_not_pile_up_without_a_connection() {
        let channels = Arc::new(Channels::default());
        let pass = || drop(QueuedWaiter::join(&channels, "passing", INFO));
        (0..1_000).for_each(|_| pass());
        assert_eq!(channels.take_changes(), (vec![], vec![]));

        let _stays = QueuedWaiter::join(&channels, "stays", INFO);
        channels.connected();
        assert_eq!(channels.take_changes(), (vec!["stays".into()], vec![]));
        pass();
        assert_eq!(channels.take_changes().1.len(), 2, "come and gone");
        pass();
        channels.disconnected();
        (0..1_000).for_each(|_| pass());
        assert_eq!(channels.take_changes(), (vec![], vec![]));
        assert_eq!(channels.map().queues.len(), 1);
    }
}
