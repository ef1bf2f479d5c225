//! Who hears the messages of channels, and the background tasks that subscribe to these channels.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::time::sleep;

use super::connection::Connection;
use super::link::{Link, is_not_available};
use super::node::Node;
use crate::jitter;
use crate::sync::{OwnedTask, lock};

/// Hears the messages of channels. Its tasks end when this and its subscriptions are dropped.
///
/// One server sends them over the connection that also carries the calls. A cluster sends them at
/// the master of each channel's slot, and over another connection: when a slot moves, the server
/// ends its subscriptions without being asked, which the client takes for the reply to a call.
///
/// ```text
/// channel -> the master of its slot -> Home: a connection, and a task that subscribes there
///                  ^
///            another task: moves channels whose slots have moved
/// ```
pub struct Subscriber {
    homes: Arc<Homes>,
    _task: Option<OwnedTask>,
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
    homes: Arc<Homes>,
}

type Listener = dyn Fn(Heard) + Send + Sync;
type Listeners = Vec<Arc<Listener>>;

impl Subscriber {
    /// Starts its tasks in the runtime of the connection.
    pub fn new(connection: &Connection) -> Self {
        let homes = Arc::new(Homes {
            connection: connection.clone(),
            all: Mutex::default(),
        });
        let task = connection.layouts().map(|mut layouts| {
            let homes = Arc::clone(&homes);
            let follows = async move {
                while layouts.changed().await.is_ok() {
                    homes.regroup();
                }
            };
            OwnedTask(connection.runtime().spawn(follows).abort_handle())
        });
        Self { homes, _task: task }
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
            homes: Arc::clone(&self.homes),
        };
        let add = |all: &mut Listeners| all.push(Arc::clone(&subscription.listener));
        self.homes.change(&subscription.channel, add);
        subscription
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let is_other = |it: &Arc<Listener>| !Arc::ptr_eq(it, &self.listener);
        self.homes.change(&self.channel, |all| all.retain(is_other));
    }
}

/// Where channels are listened to.
struct Homes {
    connection: Connection,
    all: Mutex<Vec<Home>>,
}

/// A server at which channels are listened to.
struct Home {
    /// As the connection knows it. `None`: the masters of these channels are not known.
    node: Option<Arc<Node>>,
    channels: Arc<Channels>,
    _task: Option<OwnedTask>,
}

impl Homes {
    /// Changes the listeners of a channel.
    fn change(&self, channel: &Arc<str>, change: impl FnOnce(&mut Listeners)) {
        let mut all = lock(&self.all);
        let mut known = all.iter().map(|home| &home.channels);
        let known = known.find(|channels| channels.has(channel)).cloned();
        let channels = known.unwrap_or_else(|| self.home_of(channel, &mut all));
        channels.change(channel, change);
    }

    /// The channels of the home to which this one belongs.
    fn home_of(&self, channel: &str, all: &mut Vec<Home>) -> Arc<Channels> {
        let node = self.connection.node_of(channel);
        let at = all.iter().position(|home| home.is_at(&node));
        let at = at.unwrap_or_else(|| {
            all.push(self.start(node));
            all.len() - 1
        });
        Arc::clone(&all[at].channels)
    }

    fn start(&self, node: Option<Arc<Node>>) -> Home {
        let (connection, channels) = (&self.connection, Arc::<Channels>::default());
        let task = node.clone().map(|node| {
            let listens = listen(node, connection.is_cluster(), Arc::clone(&channels));
            OwnedTask(connection.runtime().spawn(listens).abort_handle())
        });
        Home {
            node,
            channels,
            _task: task,
        }
    }

    /// Moves channels to the masters that their slots have now.
    fn regroup(&self) {
        let mut all = lock(&self.all);
        let mut moved = Vec::new();
        for home in &*all {
            let is_elsewhere = |name: &Arc<str>| !home.is_at(&self.connection.node_of(name));
            for name in home.channels.names().into_iter().filter(is_elsewhere) {
                let mut listeners = Listeners::new();
                home.channels.change(&name, |all| listeners.append(all));
                moved.push((name, listeners));
            }
        }
        for (name, listeners) in &moved {
            let channels = self.home_of(name, &mut all);
            channels.change(name, |all| all.extend_from_slice(listeners));
        }
        all.retain(|home| !home.channels.names().is_empty());
        drop(all);
        let lost = moved.iter().flat_map(|(_, listeners)| listeners);
        lost.for_each(|listener| listener(Heard::Lost));
    }
}

impl Home {
    fn is_at(&self, node: &Option<Arc<Node>>) -> bool {
        self.node.as_ref().map(Arc::as_ptr) == node.as_ref().map(Arc::as_ptr)
    }
}

