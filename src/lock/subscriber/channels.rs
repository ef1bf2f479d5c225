use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::turn::Turn;
use super::wait_queue::WaitQueue;
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// The channels of the locks that this process waits for, each with its queue of callers.
#[derive(Debug, Default)]
pub(in crate::lock) struct Channels {
    map: Mutex<ChannelMap>,
    /// Notified when the first caller enters a queue, or the last caller leaves it.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct ChannelMap {
    pub(super) queues: HashMap<Arc<str>, WaitQueue>,
    /// The turns of locks that this process has just held and that other processes wait for.
    turns: SweptMap<Arc<str>, Turn>,
    /// The number of the latest caller.
    last_number: u64,
    /// The channels whose queue has become empty or non-empty since the task last looked.
    changed: Vec<Arc<str>>,
    /// Without a connection no changes are noted: a new connection subscribes to all channels.
    is_connected: bool,
}

impl ChannelMap {
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Notes that the queue of this channel has become empty or non-empty.
    pub(super) fn note_change(&mut self, channel: &Arc<str>) {
        if self.is_connected {
            self.changed.push(Arc::clone(channel));
        }
    }

    /// Until when other processes go first; `None` if they do not.
    pub(super) fn paused_until(&self, channel: &str, now: Instant) -> Option<Instant> {
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
        let turn = Turn::new(others, acquired, now);
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
    pub(super) async fn next_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        loop {
            let (used, unused) = self.take_changes();
            if !used.is_empty() || !unused.is_empty() {
                return (used, unused);
            }
            self.changed.notified().await;
        }
    }

    pub(super) fn take_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut map = self.map();
        let changed = std::mem::take(&mut map.changed);
        let is_used = |channel: &Arc<str>| map.queues.contains_key(channel);
        changed.into_iter().partition(is_used)
    }

    /// Completes when a caller waits.
    pub(super) async fn in_use(&self) {
        while self.map().queues.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Begins to note changes for a new connection, which has no subscriptions.
    pub(super) fn connected(&self) {
        let mut map = self.map();
        map.is_connected = true;
        map.changed = map.queues.keys().cloned().collect();
    }

    /// The server has confirmed these channels. A message may have been sent before, so the first
    /// caller of each asks.
    pub(super) fn subscribed(&self, channels: &[Arc<str>]) {
        for channel in channels {
            self.wake_one(channel);
        }
    }

    /// Calls `run` with the queue of this channel, if a caller waits.
    pub(super) fn with_queue(&self, channel: &str, run: impl FnOnce(&mut WaitQueue)) {
        if let Some(queue) = self.map().queues.get_mut(channel) {
            run(queue);
        }
    }

    /// Lets the first waiting caller ask.
    pub(in crate::lock) fn wake_one(&self, channel: &str) {
        self.map().wake_one(channel);
    }

    /// Lets all waiting callers of an owner ask, because the owner has acquired the lock.
    pub(in crate::lock) fn wake_owner(&self, channel: &str, owner: u64) {
        self.with_queue(channel, |queue| queue.wake_owner(owner));
    }

    /// This process has acquired the lock.
    pub(in crate::lock) fn acquired(&self, channel: &str) {
        if let Some(turn) = self.map().turns.get_mut(channel) {
            turn.acquired(Instant::now());
        }
    }

    /// This process has sent a release: a call that follows it may find the lock free.
    pub(in crate::lock) fn release_sent(&self, channel: &str) {
        let (mut map, now) = (self.map(), Instant::now());
        let is_listening = map.queues.contains_key(channel);
        if let Some(turn) = map.turns.get_mut(channel) {
            turn.release_sent(is_listening, now);
        }
        map.wake_one(channel);
    }

    /// A release of this process was answered: this number of clients received its message,
    /// including this process if it listens. The lock had been acquired at `acquired`.
    pub(in crate::lock) fn released(&self, channel: &str, listeners: u32, acquired: Instant) {
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
    pub(super) fn message_received(&self, channel: &str) {
        let mut map = self.map();
        if let Some(turn) = map.turns.get_mut(channel) {
            turn.message_received(Instant::now());
        }
        map.wake_one(channel);
    }

    /// The connection is lost, perhaps with messages.
    pub(super) fn disconnected(&self) {
        let mut map = self.map();
        map.is_connected = false;
        map.changed = Vec::new();
        map.turns.clear();
        map.queues.values_mut().for_each(WaitQueue::wake_one);
    }

    pub(super) fn map(&self) -> MutexGuard<'_, ChannelMap> {
        lock(&self.map)
    }
}
