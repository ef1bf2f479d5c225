use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::turn::Turn;
use super::waiters::{Caller, Next, Waiters};
use crate::error::StoreError;

/// The channels that are listened to, and who waits for their messages.
#[derive(Debug, Default)]
pub(in crate::lock) struct Channels {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    channels: HashMap<Arc<str>, Waiters>,
    /// By channel: the turns at locks that this process has just had and others wait for.
    turns: HashMap<Arc<str>, Turn>,
    /// At so many, those that are forgotten are dropped.
    crowded: usize,
    /// The number of the latest waiter.
    latest: u64,
    /// Those that somebody has begun to listen to, or has ceased to, since the server was told last.
    changed: Vec<Arc<str>>,
    /// There is a connection. While there is none, nothing is noted for it: a new one is told everything.
    is_connected: bool,
}

impl Known {
    fn note_change(&mut self, channel: &Arc<str>) {
        if self.is_connected {
            self.changed.push(Arc::clone(channel));
        }
    }

    /// Until when others go first, if they do.
    fn pause(&self, channel: &str, now: Instant) -> Option<Instant> {
        self.turns.get(channel)?.pause(now)
    }

    const FEW: usize = 256;

    /// Others wait for a lock that was taken then, and is released.
    fn told(&mut self, channel: &str, others: u32, taken: Instant) {
        if let Some(turn) = self.turns.get_mut(channel) {
            turn.told(others);
            return;
        }
        let now = Instant::now();
        if self.turns.len() >= self.crowded {
            self.turns.retain(|_, turn| !turn.is_forgotten(now));
            self.crowded = Self::FEW.max(2 * self.turns.len());
        }
        let turn = Turn::new(others, taken, now);
        self.turns.insert(channel.into(), turn);
    }

    fn wake_one(&mut self, channel: &str) {
        if let Some(waiters) = self.channels.get_mut(channel) {
            waiters.wake_one();
        }
    }
}

/// One that waits for a message on a channel, until this is dropped.
#[derive(Debug)]
pub(in crate::lock) struct Waiting {
    channel: Arc<str>,
    number: u64,
    woken: Arc<Notify>,
    channels: Arc<Channels>,
}

