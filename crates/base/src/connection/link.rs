use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline,
    ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value,
};
use smallvec::{SmallVec, smallvec};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, broadcast};
use tokio::time::timeout;

use super::address::Server;
use super::call_id::CallId;
use super::errors::has_code;
use super::reconnector::within;
use super::scripts::Preload;
use super::server_clock::ServerClock;
use super::silence::Activity;
use crate::in_flight_counter::InFlightCounter;
use crate::sync::lock;

/// A listener that leaves more messages than this unread gets the error that it has missed some.
const MAX_UNREAD: usize = 1_024;
/// How long the server may take to confirm a subscription.
const MAX_CONFIRMATION: Duration = Duration::from_secs(1);

/// The commands of a request, and the replies to them. A lone one needs no allocation.
pub(super) type Commands = SmallVec<[Cmd; 1]>;
pub(super) type Replies = SmallVec<[Value; 1]>;

/// One connection to one server. Clones share it.
///
/// The reconnector makes it and keeps one clone; the dispatcher has one for each flight, and a
/// subscriber one to hear messages. The first that sees that it is broken closes it for all
/// clones: outstanding requests fail, and the TCP connection ends with the last clone. Closing
/// twice is harmless, and nothing opens it again. The reconnector makes another one instead, so all
/// that a link knows (its clock, its silence, its flights) is about one TCP connection to one
/// server.
///
/// ```text
/// open -> in use -> closed by the server       (push_handler: Disconnection)
///                -> closed by the asking task (a reply of another call, an I/O error)
///                -> closed by the reconnector  (replaced, or its task was aborted)
/// ```
#[derive(Clone)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    pub(super) inner: Arc<LinkInner>,
}

/// The times of a request and its reply.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip {
    /// When it was sent.
    pub asked: Instant,
    /// When the reply was there.
    pub answered: Instant,
}

/// What happens to a link once, and is never undone.
#[derive(Default)]
pub(super) struct Flag {
    is_set: AtomicBool,
    changed: Notify,
}

impl Flag {
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    /// Completes when it is set.
    pub(super) async fn comes(&self) {
        // Made before the look: what sets it in between wakes it.
        let set = self.changed.notified();
        if !self.is_set() {
            set.await;
        }
    }
}

/// What the clones of a [`Link`] share.
pub(super) struct LinkInner {
    pub(super) clock: ServerClock,
    pub(super) server: Server,
    /// When the credentials end with which it was made.
    pub(super) logged_in_until: Option<Instant>,
    /// The epoch of the failover that made the server a master, as a sentinel has said; 0 for any
    /// other server.
    #[cfg_attr(not(feature = "sentinel"), expect(dead_code))]
    pub(super) epoch: u64,
    closing: Arc<Flag>,
    /// The server has refused to write.
    pub(super) takes_no_writes: Flag,
    messages: broadcast::Sender<Arc<str>>,
    /// Whether the server evicts keys when its memory is full.
    pub(super) evicts: bool,
    pub(super) activity: Activity,
    /// Flights of the dispatcher in progress over this connection.
    pub(super) flights: InFlightCounter,
    /// Questions in progress over it, those that their callers have sent as well.
    pub(super) questions: InFlightCounter,
}

impl Link {
    /// Connects, loads the scripts, reads the server's clock and checks its role.
    pub(super) async fn open(
        server: &Server,
        role: Role,
        epoch: u64,
        preload: &Preload,
    ) -> RedisResult<Self> {
        let closing = Arc::<Flag>::default();
        let messages = broadcast::Sender::new(MAX_UNREAD);
        let (info, logged_in_until) = server.with_credentials().await?;
        let config = unbounded().set_push_sender(push_handler(&closing, &messages));
        let mut connection = connect(info, &config).await?;
        let (clock, evicts, took) = handshake(&mut connection, role, preload).await?;
        let inner = LinkInner {
            clock,
            server: server.clone(),
            logged_in_until,
            epoch,
            closing,
            takes_no_writes: Flag::default(),
            messages,
            evicts,
            activity: Activity::new(took),
            flights: InFlightCounter::default(),
            questions: InFlightCounter::default(),
        };
        Ok(Self {
            connection,
            inner: Arc::new(inner),
        })
    }

