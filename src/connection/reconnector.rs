use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, select_all};
use redis::{ConnectionInfo, RedisError, RedisResult};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::link::{Link, Role};
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::{Master, Sentinels};
use crate::jitter;

/// From one attempt to connect to the next, however the first one ended; spread over processes by
/// up to half of it.
pub(super) const PAUSE: Duration = Duration::from_millis(120);
/// How long one attempt may take.
const MAX_ATTEMPT: Duration = Duration::from_secs(2);
/// How long one attempt is waited for before the next one begins beside it.
const MIN_PATIENCE: Duration = Duration::from_millis(300);
/// How long a connection may be silent while something is outstanding, before another one is made
/// beside it.
const MIN_SILENCE: Duration = Duration::from_millis(100);
const MAX_SILENCE: Duration = Duration::from_secs(1);
/// How often a silent connection is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How things stand with the connection to one server.
#[derive(Clone)]
pub(super) enum State {
    Up(Link),
    /// The first attempt, or the first after a loss, is under way: worth waiting for.
    Connecting,
    Down(RedisError),
}

/// Which server is connected to.
#[derive(Clone)]
pub(super) enum Target {
    Server(Box<ConnectionInfo>),
    /// Looked up anew at every attempt.
    #[cfg(feature = "sentinel")]
    Master(Arc<Sentinels>),
}

/// The shortest timeout in use at one server. It decides how long silence is tolerated.
#[derive(Debug)]
pub(super) struct ShortestTimeout {
    micros: AtomicU64,
    /// Notified of a shorter one.
    changed: Notify,
}

impl Default for ShortestTimeout {
    fn default() -> Self {
        Self {
            micros: AtomicU64::new(u64::MAX),
            changed: Notify::new(),
        }
    }
}