impl Channels {
    /// What has changed: the channels that are to be listened to, and the others.
    pub(super) async fn changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        loop {
            let (wanted, others) = self.take_changes();
            if !wanted.is_empty() || !others.is_empty() {
                return (wanted, others);
            }
            self.changed.notified().await;
        }
    }

    fn take_changes(&self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut known = self.known();
        let changed = std::mem::take(&mut known.changed);
        let is_wanted = |channel: &Arc<str>| known.channels.contains_key(channel);
        changed.into_iter().partition(is_wanted)
    }

    /// Completes when somebody waits.
    pub(super) async fn wanted(&self) {
        while self.known().channels.is_empty() {
            self.changed.notified().await;
        }
    }

    /// A new connection knows of none of them.
    pub(super) fn begin(&self) {
        let mut known = self.known();
        known.is_connected = true;
        known.changed = known.channels.keys().cloned().collect();
    }

    /// The server was told. It may have been too late for a message, so one asks.
    pub(super) fn listening(&self, channels: &[Arc<str>]) {
        for channel in channels {
            self.change(channel, Waiters::wake_one);
        }
    }

    /// Changes those who wait for this channel, if anybody does.
    pub(super) fn change(&self, channel: &str, change: impl FnOnce(&mut Waiters)) {
        if let Some(waiters) = self.known().channels.get_mut(channel) {
            change(waiters);
        }
    }

    /// One of those who wait asks.
    pub(in crate::lock) fn wake_one(&self, channel: &str) {
        self.known().wake_one(channel);
    }

    /// This process has taken a lock.
    pub(in crate::lock) fn taken(&self, channel: &str) {
        if let Some(turn) = self.known().turns.get_mut(channel) {
            turn.taken(Instant::now());
        }
    }

    /// This process has sent a release: a question that follows it may find the lock free.
    pub(in crate::lock) fn released(&self, channel: &str) {
        let (mut known, now) = (self.known(), Instant::now());
        let is_listening = known.channels.contains_key(channel);
        if let Some(turn) = known.turns.get_mut(channel) {
            turn.released(is_listening, now);
        }
        known.wake_one(channel);
    }

    /// So many clients have heard of a release, this one among them if it listens. The lock had
    /// been taken at that instant.
    pub(in crate::lock) fn told(&self, channel: &str, listeners: u32, taken: Instant) {
        let mut known = self.known();
        let is_listening = known.channels.contains_key(channel);
        let others = listeners.saturating_sub(u32::from(is_listening));
        if others > 0 {
            known.told(channel, others, taken);
        } else if known.turns.remove(channel).is_some() {
            known.wake_one(channel);
        }
    }

    /// A message: somebody has released a lock.
    pub(super) fn heard(&self, channel: &str) {
        let mut known = self.known();
        if let Some(turn) = known.turns.get_mut(channel) {
            turn.heard(Instant::now());
        }
        known.wake_one(channel);
    }

    /// The connection is lost, and messages with it.
    pub(super) fn lost(&self) {
        let mut known = self.known();
        known.is_connected = false;
        known.changed = Vec::new();
        known.turns.clear();
        known.channels.values_mut().for_each(Waiters::wake_one);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Joins those who wait, after a first question.
    pub(super) fn new(channels: &Arc<Channels>, channel: &str, caller: Caller) -> Self {
        let join = |waiters: &mut Waiters, number| waiters.join(number, caller);
        Self::join(channels, &mut channels.known(), channel, join)
    }

    /// Joins those who wait before a first question, if others go first for a part of the time.
    pub(super) fn behind_others(
        channels: &Arc<Channels>,
        channel: &str,
        caller: Caller,
        until: Option<Instant>,
    ) -> Option<Self> {
        let mut known = channels.known();
        let pause = known.pause(channel, Instant::now())?;
        let join = |waiters: &mut Waiters, number| waiters.join_asleep(number, caller);
        let has_time = until.is_none_or(|until| pause < until);
        has_time.then(|| Self::join(channels, &mut known, channel, join))
    }

    fn join(
        channels: &Arc<Channels>,
        known: &mut Known,
        channel: &str,
        join: impl FnOnce(&mut Waiters, u64) -> Arc<Notify>,
    ) -> Self {
        known.latest += 1;
        let (number, name) = (known.latest, Arc::from(channel));
        let waiters = known.channels.entry(Arc::clone(&name));
        let waiters = waiters.or_insert_with(Waiters::new);
        let is_new = waiters.is_empty();
        let woken = join(waiters, number);
        if is_new {
            known.note_change(&name);
            channels.changed.notify_one();
        }
        Self {
            channel: name,
            number,
            woken,
            channels: Arc::clone(channels),
        }
    }

    /// The question was answered, as those of others may be.
    pub(in crate::lock) fn answered(&self) {
        self.channels.change(&self.channel, Waiters::answered);
    }

    /// The question was answered: others have the lock, and their lease ends then.
    pub(in crate::lock) fn refused(&self, ends_after: Option<Duration>) {
        let refused = |waiters: &mut Waiters| waiters.refused(self.number, ends_after);
        self.channels.change(&self.channel, refused);
    }

    /// The question was not answered.
    pub(in crate::lock) fn failed(&self, error: StoreError) {
        let failed = |waiters: &mut Waiters| waiters.failed(self.number, error);
        self.channels.change(&self.channel, failed);
    }

    /// Sleeps until it is this one's turn to ask again; false if its time is up before.
    ///
    /// # Errors
    ///
    /// The last question's error, if the time is up and that question was not answered, or if none
    /// has been for 5 s.
    pub(in crate::lock) async fn woken(&self, until: Option<Instant>) -> Result<bool, StoreError> {
        loop {
            let next = {
                let mut known = self.channels.known();
                let pause = known.pause(&self.channel, Instant::now());
                let waiters = known.channels.get_mut(&self.channel);
                waiters.map_or(Next::Ask, |waiters| waiters.next(self.number, until, pause))
            };
            let at = match next {
                Next::Ask => return Ok(true),
                Next::GiveUp => return Ok(false),
                Next::Fail(error) => return Err(error),
                Next::SleepUntil(at) => at,
            };
            tokio::select! {
                () = self.woken.notified() => {}
                () = sleep_until(at) => {}
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut known = self.channels.known();
        let Some(waiters) = known.channels.get_mut(&self.channel) else {
            return;
        };
        waiters.leave(self.number);
        if waiters.is_empty() {
            known.channels.remove(&self.channel);
            known.note_change(&self.channel);
            self.channels.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: Caller = Caller {
        owner: None,
        timeout: Duration::from_millis(200),
    };

    /// Whoever waits for a lock while there is no connection to listen on leaves nothing behind.
    #[test]
    fn nothing_adds_up_without_a_connection() {
        let channels = Arc::new(Channels::default());
        let pass = || drop(Waiting::new(&channels, "passing", CALLER));
        (0..1_000).for_each(|_| pass());
        assert!(channels.known().changed.is_empty());

        let _stays = Waiting::new(&channels, "stays", CALLER);
        channels.begin();
        assert_eq!(channels.take_changes(), (vec!["stays".into()], vec![]));
        pass();
        assert_eq!(channels.take_changes().1.len(), 2, "come and gone");
        pass();
        channels.lost();
        (0..1_000).for_each(|_| pass());
        assert!(channels.known().changed.is_empty());
        assert_eq!(channels.known().channels.len(), 1);
    }
}
