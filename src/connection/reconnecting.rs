use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redis::{
    Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError, RedisFuture, RedisResult,
    ServerErrorKind, Value,
};
use tokio::sync::watch;

use super::keeper::{Keeper, Link, Losses, State, client, within};
use super::scripts::Preload;

/// One multiplexed connection to one Redis server, made anew in the background when it breaks.
///
/// A call never waits for a reconnect that has already failed once: it gets that failure at once. A
/// call that was under way when the connection broke gets the error; it is not sent again, because it
/// may have been executed.
///
/// It is also made anew when the server turns out to be a replica or to have lost its master, and
/// when ten calls in a row were given up without an answer.
///
/// Clones share the connection. The background task ends with the last of them.
#[derive(Clone)]
pub struct Reconnecting {
    shared: Arc<Shared>,
}

struct Shared {
    state: watch::Receiver<State>,
    losses: Losses,
    /// Calls that were given up since the last answer.
    unanswered: AtomicU32,
    address: String,
    db: i64,
    keeper: tokio::task::AbortHandle,
}

impl Reconnecting {
    /// Connects and loads the scripts, within `timeout`. A server that does not answer yet, or is
    /// still loading its data, is waited for.
    ///
    /// # Errors
    ///
    /// What the client says of a wrong address, a server that cannot be reached, or a refusal; or
    /// that it took too long.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(server: impl IntoConnectionInfo, timeout: Duration) -> RedisResult<Self> {
        Self::connect_with(server, Preload::Stores, timeout).await
    }

    pub(super) async fn connect_with(
        server: impl IntoConnectionInfo,
        preload: Preload,
        timeout: Duration,
    ) -> RedisResult<Self> {
        let connection = Self::lazy_with(server, preload)?;
        within(timeout, connection.first()).await?;
        Ok(connection)
    }

    /// Begins to connect in the background, and goes on until it succeeds.
    ///
    /// # Errors
    ///
    /// What the client says of a wrong address.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn lazy(server: impl IntoConnectionInfo) -> RedisResult<Self> {
        Self::lazy_with(server, Preload::Stores)
    }

    pub(super) fn lazy_with(
        server: impl IntoConnectionInfo,
        preload: Preload,
    ) -> RedisResult<Self> {
        let client = client(server)?;
        let info = client.get_connection_info();
        let address = info.addr().to_string();
        let db = info.redis_settings().db();
        let losses = Losses::new();
        let keeper = Keeper::new(client, preload, losses.clone());
        let state = keeper.state();
        let keeper = tokio::spawn(keeper.run()).abort_handle();
        let shared = Shared {
            state,
            losses,
            unanswered: AtomicU32::new(0),
            address,
            db,
            keeper,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The first connection, or why there is none.
    async fn first(&self) -> RedisResult<()> {
        let worth_waiting = |error: &RedisError| {
            let loading = ErrorKind::Server(ServerErrorKind::BusyLoading);
            error.is_timeout() || error.kind() == loading
        };
        let mut state = self.shared.state.clone();
        let known = |state: &State| match state {
            State::Up(_) => true,
            State::Connecting => false,
            State::Down(error) => !worth_waiting(error),
        };
        match state.wait_for(known).await.as_deref() {
            Ok(State::Down(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(runtime_ended()),
        }
    }

    async fn link(&self) -> RedisResult<Link> {
        let mut state = self.shared.state.clone();
        let known = |state: &State| !matches!(state, State::Connecting);
        match state.wait_for(known).await.as_deref() {
            Ok(State::Up(link)) => Ok(link.clone()),
            Ok(State::Down(error)) => Err(error.clone()),
            Ok(State::Connecting) | Err(_) => Err(runtime_ended()),
        }
    }

    /// Which of all connections calls go over now.
    pub(crate) fn generation(&self) -> u64 {
        match &*self.shared.state.borrow() {
            State::Up(link) => link.generation,
            State::Connecting | State::Down(_) => 0,
        }
    }

    /// The replies that come over this one are not those to its calls: it is made anew.
    pub(crate) fn is_out_of_step(&self, generation: u64) {
        self.shared.losses.tell(generation);
    }

    /// Looks at a reply on its way: the client hands on a server's error as a value.
    fn check<'a>(
        &self,
        generation: u64,
        values: impl IntoIterator<Item = &'a Value>,
        error: Option<&RedisError>,
    ) {
        let mut refused = values.into_iter().filter_map(|value| match value {
            Value::ServerError(error) => Some(RedisError::from(error.clone())),
            _ => None,
        });
        let broken = error.is_some_and(needs_another_connection);
        if broken || refused.any(|error| needs_another_connection(&error)) {
            self.shared.losses.tell(generation);
        }
    }
}

fn runtime_ended() -> RedisError {
    RedisError::from(std::io::Error::other(
        "the runtime that kept the connection has ended",
    ))
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

impl Drop for Shared {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// A call that waits for its answer. A connection over which nothing comes back any more does not
/// break by itself, so those that are given up are counted.
struct Waiting<'a> {
    shared: &'a Shared,
    generation: u64,
    since: Instant,
    answered: bool,
}

impl<'a> Waiting<'a> {
    /// So many in a row, and the connection is made anew.
    const MOST_UNANSWERED: u32 = 10;
    /// Who leaves sooner has not waited for an answer.
    const SHORTEST_WAIT: Duration = Duration::from_millis(5);

    fn new(shared: &'a Shared, generation: u64) -> Self {
        Self {
            shared,
            generation,
            since: Instant::now(),
            answered: false,
        }
    }

    fn answered(mut self) {
        self.answered = true;
        if self.shared.unanswered.load(Ordering::Relaxed) > 0 {
            self.shared.unanswered.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.answered || self.since.elapsed() < Self::SHORTEST_WAIT {
            return;
        }
        let unanswered = self.shared.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        if unanswered >= Self::MOST_UNANSWERED {
            self.shared.unanswered.store(0, Ordering::Relaxed);
            self.shared.losses.tell(self.generation);
        }
    }
}

impl ConnectionLike for Reconnecting {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut link = self.link().await?;
            let waiting = Waiting::new(&self.shared, link.generation);
            let reply = link.connection.req_packed_command(cmd).await;
            waiting.answered();
            self.check(link.generation, reply.as_ref().ok(), reply.as_ref().err());
            reply
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut link = self.link().await?;
            let waiting = Waiting::new(&self.shared, link.generation);
            let replies = link.connection.req_packed_commands(pipeline, offset, count);
            let replies = replies.await;
            waiting.answered();
            let values = replies.iter().flatten();
            self.check(link.generation, values, replies.as_ref().err());
            replies
        })
    }

    fn get_db(&self) -> i64 {
        self.shared.db
    }
}

impl fmt::Debug for Reconnecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnecting")
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}
