//! The callers that wait for locks, those that wait for permits of requests in progress, and the
//! background task that listens for releases.

mod turn;
mod wait_queue;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::turn::LockTurn;
use self::wait_queue::{NextStep, WaitQueue};
use super::connection::Connection;
use super::link::Link;
use crate::error::StoreError;
use crate::jitter;
use crate::swept_map::SweptMap;
use crate::sync::lock;

pub use self::wait_queue::WaiterInfo;

/// The channels of the locks that this process waits for, each with its queue of callers.
#[derive(Debug, Default)]
pub struct Channels {
    map: Mutex<ChannelMap>,
    /// Notified when the first caller enters a queue, or the last caller leaves it.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ChannelMap {
    queues: HashMap<Arc<str>, WaitQueue>,
    /// The turns of locks that this process has just held and that other processes wait for.
    turns: SweptMap<Arc<str>, LockTurn>,
    /// The number of the latest caller.
    last_number: u64,
    /// The channels whose queue has become empty or non-empty since the task last looked.
    changed: Vec<Arc<str>>,
    /// Without a connection no changes are noted: a new connection subscribes to all channels.
    is_connected: bool,
}

impl ChannelMap {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Notes that the queue of this channel has become empty or non-empty.
    fn note_change(&mut self, channel: &Arc<str>) {
        if self.is_connected {
            self.changed.push(Arc::clone(channel));
        }
    }

    /// Until when other processes go first; `None` if they do not.
    fn paused_until(&self, channel: &str, now: Instant) -> Option<Instant> {
        self.turns.get(channel)?.paused_until(now)
    }

    /// Notes that `others` wait for a lock that this process has held since `acquired`.
    fn others_wait(&mut self, channel: &str, others: u32, acquired: Instant) {
        if let Some(turn) = self.turns.get_mut(channel) {
            turn.set_others(others);
            return;
        }
        let now = Instant::now();
        self.turns.sweep(|turn| !turn.is_outdated(now));
        let turn = LockTurn::new(others, acquired, now);
        self.turns.insert(channel.into(), turn);
    }

    fn wake_one(&mut self, channel: &str) {
        if let Some(queue) = self.queues.get_mut(channel) {
            queue.wake_one();
        }
    }
}

impl Channels {
    /// Returns the channels that have changed: those in use, and those no longer in use.
    async fn next_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        loop {
            let (used, unused) = self.take_changes();
            if !used.is_empty() || !unused.is_empty() {
                return (used, unused);
            }
            self.changed.notified().await;
        }
    }

    fn take_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut map = self.map();
        let changed = std::mem::take(&mut map.changed);
        let is_used = |channel: &Arc<str>| map.queues.contains_key(channel);
        changed.into_iter().partition(is_used)
    }

    /// Completes when a caller waits.
    async fn in_use(&self) {
        while self.map().queues.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Begins to note changes for a new connection, which has no subscriptions.
    fn connected(&self) {
        let mut map = self.map();
        map.is_connected = true;
        map.changed = map.queues.keys().cloned().collect();
    }

    /// Calls `run` with the queue of this channel, if a caller waits.
    fn with_queue(&self, channel: &str, run: impl FnOnce(&mut WaitQueue)) {
        if let Some(queue) = self.map().queues.get_mut(channel) {
            run(queue);
        }
    }

    /// Lets the first waiting caller ask.
    pub fn wake_one(&self, channel: &str) {
        self.map().wake_one(channel);
    }

    /// Lets all waiting callers of an owner ask, because the owner has acquired the lock.
    pub fn wake_owner(&self, channel: &str, owner: u64) {
        self.with_queue(channel, |queue| queue.wake_owner(owner));
    }

    /// This process has acquired the lock.
    pub fn acquired(&self, channel: &str) {
        if let Some(turn) = self.map().turns.get_mut(channel) {
            turn.acquired(Instant::now());
        }
    }

    /// This process has sent a release: a call that follows it may find the lock free.
    pub fn release_sent(&self, channel: &str) {
        let (mut map, now) = (self.map(), Instant::now());
        let is_listening = map.queues.contains_key(channel);
        if let Some(turn) = map.turns.get_mut(channel) {
            turn.release_sent(is_listening, now);
        }
        map.wake_one(channel);
    }

    /// A release of this process was answered: this number of clients received its message,
    /// including this process if it listens. The lock had been acquired at `acquired`.
    pub fn released(&self, channel: &str, listeners: u32, acquired: Instant) {
        let mut map = self.map();
        let is_listening = map.queues.contains_key(channel);
        let others = listeners.saturating_sub(u32::from(is_listening));
        if others > 0 {
            map.others_wait(channel, others, acquired);
        } else if map.turns.remove(channel).is_some() {
            map.wake_one(channel);
        }
    }

    /// A message has arrived: some process has released the lock.
    fn message_received(&self, channel: &str) {
        let mut map = self.map();
        if let Some(turn) = map.turns.get_mut(channel) {
            turn.message_received(Instant::now());
        }
        map.wake_one(channel);
    }

    /// The connection is lost, perhaps with messages.
    fn disconnected(&self) {
        let mut map = self.map();
        map.is_connected = false;
        map.changed = Vec::new();
        map.turns.clear();
        map.queues.values_mut().for_each(WaitQueue::wake_one);
    }

    fn map(&self) -> MutexGuard<'_, ChannelMap> {
        lock(&self.map)
    }
}

