use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::attempts::{Attempts, Proof};
use super::link::Link;
use super::link_state::LinkState;
use super::scripts::Preload;
use super::shortest_timeout::{MAX_SILENCE, ShortestTimeout};
use super::target::Target;

/// How long a reply on a silent connection is waited for once another connection answers.
const MAX_BEHIND: Duration = Duration::from_millis(10);

/// The background task that keeps a connection to one server: it connects, watches the connection,
/// and connects again.
///
/// A connection that breaks is replaced at once. A silent one is not given up before another one
/// has proved that the server executes scripts over it: the server may just be slow, and then the
/// silent connection is as good as any.
///
/// A node has two tasks; this one alone opens and replaces links. A link is silent if a request is
/// outstanding and nothing arrives for max(100 ms, twice the shortest timeout in use), at most one
/// second. An earlier version counted callers that gave up, and twelve impatient clients made a
/// healthy server look dead 19 times in three seconds (`docs/dependencies.md`).
pub(super) struct Reconnector {
    pub(super) target: Target,
    pub(super) preload: Preload,
    pub(super) state: watch::Sender<LinkState>,
    pub(super) shortest_timeout: Arc<ShortestTimeout>,
    /// Notified when the connection is lost or silent, and when an attempt to connect has failed.
    ///
    /// In a cluster the watcher then asks for the layout; a single server has no listener.
    pub(super) failed: Arc<Notify>,
    pub(super) attempts: Attempts,
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
    /// ```
    pub(super) async fn run(mut self) {
        let mut link = self.connect().await;
        loop {
            // If this task is aborted, the connection is closed, too.
            let guard = CloseOnDrop(link.clone());
            link = match self.watch(&link).await {
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
            let attempt = attempts.next(&self.target, self.preload, Proof::Opened);
            match attempt.await {
                Ok(link) => {
                    self.state.send_replace(LinkState::Up(link.clone()));
                    return link;
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// Publishes the error of an attempt to connect: waiting questions get it.
    fn fail(&self, error: RedisError) {
        self.state.send_replace(LinkState::Down(error));
        self.failed.notify_one();
    }

    /// Completes with `None` when the connection is lost or leads to the wrong server, or with the
    /// connection that has taken its place.
    async fn watch(&mut self, link: &Link) -> Option<Link> {
        loop {
            let is_silent = tokio::select! {
                () = link.closed() => false,
                () = self.target.moved_away_from(link) => false,
                () = silence(link, &self.shortest_timeout) => true,
            };
            self.failed.notify_one();
            let end = match is_silent {
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
    /// the silence.
    async fn replace(&mut self, link: &Link) -> SilenceEnd {
        loop {
            let attempts = &mut self.attempts;
            let attempt = attempts.next(&self.target, self.preload, Proof::ScriptCall);
            let outcome = tokio::select! {
                biased;
                () = reply_arrives(link, &self.shortest_timeout) => return self.keep(link),
                () = link.closed() => return SilenceEnd::Closed,
                outcome = attempt => outcome,
            };
            match outcome {
                Ok(other) => {
                    // A server that was paused answers over both connections, over `link` first.
                    let reply = reply_arrives(link, &self.shortest_timeout);
                    if timeout(MAX_BEHIND, reply).await.is_ok() {
                        return self.keep(link);
                    }
                    self.state.send_replace(LinkState::Up(other.clone()));
                    return SilenceEnd::Replaced(other);
                }
                // Questions with longer timeouts may still be answered over `link`.
                Err(error)
                    if error.is_timeout() && link.inner.activity.silent_for() < MAX_SILENCE => {}
                Err(error) => self.fail(error),
            }
        }
    }

    /// Gives up the attempts to replace a connection on which a reply has arrived.
    fn keep(&mut self, link: &Link) -> SilenceEnd {
        self.attempts.clear();
        self.state.send_replace(LinkState::Up(link.clone()));
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

/// Completes when the connection has been silent for longer than is tolerated.
async fn silence(link: &Link, shortest_timeout: &ShortestTimeout) {
    loop {
        let tolerated = shortest_timeout.tolerated_silence();
        let silent = link.inner.activity.silent_for();
        if silent >= tolerated {
            return;
        }
        tokio::select! {
            () = sleep((tolerated - silent).max(tolerated / 4)) => {}
            () = shortest_timeout.changed() => {}
        }
    }
}

/// Completes when a reply arrives on a connection that was silent.
async fn reply_arrives(link: &Link, shortest_timeout: &ShortestTimeout) {
    let activity = &link.inner.activity;
    let tolerated = || shortest_timeout.tolerated_silence();
    activity.silent_for_less_than(tolerated).await;
}
