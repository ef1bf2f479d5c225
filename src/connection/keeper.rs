use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, RedisError, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::open::{Role, open};
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::{Master, Sentinels};
use crate::jitter;

/// From one attempt to connect to the next, however the first one ended; spread over processes by up
/// to half of it.
pub(super) const PAUSE: Duration = Duration::from_millis(120);
/// How long one attempt may take at most.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);
/// How long one attempt is waited for at least, until the next one begins.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(300);

/// A connection, and how long it took to make it.
type Attempt = BoxFuture<'static, RedisResult<(Link, Duration)>>;

/// How things stand with the connection.
#[derive(Clone)]
pub(super) enum State {
    Up(Link),
    /// The first attempt, or the first after a loss, is under way: worth waiting for.
    Connecting,
    Down(RedisError),
}

#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    pub(super) loss: Loss,
    pub(super) since: std::time::Instant,
    /// The server's host and port.
    #[cfg(feature = "sentinel")]
    pub(super) at: Arc<str>,
    /// Of the failover that made it the master, as a sentinel has said; 0 for any other server.
    #[cfg(feature = "sentinel")]
    pub(super) epoch: u64,
}

/// Whether a connection is lost: that may be told more than once, and late.
#[derive(Clone)]
pub(super) struct Loss(watch::Sender<bool>);

impl Loss {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(super) fn tell(&self) {
        self.0.send_replace(true);
    }

    async fn told(&self) {
        // It cannot fail: there is a sender here.
        let _ = self.0.subscribe().wait_for(|is_lost| *is_lost).await;
    }
}

/// Which server is connected to.
#[derive(Clone)]
pub(super) enum Target {
    Server(Box<ConnectionInfo>),
    /// Looked up anew at every attempt.
    #[cfg(feature = "sentinel")]
    Master(Arc<Sentinels>),
}

/// The background task: connects, waits for a loss, connects again.
pub(super) struct Keeper {
    target: Target,
    preload: Preload,
    state: watch::Sender<State>,
    /// Rung when there is no connection any more.
    alarm: Arc<Notify>,
    next_attempt: Instant,
    /// How long an attempt is waited for, until the next one begins.
    patience: Duration,
}

impl Keeper {
    pub(super) fn new(target: Target, preload: Preload, alarm: Arc<Notify>) -> Self {
        Self {
            target,
            preload,
            state: watch::Sender::new(State::Connecting),
            alarm,
            next_attempt: Instant::now(),
            patience: SHORTEST_PATIENCE,
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) async fn run(mut self) {
        loop {
            let link = self.connect().await;
            self.state.send_replace(State::Up(link.clone()));
            tokio::select! {
                () = link.loss.told() => {}
                () = self.moved(&link) => {}
            }
            self.state.send_replace(State::Connecting);
        }
    }

    /// Completes when the server is not the one any more that is to be connected to, though it may still answer.
    async fn moved(&self, link: &Link) {
        match &self.target {
            Target::Server(_) => {
                let _ = link;
                std::future::pending().await
            }
            #[cfg(feature = "sentinel")]
            Target::Master(sentinels) => sentinels.moved(&link.at, link.epoch).await,
        }
    }

    /// One attempt after the other. One that takes longer than the last success lets suspect does not keep the next
    /// ones waiting, since the server may be another one by then; and goes on beside them, since it may have become slow.
    async fn connect(&mut self) -> Link {
        let mut slow = None;
        loop {
            tokio::select! {
                () = sleep_until(self.next_attempt) => {}
                made = success(&mut slow) => return self.made(made),
            }
            self.next_attempt = Instant::now() + PAUSE + jitter::up_to(PAUSE / 2);
            let mut attempt = attempt(self.target.clone(), self.preload);
            let outcome = tokio::select! {
                biased;
                outcome = &mut attempt => outcome,
                made = success(&mut slow) => Ok(made),
                () = sleep(self.patience) => {
                    slow.get_or_insert(attempt);
                    Err(late(self.patience))
                }
            };
            match outcome {
                Ok(made) => return self.made(made),
                Err(error) => {
                    self.state.send_replace(State::Down(error));
                    self.alarm.notify_one();
                }
            }
        }
    }

    fn made(&mut self, (link, took): (Link, Duration)) -> Link {
        self.patience = patience_after(took);
        link
    }
}

fn attempt(target: Target, preload: Preload) -> Attempt {
    let begun = Instant::now();
    let attempt = async move {
        let link = match &target {
            Target::Server(info) => open(ConnectionInfo::clone(info), Role::Any, preload).await?,
            #[cfg(feature = "sentinel")]
            Target::Master(sentinels) => {
                let Master { server, epoch } = sentinels.master().await?;
                let link = open(server, Role::Master, preload).await?;
                Link { epoch, ..link }
            }
        };
        Ok((link, begun.elapsed()))
    };
    Box::pin(within(LONGEST_ATTEMPT, attempt))
}

/// Completes when this attempt succeeds. One that fails is forgotten.
async fn success(slow: &mut Option<Attempt>) -> (Link, Duration) {
    if let Some(attempt) = slow {
        let outcome = attempt.await;
        *slow = None;
        if let Ok(made) = outcome {
            return made;
        }
    }
    std::future::pending().await
}

fn patience_after(success: Duration) -> Duration {
    (8 * success).clamp(SHORTEST_PATIENCE, LONGEST_ATTEMPT)
}

pub(super) async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(|_| Err(late(timeout)))
}

fn late(timeout: Duration) -> RedisError {
    let late = format!("no connection within {timeout:?}");
    let late = std::io::Error::new(std::io::ErrorKind::TimedOut, late);
    RedisError::from(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_waited_for_eight_times_the_last_success_within_bounds() {
        let millis = Duration::from_millis;
        assert_eq!(patience_after(millis(1)), millis(300));
        assert_eq!(patience_after(millis(100)), millis(800));
        assert_eq!(patience_after(millis(900)), millis(2_000));
    }
}
