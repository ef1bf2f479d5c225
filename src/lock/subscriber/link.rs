use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::broadcast::Receiver;
use tokio::time::{sleep, timeout};

use super::channels::Channels;
use crate::connection::{Connection, Link};
use crate::jitter;
use crate::lock::background::caught;

/// How long the server may take to confirm a subscription.
const MAX_CONFIRMATION: Duration = Duration::from_secs(1);
/// From the end of a connection to the next attempt, and up to twice that: not all processes at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens over the connection that also carries the questions, and again after each reconnect.
pub(super) async fn run(connection: Connection, channels: Arc<Channels>) {
    loop {
        channels.wanted().await;
        if let Some(link) = connection.link() {
            let messages = link.messages();
            channels.begin();
            caught(async {
                tokio::select! {
                    () = hear(messages, &channels) => {}
                    _ = subscribe(&link, &channels) => {}
                    () = link.closed() => {}
                }
            })
            .await;
            channels.lost();
        }
        sleep(PAUSE + jitter::up_to(PAUSE)).await;
    }
}

/// Until messages are missed.
async fn hear(mut messages: Receiver<Arc<str>>, channels: &Channels) {
    while let Ok(channel) = messages.recv().await {
        channels.heard(&channel);
    }
}

/// Subscribes to what is listened to, and unsubscribes from the rest, until the connection is lost.
async fn subscribe(link: &Link, channels: &Channels) -> RedisResult<()> {
    let mut subscribed = HashSet::new();
    loop {
        let (wanted, others) = channels.changes().await;
        let new: Vec<_> = wanted
            .iter()
            .filter(|name| !subscribed.contains(*name))
            .cloned()
            .collect();
        if !new.is_empty() {
            in_time(link.subscribe(&new, true)).await?;
        }
        subscribed.extend(new);
        channels.listening(&wanted);
        let old: Vec<_> = others
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
