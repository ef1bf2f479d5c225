use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// What is listened to.
#[derive(Debug, Default)]
pub(super) struct Channels {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    channels: HashMap<Arc<str>, Channel>,
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
}

#[derive(Debug)]
struct Channel {
    listeners: usize,
    news: watch::Sender<News>,
}

#[derive(Debug, Clone, Copy, Default)]
struct News {
    /// The server was told.
    is_listening: bool,
    /// Messages, and losses of the connection: there may have been messages meanwhile.
    heard: u64,
}

/// A channel that is listened to, until this is dropped.
#[derive(Debug)]
pub(in crate::lock) struct Listening {
    channel: Arc<str>,
    news: watch::Receiver<News>,
    seen: u64,
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

    /// Completes when somebody listens.
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

    /// The server was told.
    pub(super) fn listening(&self, channels: &[Arc<str>]) {
        let known = self.known();
        for channel in channels.iter().filter_map(|name| known.channels.get(name)) {
            channel.news.send_modify(|news| news.is_listening = true);
        }
    }

    /// A message has come.
    pub(super) fn heard(&self, channel: &str) {
        if let Some(channel) = self.known().channels.get(channel) {
            channel.news.send_modify(|news| news.heard += 1);
        }
    }

    /// The connection is lost.
    pub(super) fn lost(&self) {
        let mut known = self.known();
        known.is_connected = false;
        known.changed = Vec::new();
        for channel in known.channels.values() {
            channel.news.send_modify(|news| {
                news.is_listening = false;
                news.heard += 1;
            });
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening {
    pub(super) fn new(channels: &Arc<Channels>, channel: &str) -> Self {
        let channel: Arc<str> = channel.into();
        let mut known = channels.known();
        let here = known.channels.entry(Arc::clone(&channel));
        let here = here.or_insert_with(|| Channel {
            listeners: 0,
            news: watch::Sender::default(),
        });
        here.listeners += 1;
        let (news, is_new) = (here.news.subscribe(), here.listeners == 1);
        if is_new {
            known.note_change(&channel);
            channels.changed.notify_one();
        }
        drop(known);
        Self {
            channel,
            news,
            seen: 0,
            channels: Arc::clone(channels),
        }
    }

    /// Waits until the server was told, so that nothing is missed from now on; but not longer than this.
    pub(in crate::lock) async fn begun(&mut self, at_most: Duration) {
        let begun = self.news.wait_for(|news| news.is_listening);
        let _ = timeout(at_most, begun).await;
    }

    /// What has been heard so far is no news any more.
    pub(in crate::lock) fn seen(&mut self) {
        self.seen = self.news.borrow_and_update().heard;
    }

    /// Waits for news.
    pub(in crate::lock) async fn changed(&mut self) {
        let seen = self.seen;
        let heard = self.news.wait_for(|news| news.heard > seen);
        heard
            .await
            .expect("the channel is there while it is listened to");
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut known = self.channels.known();
        let Some(here) = known.channels.get_mut(&self.channel) else {
            return;
        };
        here.listeners -= 1;
        if here.listeners == 0 {
            known.channels.remove(&self.channel);
            known.note_change(&self.channel);
            self.channels.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waits for a lock while there is no connection to listen on leaves nothing behind.
    #[test]
    fn nothing_adds_up_without_a_connection() {
        let channels = Arc::new(Channels::default());
        let pass = || drop(Listening::new(&channels, "passing"));
        (0..1_000).for_each(|_| pass());
        assert!(channels.known().changed.is_empty());

        let _stays = Listening::new(&channels, "stays");
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
