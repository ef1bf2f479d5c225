use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::broadcast::Receiver;
use tokio::time::{sleep, timeout};

use super::channels::Channels;
use crate::connection::{Connection, Link};
use crate::jitter;

/// How long the server may take to confirm a subscription.
const MAX_CONFIRMATION: Duration = Duration::from_secs(1);
/// From the end of a connection to the next attempt. Up to as much is added at random, so that not
/// all processes subscribe at the same time.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens over the connection that also carries the calls, and again after each reconnect.
pub(in crate::lock) async fn listen(connection: Connection, channels: Arc<Channels>) {
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
        let new: Vec<_> = used
            .iter()
            .filter(|name| !subscribed.contains(*name))
            .cloned()
            .collect();
        if !new.is_empty() {
            in_time(link.subscribe(&new, true)).await?;
        }
        subscribed.extend(new);
        channels.subscribed(&used);
        let old: Vec<_> = unused
            .iter()
            .filter(|name| subscribed.remove(*name))
            .cloned()
            .collect();
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