    /// Sends these commands and waits for all replies, or for the end of the connection.
    ///
    /// If the future is dropped, the commands may have been sent: the server executes them, and the
    /// client drops their replies. It has no time limit. Once the reconnector has replaced a silent
    /// link it closes it, which ends this future.
    pub(super) async fn send(&mut self, commands: Commands) -> RedisResult<(Replies, RoundTrip)> {
        let Self { connection, inner } = self;
        let asked = Instant::now();
        let outstanding = inner.activity.request_begins(asked);
        let replies = async {
            if let [command] = &*commands {
                let reply = connection.req_packed_command(command).await;
                return reply.map(|reply| smallvec![reply]);
            }
            let mut pipeline = Pipeline::with_capacity(commands.len());
            for command in commands {
                pipeline.add_command(command);
            }
            let replies = connection.req_packed_commands(&pipeline, 0, pipeline.len());
            replies.await.map(Replies::from_vec)
        };
        let replies = tokio::select! {
            biased;
            replies = replies => replies?,
            () = inner.closing.comes() => return Err(closed_before_reply()),
        };
        let answered = Instant::now();
        outstanding.reply_arrived(answered);
        Ok((replies, RoundTrip { asked, answered }))
    }

    /// Sends one command as [`send`](Self::send) does, without a box for the client's future.
    pub(super) async fn send_one(&mut self, command: &Cmd) -> RedisResult<(Value, RoundTrip)> {
        let Self { connection, inner } = self;
        let asked = Instant::now();
        let outstanding = inner.activity.request_begins(asked);
        // Made before the look: a close in between wakes it.
        let mut closed = pin!(inner.closing.changed.notified());
        let mut reply = pin!(connection.send_packed_command(command));
        let reply = poll_fn(|cx| match reply.as_mut().poll(cx) {
            Poll::Pending if inner.closing.is_set() || closed.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Err(closed_before_reply()))
            }
            poll => poll,
        });
        let reply = reply.await?;
        let answered = Instant::now();
        outstanding.reply_arrived(answered);
        Ok((reply, RoundTrip { asked, answered }))
    }

    /// Sends one command, and a check behind it. Returns the reply to it and no other one: if the
    /// check's reply belongs to another call, the connection is closed.
    pub(super) async fn query(&self, command: Cmd) -> RedisResult<Value> {
        let id = CallId::next();
        let commands = smallvec![command, id.check()];
        let (mut replies, _) = self.clone().send(commands).await?;
        self.expect_check(id, replies.pop())?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Calls a script that does nothing. Completes when the server has executed it, or with the
    /// reason why it does not. `PING` would not do: a server that is paused for commands that may
    /// write still answers it.
    pub(super) async fn check(&self) -> RedisResult<()> {
        let id = CallId::next();
        let (mut replies, _) = self.clone().send(smallvec![id.check()]).await?;
        self.expect_check(id, replies.pop())
    }

    /// Fails unless this is the reply to the check with this number. Closes the connection if it is
    /// the reply to another call.
    fn expect_check(&self, id: CallId, reply: Option<Value>) -> RedisResult<()> {
        let reply = reply.unwrap_or(Value::Nil).extract_error()?;
        if !id.is_in(&reply) {
            self.close();
            let message = "the server replied to a different command";
            return Err(RedisError::from((ErrorKind::Parse, message)));
        }
        Ok(())
    }

    /// Sends a command that subscribes to channels or unsubscribes from them, once for each.
    ///
    /// The client takes any reply for the confirmation, so a check travels behind the commands.
    /// Fails with the first refusal, or if the server has not confirmed all in time.
    pub(super) async fn subscribe(&self, command: &str, channels: &[Arc<str>]) -> RedisResult<()> {
        if channels.is_empty() {
            return Ok(());
        }
        let id = CallId::next();
        // One by one: channels of a cluster may lie in different slots.
        let one = |channel: &Arc<str>| redis::cmd(command).arg(&**channel).clone();
        let mut commands: Commands = channels.iter().map(one).collect();
        commands.push(id.check());
        let mut link = self.clone();
        let (mut replies, _) = within(MAX_CONFIRMATION, link.send(commands)).await?;
        self.expect_check(id, replies.pop())?;
        let mut replies = replies.into_iter();
        replies.try_for_each(|reply| reply.extract_error().map(drop))
    }

    /// The name of the channel of each message that arrives from now on.
    ///
    /// Only the channel's name is handed on: the message says when to ask the server. So does the
    /// end of a subscription whose slot has moved to another node.
    pub(super) fn messages(&self) -> broadcast::Receiver<Arc<str>> {
        self.inner.messages.subscribe()
    }

    /// Closes the connection for all clones. Outstanding requests fail.
    pub(super) fn close(&self) {
        self.inner.closing.set();
    }

    /// Whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.inner.closing.is_set()
    }

    /// Completes when the connection is closed.
    pub(super) async fn closed(&self) {
        self.inner.closing.comes().await
    }
}

