use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, RedisError, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::open::{Role, open};
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::jitter;

/// From one attempt to connect to the next, however the first one ended; spread over processes by up
/// to half of it.
pub(super) const PAUSE: Duration = Duration::from_millis(120);
/// How long one attempt may take before one has succeeded, and at most.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);
/// How long one attempt may take at least.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(300);

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
    /// Which of all connections this is: a loss may be told more than once, and late.
    pub(super) generation: u64,
    pub(super) since: std::time::Instant,
    /// The server's host and port.
    #[cfg(feature = "sentinel")]
    pub(super) at: Arc<str>,
}

/// The latest generation that is lost.
#[derive(Clone)]
pub(super) struct Losses(watch::Sender<u64>);

impl Losses {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(super) fn tell(&self, generation: u64) {
        self.0.send_if_modified(|known| {
            let news = generation > *known;
            *known = generation.max(*known);
            news
        });
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
    losses: Losses,
    /// Rung when there is no connection any more.
    alarm: Arc<Notify>,
    generation: u64,
    next_attempt: Instant,
    patience: Duration,
}

impl Keeper {
    pub(super) fn new(
        target: Target,
        preload: Preload,
        losses: Losses,
        alarm: Arc<Notify>,
    ) -> Self {
        Self {
            target,
            preload,
            state: watch::Sender::new(State::Connecting),
            losses,
            alarm,
            generation: 0,
            next_attempt: Instant::now(),
            patience: LONGEST_ATTEMPT,
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) async fn run(mut self) {
        let mut losses = self.losses.0.subscribe();
        loop {
            self.connect().await;
            let generation = self.generation;
            tokio::select! {
                lost = losses.wait_for(|lost| *lost >= generation) => {
                    if lost.is_err() {
                        return;
                    }
                }
                () = self.moved() => {}
            }
            self.state.send_replace(State::Connecting);
        }
    }

    /// Completes when the server is not the one any more that is to be connected to, though it may still answer.
    async fn moved(&self) {
        match &self.target {
            Target::Server(_) => std::future::pending().await,
            #[cfg(feature = "sentinel")]
            Target::Master(sentinels) => {
                let at = match &*self.state.borrow() {
                    State::Up(link) => Arc::clone(&link.at),
                    _ => return,
                };
                sentinels.moved(&at).await;
            }
        }
    }

    async fn connect(&mut self) {
        loop {
            sleep_until(self.next_attempt).await;
            let begun = Instant::now();
            self.next_attempt = begun + PAUSE + jitter::up_to(PAUSE / 2);
            self.generation += 1;
            match within(self.patience, self.attempt()).await {
                Ok(link) => {
                    self.patience = patience_after(begun.elapsed());
                    self.state.send_replace(State::Up(link));
                    return;
                }
                Err(error) => {
                    self.state.send_replace(State::Down(error));
                    self.alarm.notify_one();
                }
            }
        }
    }

    async fn attempt(&self) -> RedisResult<Link> {
        let (info, role) = match &self.target {
            Target::Server(info) => (ConnectionInfo::clone(info), Role::Any),
            #[cfg(feature = "sentinel")]
            Target::Master(sentinels) => (sentinels.master().await?, Role::Master),
        };
        open(info, role, self.preload, self.generation, &self.losses).await
    }
}

/// A stuck attempt must not keep the next one waiting for long: the server may be another one by then.
fn patience_after(success: Duration) -> Duration {
    (8 * success).clamp(SHORTEST_ATTEMPT, LONGEST_ATTEMPT)
}

pub(super) async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let late = |_| {
        let late = format!("no connection within {timeout:?}");
        let late = std::io::Error::new(std::io::ErrorKind::TimedOut, late);
        Err(RedisError::from(late))
    };
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_takes_eight_times_the_last_success_within_bounds() {
        let millis = Duration::from_millis;
        assert_eq!(patience_after(millis(1)), millis(300));
        assert_eq!(patience_after(millis(100)), millis(800));
        assert_eq!(patience_after(millis(900)), millis(2_000));
    }
}