/// The channels that are listened to at one server.
#[derive(Default)]
struct Channels {
    map: Mutex<ChannelMap>,
    /// Notified when a channel gets its first listener, or loses the last one.
    changed: Notify,
}

#[derive(Default)]
struct ChannelMap {
    listeners: HashMap<Arc<str>, Listeners>,
    /// The channels that got their first listener or lost the last one since the task last looked.
    /// `None` without a connection: a new connection subscribes to all channels.
    changed: Option<Vec<Arc<str>>>,
}

impl Channels {
    fn has(&self, channel: &str) -> bool {
        lock(&self.map).listeners.contains_key(channel)
    }

    fn names(&self) -> Vec<Arc<str>> {
        lock(&self.map).listeners.keys().cloned().collect()
    }

    /// Changes the listeners of a channel, and tells the task of the first and the last one.
    fn change(&self, channel: &Arc<str>, change: impl FnOnce(&mut Listeners)) {
        let mut map = lock(&self.map);
        let mut listeners = map.listeners.remove(channel).unwrap_or_default();
        let was_used = !listeners.is_empty();
        change(&mut listeners);
        let is_used = !listeners.is_empty();
        if is_used {
            map.listeners.insert(Arc::clone(channel), listeners);
        }
        if was_used != is_used {
            let changed = map.changed.iter_mut();
            changed.for_each(|it| it.push(Arc::clone(channel)));
            self.changed.notify_one();
        }
    }

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

/// Listens at one server, and again after each loss. At a master of a cluster that is over another
/// connection, whose subscriptions end with it.
async fn listen(node: Arc<Node>, is_of_cluster: bool, channels: Arc<Channels>) {
    loop {
        channels.in_use().await;
        let shared = node.link();
        let link = if is_of_cluster && shared.is_some() {
            node.beside().await.ok()
        } else {
            shared.clone()
        };
        if let (Some(shared), Some(link)) = (shared, link) {
            let messages = link.messages();
            channels.connected();
            tokio::select! {
                () = receive(messages, &channels) => {}
                () = subscribe(&link, is_of_cluster, &channels) => {}
                () = link.closed() => {}
                () = shared.closed() => {}
                // Over a shared link, the reconnector does that.
                never = link.stay_logged_in(), if is_of_cluster => match never {},
            }
            channels.disconnected();
            // A slot may have moved.
            node.failed.notify_one();
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

/// The command by which a script announces something on a channel. In a cluster it reaches, and
/// counts, those who listen at the master of the channel's slot.
///
/// Servers before Redis 7.0 do not know `SPUBLISH`, and users may not have it: then the script
/// calls `PUBLISH`, and listeners subscribe by `SUBSCRIBE`.
pub const fn publish_command(is_cluster: bool) -> &'static str {
    if is_cluster { "SPUBLISH" } else { "PUBLISH" }
}

/// Commands that subscribe to a channel and unsubscribe from it.
const PLAIN: [&str; 2] = ["SUBSCRIBE", "UNSUBSCRIBE"];
/// Those of a cluster, since Redis 7.0: with them, messages stay at the master of their slot.
const SHARDED: [&str; 2] = ["SSUBSCRIBE", "SUNSUBSCRIBE"];

/// Keeps the subscriptions up to date, until the server does not confirm one. What the user may not
/// hear is not heard: whoever waits also asks once a second.
async fn subscribe(link: &Link, is_of_cluster: bool, channels: &Channels) {
    let mut commands = if is_of_cluster { SHARDED } else { PLAIN };
    let mut subscribed = HashSet::new();
    loop {
        let (used, mut unused) = channels.next_changes().await;
        let mut new = used.clone();
        new.retain(|name| subscribed.insert(Arc::clone(name)));
        let mut confirmed = link.subscribe(commands[0], &new).await;
        if commands == SHARDED && confirmed.as_ref().is_err_and(is_not_available) {
            commands = PLAIN;
            confirmed = link.subscribe(commands[0], &new).await;
        }
        if confirmed.is_err_and(|error| !is_not_available(&error)) {
            return;
        }
        used.iter()
            .for_each(|name| channels.tell(name, Heard::Subscribed));
        unused.retain(|name| subscribed.remove(name));
        // A refusal says that the slot is elsewhere, and so are its subscriptions.
        let _ = link.subscribe(commands[1], &unused).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_do_not_pile_up_without_a_connection() {
        let channels = Channels::default();
        let add = |name: &str| channels.change(&name.into(), |all| all.push(Arc::new(|_| {})));
        let pass = || {
            add("passing");
            channels.change(&"passing".into(), Listeners::clear);
        };
        (0..1_000).for_each(|_| pass());
        assert_eq!(channels.take_changes(), (vec![], vec![]));

        add("stays");
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
