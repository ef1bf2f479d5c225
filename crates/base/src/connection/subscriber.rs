//! Who hears the messages of channels, and the background task that subscribes to these channels.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::time::sleep;

use super::connection::Connection;
use super::link::Link;
use crate::jitter;
use crate::sync::{OwnedTask, lock};

/// Hears the messages of channels over the connection that also carries the calls. Its task ends
/// when this is dropped.
pub struct Subscriber {
    channels: Arc<Channels>,
    _task: OwnedTask,
}

/// What happens at a channel.
#[derive(Debug, Clone, Copy)]
pub enum Heard {
    /// A message.
    Message,
    /// The server has confirmed the subscription. A message may have been sent before.
    Subscribed,
    /// The connection is lost, perhaps with messages.
    Lost,
}

/// Hears one channel until it is dropped.
#[must_use = "nothing is heard once this is dropped"]
pub struct Subscription {
    channel: Arc<str>,
    listener: Arc<Listener>,
    channels: Arc<Channels>,
}

type Listener = dyn Fn(Heard) + Send + Sync;

impl Subscriber {
    /// Starts the task in the runtime of the connection.
    pub fn new(connection: &Connection) -> Self {
        let channels = Arc::<Channels>::default();
        let listens = listen(connection.clone(), Arc::clone(&channels));
        let task = connection.runtime().spawn(listens).abort_handle();
        let _task = OwnedTask(task);
        Self { channels, _task }
    }

    /// Calls `heard` for what happens at this channel.
    pub fn subscribe(
        &self,
        channel: &str,
        heard: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Subscription {
        let subscription = Subscription {
            channel: channel.into(),
            listener: Arc::new(heard),
            channels: Arc::clone(&self.channels),
        };
        subscription.change(|all| all.push(Arc::clone(&subscription.listener)));
        subscription
    }
}

impl Subscription {
    /// Changes the listeners of its channel, and tells the task of the first and the last one.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Listener>>)) {
        let mut map = lock(&self.channels.map);
        let mut listeners = map.listeners.remove(&self.channel).unwrap_or_default();
        let was_used = !listeners.is_empty();
        change(&mut listeners);
        let is_used = !listeners.is_empty();
        if is_used {
            map.listeners.insert(Arc::clone(&self.channel), listeners);
        }
        if was_used != is_used {
            let changed = map.changed.iter_mut();
            changed.for_each(|it| it.push(Arc::clone(&self.channel)));
            self.channels.changed.notify_one();
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.change(|all| all.retain(|it| !Arc::ptr_eq(it, &self.listener)));
    }
}

/// The channels that are listened to.
#[derive(Default)]
struct Channels {
    map: Mutex<ChannelMap>,
    /// Notified when a channel gets its first listener, or loses the last one.
    changed: Notify,
}

#[derive(Default)]
struct ChannelMap {
    listeners: HashMap<Arc<str>, Vec<Arc<Listener>>>,
    /// The channels that got their first listener or lost the last one since the task last looked.
    /// `None` without a connection: a new connection subscribes to all channels.
    changed: Option<Vec<Arc<str>>>,
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
        let mut map = lock(&self.map);
        let changed = map.changed.as_mut().map(std::mem::take);
        let is_used = |channel: &Arc<str>| map.listeners.contains_key(channel);
        changed.into_iter().flatten().partition(is_used)
    }

    /// Completes when somebody listens.
    async fn in_use(&self) {
        while lock(&self.map).listeners.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Begins to note changes for a new connection, which has no subscriptions.
    fn connected(&self) {
        let mut map = lock(&self.map);
        map.changed = Some(map.listeners.keys().cloned().collect());
    }

    fn disconnected(&self) {
        let mut map = lock(&self.map);
        map.changed = None;
        let all: Vec<_> = map.listeners.values().flatten().cloned().collect();
        drop(map);
        all.iter().for_each(|listener| listener(Heard::Lost));
    }

    /// Listeners take locks of their own, in which they also subscribe: none is held here.
    fn tell(&self, channel: &str, what: Heard) {
        let listeners = lock(&self.map).listeners.get(channel).cloned();
        listeners.iter().flatten().for_each(|it| it(what));
    }
}

/// From the end of a connection to the next attempt. Up to as much is added at random, so that not
/// all processes subscribe at the same time.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens over the connection that also carries the calls, and again after each reconnect.
async fn listen(connection: Connection, channels: Arc<Channels>) {
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
        channels.tell(&channel, Heard::Message);
    }
}

/// Keeps the subscriptions up to date, until the connection is lost.
async fn subscribe(link: &Link, channels: &Channels) -> Option<()> {
    let mut subscribed = HashSet::new();
    loop {
        let (used, mut unused) = channels.next_changes().await;
        let mut new = used.clone();
        new.retain(|name| subscribed.insert(Arc::clone(name)));
        link.subscribe(&new, true).await?;
        used.iter()
            .for_each(|name| channels.tell(name, Heard::Subscribed));
        unused.retain(|name| subscribed.remove(name));
        link.subscribe(&unused, false).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_do_not_pile_up_without_a_connection() {
        let subscriber = Subscriber {
            channels: Arc::default(),
            _task: OwnedTask(tokio::spawn(async {}).abort_handle()),
        };
        let channels = &subscriber.channels;
        let pass = || drop(subscriber.subscribe("passing", |_| {}));
        (0..1_000).for_each(|_| pass());
        assert_eq!(channels.take_changes(), (vec![], vec![]));

        let _stays = subscriber.subscribe("stays", |_| {});
        channels.connected();
        assert_eq!(channels.take_changes(), (vec!["stays".into()], vec![]));
        pass();
        assert_eq!(channels.take_changes().1.len(), 2, "come and gone");
        pass();
        channels.disconnected();
        (0..1_000).for_each(|_| pass());
        assert_eq!(channels.take_changes(), (vec![], vec![]));
        assert_eq!(lock(&channels.map).listeners.len(), 1);
    }
}
