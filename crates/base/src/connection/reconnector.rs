use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, select_all};
use redis::{RedisError, RedisResult, cmd};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::address::Server;
use super::link::{Link, Role};
use super::node::LinkState;
use super::scripts::Preload;
#[cfg(feature = "sentinel")]
use super::sentinel::{Master, Sentinels};
use super::silence::{MAX_SILENCE, Moment, ShortestTimeout};
use crate::deadline::Deadline;
use crate::jitter;
#[cfg(feature = "tracing")]
use crate::trace::EVICTS;
use crate::trace::event;

/// How long a reply on a silent connection is waited for once another connection answers.
const MAX_BEHIND: Duration = Duration::from_millis(10);

/// The background task that keeps a connection to one server: it connects, watches the connection,
/// and connects again.
///
/// A connection that breaks is replaced immediately. A silent one is not given up before another
/// one has proved that the server executes scripts over it: the server may just be slow, and then
/// the silent connection is as good as any. One to a server that takes no writes is kept as well,
/// until another one is there: callers hear what the server says, and at once when it writes again.
///
/// A node has two tasks; this one alone opens and replaces links. A link is silent if a request is
/// outstanding and nothing arrives for max(100 ms, twice the shortest timeout in use), at most one
/// second. An earlier version counted callers that gave up, and twelve impatient clients made a
/// healthy server look dead 19 times in three seconds (`docs/evidence/dependencies.md`). A link
/// whose last reply is old is in doubt: what is to be sent waits for a reply or another link.
pub(super) struct Reconnector {
    pub(super) target: Target,
    pub(super) preload: Preload,
    pub(super) state: watch::Sender<LinkState>,
    pub(super) shortest_timeout: Arc<ShortestTimeout>,
    /// Notified when the connection is lost or silent, and when an attempt to connect has failed.
    ///
    /// In a cluster the watcher then asks for the layout; a single server has no listener.
    pub(super) failed: Arc<Notify>,
    pub(super) attempts: ConnectAttempts,
    /// Whether it was logged that the server evicts keys.
    pub(super) has_warned: bool,
}

/// How the silence of a connection ended.
enum SilenceEnd {
    /// Another connection answers, and has taken its place.
    Replaced(Link),
    /// A reply has arrived after all.
    ReplyArrived,
    /// The connection is closed.
    Closed,
}

impl Reconnector {
    /// Keeps a connection until the task is aborted.
    ///
    /// ```text
    /// connect -> Up -> watch -> closed, or the master has moved -> connect
    ///                        -> silent -> replace -> another link answers first -> watch it
    ///                                             -> a reply arrives after all -> keep watching
    ///                        -> old, and not proven -> replace, as above
    ///                        -> takes no writes -> pause -> replace -> another link -> watch it
    /// ```
    pub(super) async fn run(mut self) {
        let mut link = self.connect().await;
        loop {
            // If this task is aborted, the connection is closed, too.
            let guard = CloseOnDrop(link.clone());
            let watched = tokio::select! {
                watched = self.watch(&link) => watched,
                never = link.stay_logged_in() => match never {},
            };
            link = match watched {
                Some(other) => {
                    tokio::spawn(close_when_answered(guard));
                    other
                }
                None => self.connect().await,
            };
        }
    }