impl ShortestTimeout {
    pub(super) fn note(&self, timeout: Duration) {
        let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        if micros < self.micros.load(Ordering::Relaxed) {
            self.micros.fetch_min(micros, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    fn silence(&self) -> Duration {
        let shortest = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        shortest.saturating_mul(2).clamp(MIN_SILENCE, MAX_SILENCE)
    }
}

/// The background task that keeps a connection to one server: it connects, watches the connection,
/// and connects again.
pub(super) struct Reconnector {
    pub(super) target: Target,
    pub(super) preload: Preload,
    pub(super) state: watch::Sender<State>,
    pub(super) shortest_timeout: Arc<ShortestTimeout>,
    /// Notified when something is wrong with the server.
    pub(super) alarm: Arc<Notify>,
    pub(super) attempts: Attempts,
}

/// What a new connection has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Opened,
    /// That the server calls scripts: otherwise it is no better than the connection beside which it
    /// was made.
    ScriptCall,
}

/// The attempts to connect that are under way: at most two. The first of them goes on, since the
/// server may have become slow. The second one makes room for a later one, which is answered at
/// once when the server is back.
#[derive(Default)]
pub(super) struct Attempts {
    under_way: Vec<BoxFuture<'static, (Instant, RedisResult<Link>)>>,
    next: Option<Instant>,
    patience: Option<Duration>,
}

impl Attempts {
    /// The outcome of an attempt; begins one whenever it is time to.
    async fn next(&mut self, target: &Target, preload: Preload, proof: Proof) -> RedisResult<Link> {
        loop {
            let patience = self.patience.unwrap_or(MIN_PATIENCE);
            let next = self.next.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                (at, (begun, outcome)) = first_of(&mut self.under_way) => {
                    drop(self.under_way.remove(at));
                    if outcome.is_ok() {
                        self.under_way.clear();
                        self.patience = Some(patience_after(begun.elapsed()));
                    }
                    self.next = Some(begun + PAUSE + jitter::up_to(PAUSE / 2));
                    return outcome;
                }
                () = sleep_until(next) => {
                    let is_beside = !self.under_way.is_empty();
                    self.under_way.truncate(1);
                    self.begin(target.clone(), preload, proof);
                    self.next = Some(Instant::now() + patience);
                    if is_beside {
                        return Err(late(patience));
                    }
                }
            }
        }
    }

    fn begin(&mut self, target: Target, preload: Preload, proof: Proof) {
        let begun = Instant::now();
        let attempt = within(MAX_ATTEMPT, async move {
            let link = match &target {
                Target::Server(info) => {
                    Link::open(ConnectionInfo::clone(info), Role::Any, 0, preload).await?
                }
                #[cfg(feature = "sentinel")]
                Target::Master(sentinels) => {
                    let Master { server, epoch } = sentinels.master().await?;
                    Link::open(server, Role::Master, epoch, preload).await?
                }
            };
            if proof == Proof::ScriptCall {
                link.calls_scripts().await?;
            }
            Ok(link)
        });
        self.under_way
            .push(Box::pin(async move { (begun, attempt.await) }));
    }
}

/// The first of these that ends, if any is under way, and its place.
async fn first_of<T>(under_way: &mut [BoxFuture<'static, T>]) -> (usize, T) {
    if under_way.is_empty() {
        return std::future::pending().await;
    }
    let (outcome, at, _) = select_all(under_way).await;
    (at, outcome)
}

/// What became of a connection that was silent.
enum Silence {
    /// Another one answers.
    Replaced(Link),
    /// It has answered after all.
    Broken,
    Lost,
}

impl Reconnector {
    pub(super) async fn run(mut self) {
        let mut link = self.connect().await;
        loop {
            // At the latest with this task.
            let closing = Closing(link.clone());
            link = match self.watch(&link).await {
                Some(other) => {
                    tokio::spawn(linger(closing));
                    other
                }
                None => self.connect().await,
            };
        }
    }

    /// One attempt after the other until one succeeds.
    async fn connect(&mut self) -> Link {
        loop {
            let made = self
                .attempts
                .next(&self.target, self.preload, Proof::Opened);
            match made.await {
                Ok(link) => {
                    self.state.send_replace(State::Up(link.clone()));
                    return link;
                }
                Err(error) => self.fail(error),
            }
        }
    }

    fn fail(&self, error: RedisError) {
        self.state.send_replace(State::Down(error));
        self.alarm.notify_one();
    }

    /// Completes when the connection is lost or leads to the wrong server, or with another one that
    /// has taken its place.
    async fn watch(&mut self, link: &Link) -> Option<Link> {
        loop {
            let is_silent = tokio::select! {
                () = link.closed() => false,
                () = moved(&self.target, link) => false,
                () = silence(link, &self.shortest_timeout) => true,
            };
            self.alarm.notify_one();
            let outcome = match is_silent {
                true => self.replace(link).await,
                false => Silence::Lost,
            };
            match outcome {
                Silence::Broken => {}
                Silence::Replaced(other) => return Some(other),
                Silence::Lost => {
                    self.state.send_replace(State::Connecting);
                    return None;
                }
            }
        }
    }

    /// Makes another connection beside one that is silent. The one that answers first is kept.
    async fn replace(&mut self, link: &Link) -> Silence {
        loop {
            let made = self
                .attempts
                .next(&self.target, self.preload, Proof::ScriptCall);
            let made = tokio::select! {
                biased;
                () = heard(link, &self.shortest_timeout) => return self.keep(link),
                () = link.closed() => return Silence::Lost,
                made = made => made,
            };
            match made {
                Ok(other) => {
                    // A server that goes on after a pause answers over both, here first.
                    let heard = heard(link, &self.shortest_timeout);
                    if timeout(2 * LOOK_AGAIN, heard).await.is_ok() {
                        return self.keep(link);
                    }
                    self.state.send_replace(State::Up(other.clone()));
                    return Silence::Replaced(other);
                }
                // Callers with more time than the one whose timeout is the shortest may still be
                // answered here.
                Err(error) if error.is_timeout() && link.silent_for() < MAX_SILENCE => {}
                Err(error) => self.fail(error),
            }
        }
    }

    fn keep(&mut self, link: &Link) -> Silence {
        self.attempts.under_way.clear();
        self.state.send_replace(State::Up(link.clone()));
        Silence::Broken
    }
}

/// Keeps a silent connection open for a while after another one has taken its place: patient
/// callers may still be answered.
async fn linger(silent: Closing) {
    let end = Instant::now() + MAX_SILENCE;
    while silent.0.shared.flights.number() > 0 && Instant::now() < end {
        sleep(LOOK_AGAIN).await;
    }
}

struct Closing(Link);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Completes when something is outstanding and nothing at all has arrived for too long.
async fn silence(link: &Link, shortest_timeout: &ShortestTimeout) {
    loop {
        let limit = shortest_timeout.silence();
        let silent = link.silent_for();
        if silent >= limit {
            return;
        }
        tokio::select! {
            () = sleep((limit - silent).max(limit / 4)) => {}
            () = shortest_timeout.changed.notified() => {}
        }
    }
}

/// Completes when something arrives on a connection that was silent.
async fn heard(link: &Link, shortest_timeout: &ShortestTimeout) {
    while link.silent_for() >= shortest_timeout.silence() {
        sleep(LOOK_AGAIN).await;
    }
}

/// Completes when the server is not the one any more that is to be connected to, though it may
/// still answer.
async fn moved(target: &Target, link: &Link) {
    match target {
        Target::Server(_) => {
            let _ = link;
            std::future::pending().await
        }
        #[cfg(feature = "sentinel")]
        Target::Master(sentinels) => sentinels.moved(&link.shared.at, link.shared.epoch).await,
    }
}

fn patience_after(success: Duration) -> Duration {
    (8 * success).clamp(MIN_PATIENCE, MAX_ATTEMPT)
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

    #[test]
    fn silence_is_tolerated_for_two_timeouts_within_bounds() {
        let silence_at = |millis| {
            let shortest = ShortestTimeout::default();
            shortest.note(Duration::from_millis(millis));
            shortest.silence().as_millis()
        };
        assert_eq!(silence_at(1), 100);
        assert_eq!(silence_at(200), 400);
        assert_eq!(silence_at(60_000), 1_000);
    }
}
