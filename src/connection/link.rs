//! One connection to one server: settings, scripts, clock and messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, Pipeline, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::{broadcast, watch};

use super::clock::ServerClock;
use super::scripts::{Preload, algorithm_script};
use crate::algorithm::Algorithm;
use crate::in_flight_counter::InFlightCounter;

/// How often an idle connection is probed by TCP; a few lost probes are a lost connection.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Messages that a listener may leave unread until it is told that it has missed some.
const MAX_UNREAD: usize = 1_024;

/// A connection to a server. Clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) clock: ServerClock,
    /// The server's host and port.
    #[cfg_attr(
        not(feature = "sentinel"),
        expect(dead_code, reason = "only masters move")
    )]
    pub(super) at: Box<str>,
    /// The epoch of the failover that made the server a master, as a sentinel has said; 0 for any
    /// other server.
    #[cfg_attr(
        not(feature = "sentinel"),
        expect(dead_code, reason = "only masters move")
    )]
    pub(super) epoch: u64,
    is_closed: watch::Sender<bool>,
    messages: broadcast::Sender<Arc<str>>,
    activity: Activity,
    /// Flights in progress over this connection.
    pub(super) flights: InFlightCounter,
}

/// When this connection was asked, and when something arrived.
#[derive(Debug)]
struct Activity {
    start: Instant,
    outstanding: AtomicU32,
    /// Since when something is outstanding, and when anything arrived last: the later one, in
    /// microseconds since `start`.
    since: AtomicU64,
}

/// A request that is outstanding until this is dropped.
struct Outstanding<'a>(&'a Activity);

impl Link {
    /// Connects and loads the scripts. All that is asked then goes in one round trip.
    pub(super) async fn open(
        info: ConnectionInfo,
        role: Role,
        epoch: u64,
        preload: Preload,
    ) -> RedisResult<Self> {
        let is_closed = watch::Sender::new(false);
        let messages = broadcast::Sender::new(MAX_UNREAD);
        let (closed, heard) = (is_closed.clone(), messages.clone());
        let on_push = move |push: PushInfo| {
            match push.kind {
                PushKind::Disconnection => drop(closed.send_replace(true)),
                PushKind::Message => {
                    if let Some(channel) = push.data.first().and_then(text) {
                        // It fails if nobody listens any more.
                        let _ = heard.send(channel.into());
                    }
                }
                _ => {}
            }
            Ok::<_, redis::aio::SendError>(())
        };
        let at = info.addr().to_string().into();
        let config = unbounded().set_push_sender(on_push);
        let client = client(info)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let clock = prepare(&mut connection, role, preload).await?;
        let shared = Shared {
            clock,
            at,
            epoch,
            is_closed,
            messages,
            activity: Activity::new(),
            flights: InFlightCounter::default(),
        };
        Ok(Self {
            connection,
            shared: Arc::new(shared),
        })
    }

    /// Sends these commands and waits for all replies, or for the end of the connection.
    pub(super) async fn ask(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let _outstanding = self.shared.activity.begins();
        let mut connection = self.connection.clone();
        let replies = async {
            // A reply to a single command needs no list.
            if commands.len() == 1
                && let Some(command) = commands.cmd_iter().next()
            {
                let reply = connection.req_packed_command(command).await;
                return reply.map(|reply| vec![reply]);
            }
            connection
                .req_packed_commands(commands, 0, commands.len())
                .await
        };
        let replies = tokio::select! {
            biased;
            replies = replies => replies,
            () = self.closed() => return Err(closed_connection()),
        };
        if replies.is_ok() {
            self.shared.activity.heard();
        }
        replies
    }

    /// Completes when the server calls scripts, or says why it does not. One that is paused for
    /// commands that may write answers everything else.
    pub(super) async fn calls_scripts(&self) -> RedisResult<()> {
        let mut probe = redis::pipe();
        // No key, no question, and any mark.
        let sha = algorithm_script(Algorithm::Gcra).sha();
        probe.cmd("EVALSHA").arg(sha).arg(0).arg("").arg(0);
        self.ask(&probe).await.map(drop)
    }

    /// Begins or ceases to listen to these channels.
    #[cfg_attr(not(feature = "lock"), expect(dead_code))]
    pub(crate) async fn subscribe(
        &self,
        channels: &[Arc<str>],
        is_wanted: bool,
    ) -> RedisResult<()> {
        let names: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut connection = self.connection.clone();
        match is_wanted {
            true => connection.subscribe(names).await,
            false => connection.unsubscribe(names).await,
        }
    }

    /// The names of the channels on which something is published from now on.
    #[cfg_attr(not(feature = "lock"), expect(dead_code))]
    pub(crate) fn messages(&self) -> broadcast::Receiver<Arc<str>> {
        self.shared.messages.subscribe()
    }