    /// Makes one attempt after the other until one succeeds.
    async fn connect(&mut self) -> Link {
        loop {
            let attempts = &mut self.attempts;
            let attempt = attempts.next(&self.target, &self.preload, false);
            match attempt.await {
                Ok(link) => {
                    self.put_up(&link);
                    return link;
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// Publishes the link. Logs once that the server evicts keys.
    fn put_up(&mut self, link: &Link) {
        self.state.send_replace(LinkState::Up(link.clone()));
        if link.inner.evicts && !self.has_warned {
            self.has_warned = true;
            event!(warn: "{EVICTS}");
        }
    }

    /// Publishes the error of an attempt to connect: waiting questions get it.
    fn fail(&self, error: RedisError) {
        self.state
            .send_replace(LinkState::Down(error, Moment::now()));
        self.failed.notify_one();
    }

    /// Completes with `None` when the connection is lost or leads to the wrong server, or with the
    /// connection that has taken its place.
    async fn watch(&mut self, link: &Link) -> Option<Link> {
        loop {
            let is_open = tokio::select! {
                () = link.closed() => false,
                () = self.target.moved_away_from(link) => false,
                () = silence(link, &self.shortest_timeout) => true,
                () = doubt(link, &self.shortest_timeout, &self.state) => true,
                () = self.attempts.pause_without_writes(link) => true,
            };
            self.failed.notify_one();
            let end = match is_open {
                true => self.replace(link).await,
                false => SilenceEnd::Closed,
            };
            match end {
                SilenceEnd::ReplyArrived => {}
                SilenceEnd::Replaced(other) => return Some(other),
                SilenceEnd::Closed => {
                    self.state.send_replace(LinkState::Connecting);
                    return None;
                }
            }
        }
    }

    /// Makes another connection beside a silent one. The one that answers first is kept.
    ///
    /// The new link must have executed a script, because a server that is paused for writes still
    /// accepts connections and answers `PING`. While attempts fail, the silent link is kept for the
    /// questions under way; new ones get the error, unless it is a timeout in the first second of
    /// the silence. A link that takes no writes is replaced by any other, and is in use until then.
    /// So is one whose last reply is old, for which questions wait.
    async fn replace(&mut self, link: &Link) -> SilenceEnd {
        loop {
            let takes_writes = !link.inner.takes_no_writes.is_set();
            let is_old = link.inner.activity.is_old();
            let attempts = &mut self.attempts;
            let attempt = attempts.next(&self.target, &self.preload, takes_writes && !is_old);
            let outcome = tokio::select! {
                biased;
                () = link.inner.activity.not_silent(&self.shortest_timeout), if takes_writes => {
                    return self.keep(link);
                }
                () = link.closed() => return SilenceEnd::Closed,
                outcome = attempt => outcome,
            };
            match outcome {
                Ok(other) => {
                    // A server that was paused answers over both connections, over `link` first.
                    let reply = link.inner.activity.not_silent(&self.shortest_timeout);
                    let behind = if is_old { Duration::ZERO } else { MAX_BEHIND };
                    let answers = timeout(behind, reply).await.is_ok();
                    if takes_writes && answers {
                        return self.keep(link);
                    }
                    self.put_up(&other);
                    return SilenceEnd::Replaced(other);
                }
                // Questions with longer timeouts may still be answered over `link`.
                Err(error)
                    if (error.is_timeout() || !takes_writes)
                        && link.inner.activity.silent_for() < MAX_SILENCE => {}
                Err(error) => self.fail(error),
            }
        }
    }

    /// Gives up the attempts to replace a connection on which a reply has arrived.
    fn keep(&mut self, link: &Link) -> SilenceEnd {
        self.attempts.clear();
        self.put_up(link);
        SilenceEnd::ReplyArrived
    }
}

/// Closes a silent connection that was replaced once no request is outstanding, at most one
/// second later: questions with long timeouts may still be answered over it.
async fn close_when_answered(silent: CloseOnDrop) {
    let _ = timeout(MAX_SILENCE, silent.0.inner.activity.idle()).await;
}

/// Closes a connection when it is dropped.
struct CloseOnDrop(Link);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A first look that is later than this is no evidence of silence: this process stood still, and
/// may not have written what it sent, or not have read what is there. Neither is one for the sake
/// of a shorter timeout, which may be as late.
const MAX_LATE: Duration = Duration::from_millis(5);

/// Completes when the connection has been silent for longer than is tolerated.
async fn silence(link: &Link, shortest_timeout: &ShortestTimeout) {
    let (mut was_silent, mut is_on_time) = (false, false);
    loop {
        let tolerated = shortest_timeout.tolerated_silence();
        let silent = link.inner.activity.silent_for();
        let is_silent = silent >= tolerated;
        if is_silent && (was_silent || is_on_time) {
            return;
        }
        was_silent = is_silent;
        let next_look = Instant::now() + tolerated.saturating_sub(silent).max(tolerated / 4);
        is_on_time = tokio::select! {
            () = sleep_until(next_look) => next_look.elapsed() < MAX_LATE,
            () = shortest_timeout.changed() => false,
        };
    }
}

/// Completes when the last reply over a connection is old, something is to be sent, and no reply
/// comes that proves the connection. Each one that comes is published.
///
/// What charges waits for that: it may be lost over this connection, and is never sent twice.
async fn doubt(link: &Link, shortest: &ShortestTimeout, state: &watch::Sender<LinkState>) {
    let activity = &link.inner.activity;
    loop {
        activity.doubted.notified().await;
        if activity.is_old() {
            let mut link = link.clone();
            // It ends with the connection at the latest.
            tokio::spawn(async move { link.send_one(&cmd("TIME")).await.is_ok() });
        }
        let until = Deadline::after(activity.max_proof(shortest));
        let reply = until.wait_for(activity.not_silent(shortest)).await;
        if reply.is_none() {
            return;
        }
        state.send_replace(LinkState::Up(link.clone()));
    }
}

/// The time from the beginning of one attempt to connect to the beginning of the next. Up to half
/// of it is added at random, so that processes do not connect at the same time.
pub(super) const ATTEMPT_INTERVAL: Duration = Duration::from_millis(120);
/// How long one attempt may take.
pub(super) const MAX_ATTEMPT: Duration = Duration::from_secs(2);
/// How often attempts look whether this process was frozen: then other timers may have stood.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long an attempt runs alone before the next one begins beside it.
const MIN_ALONE: Duration = Duration::from_millis(300);

/// The longest pause before a server that takes no writes is connected to again, and up to half of
/// it more.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The attempts to connect to one server: at most two are in progress.
///
/// The first one goes on until its time is over, since the server may have become slow. The second
/// one is given up for each later one, which is answered immediately when the server is back.
///
/// ```text
/// time      0                    300 ms    600 ms             2 s
/// first     |--- hangs -------------------------------------->| given up
/// second                         |------->| given up for a third, and so on
/// ```
///
/// If the first one fails instead of hanging, the next begins 120 to 180 ms after it began. With
/// one attempt, a handshake that hangs would delay the return to a server that is back by up to two
/// seconds. More than two would be a storm of connections, of a whole fleet, to a server that is
/// just slow.
#[derive(Default)]
pub(super) struct ConnectAttempts {
    in_progress: Vec<BoxFuture<'static, (Instant, RedisResult<Link>)>>,
    next_at: Option<Instant>,
    /// When the last one began.
    begun: Option<Moment>,
    /// How long an attempt runs alone, from what the last successful one took.
    alone: Option<Duration>,
    /// Before a server that takes no writes is connected to again.
    pause: Duration,
}

impl ConnectAttempts {
    /// The outcome of the next attempt that ends. Begins attempts when it is time to.
    ///
    /// Dropping the future ends nothing: the attempts stay in `self`, and go on when it is called
    /// again. When an attempt has to begin beside another one, this returns an error, so that
    /// questions hear that the server cannot be reached.
    ///
    /// With `proves` the server must execute a script over the link: else it would be no better
    /// than the silent one that it is to replace.
    pub(super) async fn next(
        &mut self,
        target: &Target,
        preload: &Preload,
        proves: bool,
    ) -> RedisResult<Link> {
        loop {
            if self.were_frozen() {
                self.in_progress.clear();
                self.next_at = None;
            }
            let alone = self.alone.unwrap_or(MIN_ALONE);
            let next_at = self.next_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                (at, (begun, outcome)) = first_of(&mut self.in_progress) => {
                    drop(self.in_progress.remove(at));
                    if self.were_frozen() {
                        continue;
                    }
                    if outcome.is_ok() {
                        self.in_progress.clear();
                        self.alone = Some(alone_after(begun.elapsed()));
                    }
                    let jitter = jitter::up_to(ATTEMPT_INTERVAL / 2);
                    self.next_at = Some(begun + ATTEMPT_INTERVAL + jitter);
                    return outcome;
                }
                () = sleep_until(next_at) => {
                    let is_beside = !self.in_progress.is_empty();
                    self.in_progress.truncate(1);
                    self.begin(target.clone(), preload.clone(), proves);
                    self.next_at = Some(Instant::now() + alone);
                    if is_beside {
                        let is_asking = matches!(target, Target::Server(it) if it.is_asking());
                        let what = if is_asking { "credentials" } else { "connection" };
                        return Err(none_within(what, alone));
                    }
                }
                () = sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// Whether this process was frozen since the last attempt began: what is in progress may be
    /// forgotten, and no server waits for a pause to end.
    fn were_frozen(&self) -> bool {
        self.begun.is_some_and(Moment::is_old)
    }

    /// Completes when the server takes no writes, at once for a link that was well. From one link
    /// that takes none to the next the pause doubles.
    async fn pause_without_writes(&mut self, link: &Link) {
        link.inner.takes_no_writes.comes().await;
        if link.inner.activity.start.elapsed() > MAX_PAUSE {
            self.pause = Duration::ZERO;
        }
        sleep(self.pause + jitter::up_to(self.pause / 2)).await;
        self.pause = (2 * self.pause).clamp(ATTEMPT_INTERVAL, MAX_PAUSE);
    }

    /// Gives up all attempts in progress.
    pub(super) fn clear(&mut self) {
        self.in_progress.clear();
    }

    /// Starts one attempt. Its outcome comes with the instant at which it began.
    fn begin(&mut self, target: Target, preload: Preload, proves: bool) {
        let begun = Instant::now();
        self.begun = Some(Moment::now());
        let attempt = within(MAX_ATTEMPT, async move {
            let link = target.connect(&preload).await?;
            if proves {
                link.check().await?;
            }
            Ok(link)
        });
        self.in_progress
            .push(Box::pin(async move { (begun, attempt.await) }));
    }
}

/// The outcome of the first of these that ends, and its index. Pends forever if there are none.
async fn first_of<T>(in_progress: &mut [BoxFuture<'static, T>]) -> (usize, T) {
    if in_progress.is_empty() {
        return std::future::pending().await;
    }
    let (outcome, at, _) = select_all(in_progress).await;
    (at, outcome)
}

/// How long an attempt runs alone after the last successful one took `success`: eight times as
/// long, within bounds. A server that answers quickly is not waited for long.
fn alone_after(success: Duration) -> Duration {
    (8 * success).clamp(MIN_ALONE, MAX_ATTEMPT)
}

/// The server to connect to.
///
/// Because of this type the three topologies share one reconnector: it knows only how to connect to
/// the target, and when the target has moved. In a cluster each node has a `Server`, and the layout
/// says which nodes there are.
#[derive(Clone)]
pub(super) enum Target {
    Server(Box<Server>),
    /// The master that the sentinels name. They are asked at every attempt to connect.
    #[cfg(feature = "sentinel")]
    Master(Arc<Sentinels>),
}

impl Target {
    /// Makes a connection to the server.
    pub(super) async fn connect(&self, preload: &Preload) -> RedisResult<Link> {
        match self {
            Self::Server(server) => Link::open(server, Role::Any, 0, preload).await,
            #[cfg(feature = "sentinel")]
            Self::Master(sentinels) => {
                let Master { server, epoch } = sentinels.master().await?;
                Link::open(&server, Role::Master, epoch, preload).await
            }
        }
    }

    /// Completes when `link` leads to a server that is not the target any more. That server may
    /// still answer.
    pub(super) async fn moved_away_from(&self, link: &Link) {
        match self {
            Self::Server(_) => {
                let _ = link;
                std::future::pending().await
            }
            #[cfg(feature = "sentinel")]
            Self::Master(sentinels) => {
                let server = link.inner.server.info.addr().to_string();
                sentinels.moved(&server, link.inner.epoch).await;
            }
        }
    }
}

/// Awaits `work` for at most `limit`. After that it fails with a timeout error.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(none_within("connection", limit)))
}

/// A timeout error: there was no connection, or whatever is named, in this time.
pub(super) fn none_within(what: &str, limit: Duration) -> RedisError {
    let message = format!("no {what} within {limit:?}");
    RedisError::from(io::Error::new(io::ErrorKind::TimedOut, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_runs_alone_for_eight_times_the_last_success_within_bounds() {
        let millis = Duration::from_millis;
        assert_eq!(alone_after(millis(1)), millis(300));
        assert_eq!(alone_after(millis(100)), millis(800));
        assert_eq!(alone_after(millis(900)), millis(2_000));
    }
}
