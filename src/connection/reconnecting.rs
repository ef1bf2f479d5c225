use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisError, RedisFuture, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::watch;
use tokio::time::sleep;

use super::SLIDING_LOG;

/// How long after a failed attempt the next one starts; spread over processes by up to half of it.
const RECONNECT_DELAY: Duration = Duration::from_millis(120);
/// How long one attempt to connect again may take.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer that vanished without a word is noticed after about so long.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// One multiplexed connection to one Redis server, made anew in the background when it breaks.
///
/// A call never waits for a reconnect that has already failed once: it gets that failure at once. A
/// call that was under way when the connection broke gets the error; it is not sent again, because it
/// may have been executed.
///
/// Clones share the connection. The background task ends with the last of them.
#[derive(Clone)]
pub struct Reconnecting {
    shared: Arc<Shared>,
}

struct Shared {
    state: watch::Receiver<State>,
    lost: watch::Sender<u64>,
    address: String,
    db: i64,
    keeper: tokio::task::AbortHandle,
}

#[derive(Clone)]
enum State {
    Up(Link),
    /// The first attempt after a loss is under way: worth waiting for.
    Connecting,
    Down(RedisError),
}

#[derive(Clone)]
struct Link {
    connection: MultiplexedConnection,
    /// Which of all connections this is: a loss may be told more than once, and late.
    generation: u64,
}

impl Reconnecting {
    /// Connects and loads the scripts, within `timeout`. A server that is still loading its data is
    /// waited for.
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
        let client = client(server)?;
        let (lost, losses) = watch::channel(0);
        let link = within(timeout, first(&client, &lost)).await?;
        let (state_tx, state) = watch::channel(State::Up(link));
        let info = client.get_connection_info();
        let address = info.addr().to_string();
        let db = info.redis_settings().db();
        let keeper = Keeper {
            client,
            state: state_tx,
            losses,
            lost: lost.clone(),
            generation: 1,
        };
        let keeper = tokio::spawn(keeper.run()).abort_handle();
        let shared = Shared {
            state,
            lost,
            address,
            db,
            keeper,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    async fn link(&self) -> RedisResult<Link> {
        let mut state = self.shared.state.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(link) => return Ok(link.clone()),
                State::Down(error) => return Err(error.clone()),
                State::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(RedisError::from(std::io::Error::other(
                    "the runtime that kept the connection has ended",
                )));
            }
        }
    }

    fn check<T>(&self, generation: u64, result: RedisResult<T>) -> RedisResult<T> {
        if result.as_ref().is_err_and(needs_another_connection) {
            tell_lost(&self.shared.lost, generation);
        }
        result
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keeper.abort();
    }
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

fn tell_lost(lost: &watch::Sender<u64>, generation: u64) {
    lost.send_if_modified(|known| {
        let news = generation > *known;
        *known = generation.max(*known);
        news
    });
}

/// RESP3, because with it the client is told of a closed connection while it is idle.
fn client(server: impl IntoConnectionInfo) -> RedisResult<Client> {
    let info = server.into_connection_info()?;
    let settings = info.redis_settings().clone();
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(
        TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE),
    );
    let info = info
        .set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3))
        .set_tcp_settings(tcp);
    #[cfg(feature = "tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // An application's own choice, made earlier, stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Client::open(info)
}

/// The first connection. "Loading" is the one answer that is worth asking again for.
async fn first(client: &Client, lost: &watch::Sender<u64>) -> RedisResult<Link> {
    loop {
        match open(client, 1, lost).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading) => {
                sleep(RECONNECT_DELAY).await;
            }
            link => return link,
        }
    }
}

async fn open(client: &Client, generation: u64, lost: &watch::Sender<u64>) -> RedisResult<Link> {
    let lost = lost.clone();
    let on_push = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            tell_lost(&lost, generation);
        }
        Ok::<_, redis::aio::SendError>(())
    };
    // Whoever calls bounds the whole of its waiting.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_push_sender(on_push);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    SLIDING_LOG.load(&mut connection).await?;
    Ok(Link {
        connection,
        generation,
    })
}

async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let late = |_| {
        let late = format!("no connection within {timeout:?}");
        Err(RedisError::from(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            late,
        )))
    };
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(late)
}

/// The background task: waits for a loss, then connects until it succeeds.
struct Keeper {
    client: Client,
    state: watch::Sender<State>,
    losses: watch::Receiver<u64>,
    lost: watch::Sender<u64>,
    generation: u64,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            let generation = self.generation;
            if self
                .losses
                .wait_for(|lost| *lost >= generation)
                .await
                .is_err()
            {
                return;
            }
            self.state.send_replace(State::Connecting);
            self.reconnect().await;
        }
    }

    async fn reconnect(&mut self) {
        loop {
            self.generation += 1;
            let link = open(&self.client, self.generation, &self.lost);
            match within(RECONNECT_TIMEOUT, link).await {
                Ok(link) => {
                    self.state.send_replace(State::Up(link));
                    return;
                }
                Err(error) => {
                    self.state.send_replace(State::Down(error));
                }
            }
            sleep(RECONNECT_DELAY + jitter(RECONNECT_DELAY / 2)).await;
        }
    }
}

/// Up to `most`, different in every process and at every call.
fn jitter(most: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0);
    most.mul_f64((random % 1_000) as f64 / 1_000.0)
}

impl ConnectionLike for Reconnecting {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut link = self.link().await?;
            let reply = link.connection.req_packed_command(cmd).await;
            self.check(link.generation, reply)
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
            let replies = link.connection.req_packed_commands(pipeline, offset, count);
            let replies = replies.await;
            self.check(link.generation, replies)
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
