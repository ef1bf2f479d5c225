use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::{Notify, watch};
use tokio::task;

use super::keeper::{Keeper, Link, Loss, State, Target};
use super::scripts::Preload;

/// The connection to one server, as a [`Keeper`] keeps it. The keeper ends with it.
pub(super) struct Line {
    state: watch::Receiver<State>,
    /// Calls that were given up since the last answer.
    unanswered: AtomicU32,
    /// When one of them was counted last, and of which task.
    counted: Mutex<Option<(Instant, Option<task::Id>)>>,
    /// Rung when something is wrong with the server.
    alarm: Arc<Notify>,
    keeper: tokio::task::AbortHandle,
}

impl Line {
    /// Begins to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn start(target: Target, preload: Preload, alarm: Arc<Notify>) -> Self {
        let keeper = Keeper::new(target, preload, Arc::clone(&alarm));
        Self {
            state: keeper.state(),
            unanswered: AtomicU32::new(0),
            counted: Mutex::default(),
            alarm,
            keeper: tokio::spawn(keeper.run()).abort_handle(),
        }
    }

    /// Completes with the first connection, or with why there is none, if it is one that passes by itself.
    pub(super) async fn first(&self) -> RedisResult<()> {
        self.settled(|error| !is_passing(error)).await
    }

    /// Completes with the first connection, or with why the first attempt to make one has failed.
    #[cfg(feature = "cluster")]
    pub(super) async fn tried(&self) -> RedisResult<()> {
        self.settled(|_| true).await
    }

    async fn settled(&self, is_final: impl Fn(&RedisError) -> bool) -> RedisResult<()> {
        let mut state = self.state.clone();
        let known = |state: &State| match state {
            State::Up(_) => true,
            State::Connecting => false,
            State::Down(error) => is_final(error),
        };
        match state.wait_for(known).await.as_deref() {
            Ok(State::Down(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(runtime_ended()),
        }
    }

    async fn link(&self) -> RedisResult<Link> {
        if let State::Up(link) = &*self.state.borrow() {
            return Ok(link.clone());
        }
        let mut state = self.state.clone();
        let known = |state: &State| !matches!(state, State::Connecting);
        match state.wait_for(known).await.as_deref() {
            Ok(State::Up(link)) => Ok(link.clone()),
            Ok(State::Down(error)) => Err(error.clone()),
            Ok(State::Connecting) | Err(_) => Err(runtime_ended()),
        }
    }

    /// The link, if it stands.
    #[cfg(feature = "cluster")]
    pub(super) fn link_now(&self) -> Option<Link> {
        match &*self.state.borrow() {
            State::Up(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// Completes when there is a connection to another server than this one.
    #[cfg(feature = "sentinel")]
    pub(super) async fn left(&self, at: &str) {
        let mut state = self.state.clone();
        let is_elsewhere = |state: &State| matches!(state, State::Up(link) if *link.at != *at);
        if state.wait_for(is_elsewhere).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        let mut link = self.link().await?;
        let waiting = Waiting::new(self, &link.loss);
        let reply = link.connection.req_packed_command(command).await;
        waiting.answered();
        self.check(&link.loss, reply.as_ref().ok(), reply.as_ref().err());
        reply
    }

    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut link = self.link().await?;
        let waiting = Waiting::new(self, &link.loss);
        let replies = link.connection.req_packed_commands(pipeline, offset, count);
        let replies = replies.await;
        waiting.answered();
        let values = replies.iter().flatten();
        self.check(&link.loss, values, replies.as_ref().err());
        replies
    }

    /// A reply was not the one to its question, which was asked then: neither are those behind it.
    pub(super) fn out_of_step(&self, asked: Instant) {
        if let State::Up(link) = &*self.state.borrow()
            && link.since < asked
        {
            link.loss.tell();
        }
    }

    /// Whether a call that is given up now is one more: those that a task gives up together, such as a batch, are one.
    fn is_counted(&self) -> bool {
        let (now, task) = (Instant::now(), task::try_id());
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |last: (Instant, _)| now < last.0 + Waiting::SHORTEST_WAIT && task == last.1;
        let is_apart = !counted.is_some_and(is_same);
        if is_apart {
            *counted = Some((now, task));
        }
        is_apart
    }

    /// Looks at a reply on its way: the client hands on a server's error as a value.
    fn check<'a>(
        &self,
        loss: &Loss,
        values: impl IntoIterator<Item = &'a Value>,
        error: Option<&RedisError>,
    ) {
        let mut refused = values.into_iter().filter_map(|value| match value {
            Value::ServerError(error) => Some(RedisError::from(error.clone())),
            _ => None,
        });
        let broken = error.is_some_and(needs_another_connection);
        if broken || refused.any(|error| needs_another_connection(&error)) {
            loss.tell();
            self.alarm.notify_one();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

pub(super) fn runtime_ended() -> RedisError {
    RedisError::from(std::io::Error::other(
        "the runtime that kept the connection has ended",
    ))
}

/// A server that does not answer yet, or is still loading its data.
pub(super) fn is_passing(error: &RedisError) -> bool {
    let loading = ErrorKind::Server(ServerErrorKind::BusyLoading);
    error.is_timeout() || error.kind() == loading
}

/// Not only broken connections: a server that became a replica, or lost its master, may be another
/// one by the time that it is asked again.
fn needs_another_connection(error: &RedisError) -> bool {
    let broken = error.is_unrecoverable_error() || error.is_connection_dropped();
    let wrong_server = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    broken || wrong_server
}

/// A call that waits for its answer. A connection over which nothing comes back any more does not
/// break by itself, so those that are given up are counted.
struct Waiting<'a> {
    line: &'a Line,
    loss: &'a Loss,
    since: Instant,
    answered: bool,
}

impl<'a> Waiting<'a> {
    /// So many in a row, none of them together with another one, and the connection is made anew.
    const MOST_UNANSWERED: u32 = 10;
    /// Who leaves sooner has not waited for an answer; and those who leave a task within it leave together.
    const SHORTEST_WAIT: Duration = Duration::from_millis(5);

    fn new(line: &'a Line, loss: &'a Loss) -> Self {
        Self {
            line,
            loss,
            since: Instant::now(),
            answered: false,
        }
    }

    fn answered(mut self) {
        self.answered = true;
        if self.line.unanswered.load(Ordering::Relaxed) > 0 {
            self.line.unanswered.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered || self.since.elapsed() < Self::SHORTEST_WAIT {
            return;
        }
        self.line.alarm.notify_one();
        if !self.line.is_counted() {
            return;
        }
        let unanswered = self.line.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        if unanswered >= Self::MOST_UNANSWERED {
            self.line.unanswered.store(0, Ordering::Relaxed);
            self.loss.tell();
        }
    }
}