/// A caller in the queue of a channel. Dropping it leaves the queue.
#[derive(Debug)]
pub struct QueuedWaiter {
    channel: Arc<str>,
    number: u64,
    woken: Arc<Notify>,
    channels: Arc<Channels>,
}

impl QueuedWaiter {
    /// Enters the queue after a first call.
    pub fn join(channels: &Arc<Channels>, channel: &str, info: WaiterInfo) -> Self {
        let join = |queue: &mut WaitQueue, number| queue.join(number, info);
        Self::new(channels, &mut channels.map(), channel, join)
    }

    /// Enters the queue before a first call, if it is the turn of other processes and their turn
    /// ends before `until`.
    pub fn join_behind_others(
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
    pub fn answered(&self) {
        self.channels.with_queue(&self.channel, WaitQueue::answered);
    }

    /// Redis has denied the lock: the lease of another holder ends after this time.
    pub fn denied(&self, ends_after: Option<Duration>) {
        let denied = |queue: &mut WaitQueue| queue.denied(self.number, ends_after);
        self.channels.with_queue(&self.channel, denied);
    }

    /// Redis has not answered this caller's call.
    pub fn failed(&self, error: StoreError) {
        let failed = |queue: &mut WaitQueue| queue.failed(self.number, error);
        self.channels.with_queue(&self.channel, failed);
    }

    /// Sleeps until this caller should ask; returns `false` if its deadline passes before.
    ///
    /// # Errors
    ///
    /// The error of the last call, if the deadline has passed and that call was not answered, or if
    /// no call has been answered for 5 s.
    pub async fn woken(&self, until: Option<Instant>) -> Result<bool, StoreError> {
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

/// How long the server may take to confirm a subscription.
const MAX_CONFIRMATION: Duration = Duration::from_secs(1);
/// From the end of a connection to the next attempt. Up to as much is added at random, so that not
/// all processes subscribe at the same time.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens over the connection that also carries the calls, and again after each reconnect.
pub async fn listen(connection: Connection, channels: Arc<Channels>) {
    loop {
        channels.in_use().await;
        if let Some(link) = connection.link() {
            let messages = link.messages();
            channels.connected();
            tokio::select! {
                () = receive(messages, &channels) => {}
                _ = subscribe(&link, &channels) => {}
                () = link.closed() => {}
            }
            channels.disconnected();
        }
        sleep(PAUSE + jitter::up_to(PAUSE)).await;
    }
}

/// Passes messages on, until messages were missed.
async fn receive(mut messages: Receiver<Arc<str>>, channels: &Channels) {
    while let Ok(channel) = messages.recv().await {
        channels.message_received(&channel);
    }
}

/// Keeps the subscriptions up to date, until the connection is lost.
async fn subscribe(link: &Link, channels: &Channels) -> RedisResult<()> {
    let mut subscribed = HashSet::new();
    loop {
        let (used, unused) = channels.next_changes().await;
        let mut new = used.clone();
        new.retain(|name| !subscribed.contains(name));
        if !new.is_empty() {
            in_time(link.subscribe(&new, true)).await?;
        }
        subscribed.extend(new);
        // The server has confirmed these channels. A message may have been sent before, so the
        // first caller of each asks.
        used.iter().for_each(|channel| channels.wake_one(channel));
        let mut old = unused;
        old.retain(|name| subscribed.remove(name));
        if !old.is_empty() {
            in_time(link.subscribe(&old, false)).await?;
        }
    }
}

async fn in_time<T>(work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
    timeout(MAX_CONFIRMATION, work)
        .await
        .unwrap_or_else(|_| Err(late()))
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