    /// Ends it for all that use it. What is outstanding fails.
    pub(super) fn close(&self) {
        self.shared.is_closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.shared.is_closed.borrow()
    }

    /// Completes when it is closed.
    pub(crate) async fn closed(&self) {
        // It cannot fail: there is a sender here.
        let mut is_closed = self.shared.is_closed.subscribe();
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }

    /// For how long something is outstanding and nothing at all has arrived.
    pub(super) fn silent_for(&self) -> Duration {
        self.shared.activity.silent_for()
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn closed_connection() -> RedisError {
    let what = "the connection was given up before the answer came";
    RedisError::from(std::io::Error::new(
        std::io::ErrorKind::ConnectionAborted,
        what,
    ))
}

impl Activity {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            outstanding: AtomicU32::new(0),
            since: AtomicU64::new(0),
        }
    }

    fn begins(&self) -> Outstanding<'_> {
        if self.outstanding.fetch_add(1, Ordering::Relaxed) == 0 {
            self.heard();
        }
        Outstanding(self)
    }

    fn heard(&self) {
        self.since.store(self.now(), Ordering::Relaxed);
    }

    fn silent_for(&self) -> Duration {
        if self.outstanding.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let since = self.since.load(Ordering::Relaxed);
        Duration::from_micros(self.now().saturating_sub(since))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a server has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Whatever it is.
    Any,
    /// A master. Sentinels say that it is one, but they may be late.
    #[cfg(feature = "sentinel")]
    Master,
}

/// Loads the scripts, reads the clock and checks the role.
async fn prepare(
    connection: &mut MultiplexedConnection,
    role: Role,
    preload: Preload,
) -> RedisResult<ServerClock> {
    let mut questions = redis::pipe();
    for script in preload.scripts() {
        questions.add_command(script.load());
    }
    let scripts = questions.len();
    questions.cmd("TIME");
    if role != Role::Any {
        questions.cmd("ROLE");
    }
    let asked = Instant::now();
    let answers = connection.req_packed_commands(&questions, 0, questions.len());
    let answers = answers.await?;
    let answered = Instant::now();
    for answer in answers.iter().take(scripts) {
        if let Value::ServerError(error) = answer {
            let error = RedisError::from(error.clone());
            if !is_dispensable(&error) {
                return Err(error);
            }
        }
    }
    let mut answers = answers.into_iter().skip(scripts);
    let time = answers.next().unwrap_or(Value::Nil).extract_error()?;
    match answers.next() {
        // Taken for a master unseen, an old one would be asked, and all that it counts be lost.
        Some(Value::ServerError(error)) => return Err(RedisError::from(error)),
        Some(answer) if is_replica(&answer) => {
            return Err(RedisError::from((
                ErrorKind::Io,
                "the server that the sentinels name is no master (yet, or any more)",
            )));
        }
        _ => {}
    }
    let unclear = || RedisError::from((ErrorKind::UnexpectedReturnType, "no time"));
    let now = micros(&time).ok_or_else(unclear)?;
    Ok(ServerClock::new(now, asked, answered))
}

/// The microseconds since 1970 of a reply to `TIME`; nothing of another reply.
pub(super) fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else {
        return None;
    };
    let part = |part: &Value| text(part)?.parse::<u64>().ok();
    match &parts[..] {
        [seconds, micros] => Some(
            part(seconds)?
                .checked_mul(1_000_000)?
                .checked_add(part(micros)?)?,
        ),
        _ => None,
    }
}

/// A server may keep us from loading scripts: then they come with the first calls.
fn is_dispensable(error: &RedisError) -> bool {
    let is_forbidden = error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm);
    let is_unknown = error
        .detail()
        .is_some_and(|detail| detail.starts_with("unknown command"));
    is_forbidden || is_unknown
}

fn is_replica(role: &Value) -> bool {
    let Value::Array(role) = role else {
        return false;
    };
    !matches!(role.first(), Some(Value::BulkString(role)) if role == b"master")
}

/// RESP3, because with it the client is told of a closed connection while it is idle, and hears
/// messages.
pub(super) fn client(info: ConnectionInfo) -> RedisResult<Client> {
    let settings = info.redis_settings().clone();
    client_as_is(info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3)))
}

pub(super) fn client_as_is(info: ConnectionInfo) -> RedisResult<Client> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    let info = info.set_tcp_settings(tcp);
    #[cfg(feature = "tls")]
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        // An application's own choice, made earlier, stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Client::open(info)
}

/// Whoever calls bounds the whole of the waiting.
pub(super) fn unbounded() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}
