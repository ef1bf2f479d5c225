use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{RedisError, RedisResult};
use tokio::time::{sleep, timeout};

use super::channels::Channels;
use crate::connection::Calls;
use crate::jitter;

/// How long the server may take to answer.
const ANSWER: Duration = Duration::from_secs(1);
/// From the end of a connection to the next attempt, and up to twice that: not all processes at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects, listens, and connects again.
pub(super) async fn run(calls: Calls, channels: Arc<Channels>) {
    loop {
        channels.wanted().await;
        if let Ok((link, at)) = in_time(calls.listen()).await {
            channels.begin();
            let (sink, stream) = link.split();
            tokio::select! {
                () = hear(stream, &channels) => {}
                _ = tell(sink, &channels) => {}
                () = calls.left(&at) => {}
            }
            channels.lost();
        }
        sleep(PAUSE + jitter::up_to(PAUSE)).await;
    }
}

/// Until the connection is lost.
async fn hear(mut stream: PubSubStream, channels: &Channels) {
    while let Some(message) = stream.next().await {
        channels.heard(message.get_channel_name());
    }
}

/// Tells the server what is listened to, until the connection is lost.
async fn tell(mut sink: PubSubSink, channels: &Channels) -> RedisResult<()> {
    let mut subscribed = HashSet::new();
    loop {
        let (wanted, others) = channels.changes().await;
        let new = wanted
            .iter()
            .filter(|channel| !subscribed.contains(*channel));
        let new: Vec<&str> = new.map(|channel| &**channel).collect();
        if !new.is_empty() {
            in_time(sink.subscribe(new)).await?;
        }
        subscribed.extend(wanted.iter().cloned());
        channels.listening(&wanted);
        let old = others
            .iter()
            .filter(|channel| subscribed.contains(*channel));
        let old: Vec<&str> = old.map(|channel| &**channel).collect();
        if !old.is_empty() {
            in_time(sink.unsubscribe(old)).await?;
        }
        for channel in &others {
            subscribed.remove(channel);
        }
    }
}

async fn in_time<T>(work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let done = timeout(ANSWER, work).await;
    done.unwrap_or_else(|_| Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))))
}
