use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::scripts::Preload;
use crate::jitter;

/// From one attempt to connect to the next, however the first one ended; spread over processes by up
/// to half of it.
const PAUSE: Duration = Duration::from_millis(120);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(1);
/// How often an idle connection is probed; a few lost probes are a lost connection.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

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

/// The background task: connects, waits for a loss, connects again.
pub(super) struct Keeper {
    client: Client,
    preload: Preload,
    state: watch::Sender<State>,
    losses: Losses,
    generation: u64,
    next_attempt: Instant,
}

impl Keeper {
    pub(super) fn new(client: Client, preload: Preload, losses: Losses) -> Self {
        Self {
            client,
            preload,
            state: watch::Sender::new(State::Connecting),
            losses,
            generation: 0,
            next_attempt: Instant::now(),
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
            if losses.wait_for(|lost| *lost >= generation).await.is_err() {
                return;
            }
            self.state.send_replace(State::Connecting);
        }
    }

    async fn connect(&mut self) {
        loop {
            sleep_until(self.next_attempt).await;
            self.next_attempt = Instant::now() + PAUSE + jitter::up_to(PAUSE / 2);
            self.generation += 1;
            let attempt = open(&self.client, self.preload, self.generation, &self.losses);
            match within(ATTEMPT, attempt).await {
                Ok(link) => {
                    self.state.send_replace(State::Up(link));
                    return;
                }
                Err(error) => {
                    self.state.send_replace(State::Down(error));
                }
            }
        }
    }
}

/// RESP3, because with it the client is told of a closed connection while it is idle.
pub(crate) fn client(server: impl IntoConnectionInfo) -> RedisResult<Client> {
    let info = server.into_connection_info()?;
    let settings = info.redis_settings().clone();
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
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

async fn open(
    client: &Client,
    preload: Preload,
    generation: u64,
    losses: &Losses,
) -> RedisResult<Link> {
    let losses = losses.clone();
    let on_push = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            losses.tell(generation);
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
    for script in preload.scripts() {
        script.load(&mut connection).await?;
    }
    Ok(Link {
        connection,
        generation,
    })
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