/// Handles what the server sends without being asked: the end of the connection, and messages.
fn push_handler(
    closing: &Arc<Flag>,
    messages: &broadcast::Sender<Arc<str>>,
) -> impl Fn(PushInfo) -> Result<(), SendError> + Send + Sync + 'static {
    let (closing, messages) = (Arc::clone(closing), messages.clone());
    move |push| {
        match push.kind {
            PushKind::Disconnection => closing.set(),
            PushKind::Message | PushKind::SMessage | PushKind::SUnsubscribe => {
                if let Some(channel) = push.data.first().and_then(text) {
                    // It fails if there is no listener.
                    let _ = messages.send(channel.into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The error of a request that was outstanding when the connection was closed.
fn closed_before_reply() -> RedisError {
    let message = "the connection was given up before the answer came";
    io::Error::new(io::ErrorKind::ConnectionAborted, message).into()
}

// How every TCP connection of this crate is configured.

/// TCP probes an idle connection this often. A connection that does not answer a few probes is
/// closed.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// TCP closes a connection whose sent bytes stay unacknowledged for this long.
#[cfg(target_os = "linux")]
const MAX_UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// A client that speaks RESP3: with it, an idle connection that is closed is noticed immediately,
/// and messages of channels arrive on the connection of the questions.
fn client(info: ConnectionInfo) -> RedisResult<Client> {
    let settings = info.redis_settings().clone();
    client_as_is(info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3)))
}

/// A client that speaks the protocol version that `info` names.
pub(super) fn client_as_is(info: ConnectionInfo) -> RedisResult<Client> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(MAX_UNACKNOWLEDGED);
    let info = info.set_tcp_settings(tcp);
    #[cfg(feature = "tls")]
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        // If the application has installed a provider before, this fails and that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    Client::open(info)
}

/// Connects and logs in. A peer that closes the connection in place of the first answer is told.
pub(super) async fn connect(
    info: ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    const HUNG_UP: &str = "the connection was closed at HELLO 3, as by a proxy that speaks no \
        RESP3 (twemproxy), by one with no server behind it, or by a server that wants TLS";
    // Within TLS it may be the handshake that has failed.
    let is_plain = !matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    let connected = connect_as_is(client(info)?, config).await;
    connected.map_err(|error| match is_plain && is_hang_up(&error) {
        true => io::Error::new(io::ErrorKind::ConnectionReset, HUNG_UP).into(),
        false => error,
    })
}

/// The same for any client, without a guess at who hangs up. What a server says unasked before it
/// does is the error: that it is in protected mode, or that its connections are used up. One more
/// connection hears it in each outage, and not in each attempt: there may be too many already.
pub(super) async fn connect_as_is(
    client: Client,
    config: &AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    /// The errors of the servers that hang up, until attempts to connect to them end otherwise.
    static HEARD: Mutex<BTreeMap<String, RedisError>> = Mutex::new(BTreeMap::new());
    let connected = client.get_multiplexed_async_connection_with_config(config);
    let connected = connected.await;
    let address = client.get_connection_info().addr();
    let known = lock(&HEARD).remove(&address.to_string());
    match connected {
        Err(error) if is_hang_up(&error) => {
            let error = match known {
                Some(known) => known,
                None => last_words(address).await.unwrap_or(error),
            };
            lock(&HEARD).insert(address.to_string(), error.clone());
            Err(error)
        }
        other => other,
    }
}

/// Whether a peer has accepted a connection and closed it.
fn is_hang_up(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

/// How long a server is listened to that is asked nothing, and how much is read.
const MAX_HEARD: (Duration, u64) = (Duration::from_millis(250), 512);

/// The error that a server says unasked. The client loses it: it has asked nothing yet. Of what is
/// not ASCII and visible nothing is left, since it goes into logs.
async fn last_words(address: &ConnectionAddr) -> Option<RedisError> {
    let ConnectionAddr::Tcp(host, port) = address else {
        return None;
    };
    let mut heard = Vec::new();
    let listen = async {
        let server = TcpStream::connect((&**host, *port)).await?;
        server.take(MAX_HEARD.1).read_to_end(&mut heard).await
    };
    // At the time-out the bytes that have come are the words.
    let _ = timeout(MAX_HEARD.0, listen).await;
    let line = heard.split(|byte| b"\r\n".contains(byte)).next()?;
    let visible = line.iter().filter(|byte| matches!(byte, b' '..=b'~'));
    let line: Vec<u8> = visible.chain(b"\r\n").copied().collect();
    redis::parse_redis_value(&line).ok()?.extract_error().err()
}

/// A connection without time limits of its own: every caller limits the time of the whole
/// operation.
///
/// The client's own limits would be a second timeout beside ours. Its response timeout counts for
/// each request, and ends a pipeline whose replies are still under way.
pub(super) fn unbounded() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

// The first round trip over a new connection: scripts, clock and role.

/// The role that a server must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Master or replica.
    Any,
    /// Master. Sentinels may name a server that is not one yet, or not any more.
    #[cfg(feature = "sentinel")]
    Master,
}

/// If the replies took longer, the clock is read once more: its estimate may be wrong by that time,
/// and the server would refuse questions as late.
const MAX_CLOCK_ERROR: Duration = Duration::from_millis(10);

/// Loads the scripts, checks the role, and returns what the server's clock showed, whether the
/// server evicts keys, and how long the replies took.
///
/// All commands are one pipeline, so a new link costs one round trip beside what the client needs
/// to log in. Scripts that cannot be loaded are no failure. A server that is still loading its data
/// is one, and the attempt is made again.
pub(super) async fn handshake(
    connection: &mut MultiplexedConnection,
    role: Role,
    preload: &Preload,
) -> RedisResult<(ServerClock, bool, Duration)> {
    let mut commands = Pipeline::new();
    for script in preload.scripts() {
        commands.add_command(script.load());
    }
    let scripts = commands.len();
    commands.cmd("TIME");
    if role != Role::Any {
        commands.cmd("ROLE");
    }
    // The last one, and an error is none: servers and users may not have it.
    commands.cmd("INFO").arg("memory");
    let asked = Instant::now();
    let replies = connection.req_packed_commands(&commands, 0, commands.len());
    let mut replies = replies.await?.into_iter();
    let answered = Instant::now();
    for reply in replies.by_ref().take(scripts) {
        if let Err(error) = reply.extract_error()
            // The scripts then travel with their first calls.
            && !is_not_available(&error)
        {
            return Err(error);
        }
    }
    let time = replies.next().unwrap_or(Value::Nil).extract_error()?;
    if role != Role::Any {
        let role = replies.next().unwrap_or(Value::Nil);
        // An unreadable role is an error: an old master would lose all that it counts from now on.
        check_is_master(&role.extract_error()?)?;
    }
    let no_time = || RedisError::from((ErrorKind::UnexpectedReturnType, "no time"));
    let now = time.as_sequence().and_then(micros).ok_or_else(no_time)?;
    let evicts = replies.next().is_some_and(|memory| evicts_keys(&memory));
    let clock = ServerClock::new(now, asked, answered);
    if answered - asked > MAX_CLOCK_ERROR {
        let time = connection.req_packed_command(&redis::cmd("TIME")).await?;
        if let Some(now) = time.as_sequence().and_then(micros) {
            clock.learn(now, answered, Instant::now());
        }
    }
    Ok((clock, evicts, answered - asked))
}

/// Whether the reply to `INFO memory` has a bound and a policy that evicts.
fn evicts_keys(memory: &Value) -> bool {
    let setting = |name: &str| {
        let lines = text(memory)?.lines();
        let mut settings = lines.filter_map(|line| line.split_once(':'));
        settings.find(|setting| setting.0 == name)
    };
    let is_bounded = setting("maxmemory").is_some_and(|(_, bytes)| bytes != "0");
    is_bounded && setting("maxmemory_policy").is_some_and(|(_, policy)| policy != "noeviction")
}

/// Whether the server forbids a command or does not know it.
pub(super) fn is_not_available(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    has_code(error, "NOPERM") || detail.starts_with("unknown command")
}

/// Fails if the reply to `ROLE` names another role than master.
fn check_is_master(role: &Value) -> RedisResult<()> {
    match role {
        Value::Array(parts) if parts.first().and_then(text) != Some("master") => {
            let message = "the server that the sentinels name is no master (yet, or any more)";
            Err(RedisError::from((ErrorKind::Io, message)))
        }
        _ => Ok(()),
    }
}

// Reading the values in replies.

/// A value that is a text.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The microseconds since 1970 in what `TIME` returns. `None` for anything else.
pub(super) fn micros(time: &[Value]) -> Option<u64> {
    let number = |part: &Value| text(part)?.parse::<u64>().ok();
    match time {
        [seconds, micros] => number(seconds)?
            .checked_mul(1_000_000)?
            .checked_add(number(micros)?),
        _ => None,
    }
}
