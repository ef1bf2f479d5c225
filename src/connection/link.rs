use std::sync::Arc;

use futures_util::future::join;
use redis::aio::{ConnectionLike, MultiplexedConnection, SendError};
use redis::{
    Cmd, ConnectionInfo, ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Value,
};
use tokio::sync::{broadcast, watch};

use super::activity::Activity;
use super::call_id::CallId;
use super::client::{client, unbounded};
use super::handshake::{Role, handshake};
use super::reply::text;
use super::scripts::Preload;
use super::server_clock::ServerClock;
use crate::in_flight_counter::InFlightCounter;

/// A listener that leaves more messages than this unread is told that it has missed some.
const MAX_UNREAD: usize = 1_024;

/// One connection to one server. Clones share it.
///
/// The reconnector makes it and keeps one clone; the dispatcher has one for each flight, and a
/// lock's subscriber one to hear messages. Whoever sees that it is broken closes it for all clones:
/// outstanding requests fail, and the TCP connection ends with the last clone. Closing twice is
/// harmless, and nothing opens it again. The reconnector makes another one instead, so all that a
/// link knows (its clock, its silence, its flights) is about one TCP connection to one server.
///
/// ```text
/// open -> in use -> closed by the server       (push_handler: Disconnection)
///                -> closed by whoever asked    (a reply of another call, READONLY, an I/O error)
///                -> closed by the reconnector  (replaced, or its task was aborted)
/// ```
#[derive(Clone)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    pub(super) inner: Arc<LinkInner>,
}

/// What the clones of a [`Link`] share.
pub(super) struct LinkInner {
    pub(super) clock: ServerClock,
    /// The server's host and port.
    #[cfg_attr(
        not(feature = "sentinel"),
        expect(dead_code, reason = "only a master's address changes")
    )]
    pub(super) server: Box<str>,
    /// The epoch of the failover that made the server a master, as a sentinel has said; 0 for any
    /// other server.
    #[cfg_attr(
        not(feature = "sentinel"),
        expect(dead_code, reason = "only a master's address changes")
    )]
    pub(super) epoch: u64,
    is_closed: watch::Sender<bool>,
    messages: broadcast::Sender<Arc<str>>,
    pub(super) activity: Activity,
    /// Flights in progress over this connection.
    pub(super) flights: InFlightCounter,
}

impl Link {
    /// Connects, loads the scripts, reads the server's clock and checks its role.
    pub(super) async fn open(
        info: ConnectionInfo,
        role: Role,
        epoch: u64,
        preload: Preload,
    ) -> RedisResult<Self> {
        let is_closed = watch::Sender::new(false);
        let messages = broadcast::Sender::new(MAX_UNREAD);
        let server = info.addr().to_string().into();
        let config = unbounded().set_push_sender(push_handler(&is_closed, &messages));
        let client = client(info)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let clock = handshake(&mut connection, role, preload).await?;
        let inner = LinkInner {
            clock,
            server,
            epoch,
            is_closed,
            messages,
            activity: Activity::new(),
            flights: InFlightCounter::default(),
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
    pub(super) async fn ask(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let _outstanding = self.inner.activity.request_begins();
        let mut connection = self.connection.clone();
        let replies = async {
            // A single command is sent without the list that a pipeline needs.
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
            () = self.closed() => return Err(closed_before_reply()),
        };
        if replies.is_ok() {
            self.inner.activity.reply_arrived();
        }
        replies
    }

    /// Sends one command, and a check behind it. Returns the reply to it and no other one: if the
    /// check's reply belongs to another call, the connection is closed.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code))]
    pub(super) async fn query(&self, command: Cmd) -> RedisResult<Value> {
        let id = CallId::next();
        let mut commands = Pipeline::with_capacity(2);
        commands.add_command(command).add_command(id.check());
        let mut replies = self.ask(&commands).await?;
        self.expect_check(id, replies.pop())?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Calls a script that does nothing. Completes when the server has executed it, or with the
    /// reason why it does not. `PING` would not do: a server that is paused for commands that may
    /// write still answers it.
    pub(super) async fn check(&self) -> RedisResult<()> {
        let id = CallId::next();
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(id.check());
        let mut replies = self.ask(&commands).await?;
        self.expect_check(id, replies.pop())
    }

    /// Fails unless this is the reply to the check with this number. Closes the connection if it is
    /// the reply to another call.
    fn expect_check(&self, id: CallId, reply: Option<Value>) -> RedisResult<()> {
        let reply = reply.unwrap_or(Value::Nil).extract_error()?;
        match id.read_check(&reply) {
            Some(_) => Ok(()),
            None => {
                self.close();
                Err(RedisError::from((
                    ErrorKind::Parse,
                    "the server replied to a different command",
                )))
            }
        }
    }

    /// Subscribes to these channels, or unsubscribes from them if `is_wanted` is false.
    ///
    /// The client takes any reply for the confirmation, so a check travels behind the command.
    #[cfg_attr(not(feature = "lock"), expect(dead_code))]
    pub(crate) async fn subscribe(
        &self,
        channels: &[Arc<str>],
        is_wanted: bool,
    ) -> RedisResult<()> {
        let names: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut connection = self.connection.clone();
        let subscription = async {
            match is_wanted {
                true => connection.subscribe(names).await,
                false => connection.unsubscribe(names).await,
            }
        };
        let (confirmed, checked) = join(subscription, self.check()).await;
        confirmed.and(checked)
    }

    /// The name of the channel of each message that arrives from now on.
    ///
    /// Only the channel's name is handed on. A waiter for a lock asks the server for the lock, and
    /// the message tells it when.
    #[cfg_attr(not(feature = "lock"), expect(dead_code))]
    pub(crate) fn messages(&self) -> broadcast::Receiver<Arc<str>> {
        self.inner.messages.subscribe()
    }

    /// Closes the connection for all clones. Outstanding requests fail.
    pub(super) fn close(&self) {
        self.inner.is_closed.send_replace(true);
    }

    /// Whether the connection is closed.
    pub(super) fn is_closed(&self) -> bool {
        *self.inner.is_closed.borrow()
    }

    /// Completes when the connection is closed.
    pub(crate) async fn closed(&self) {
        // It cannot fail: the sender lives as long as `self`.
        let mut is_closed = self.inner.is_closed.subscribe();
        let _ = is_closed.wait_for(|is_closed| *is_closed).await;
    }
}

/// Handles what the server sends without being asked: the end of the connection, and messages.
fn push_handler(
    is_closed: &watch::Sender<bool>,
    messages: &broadcast::Sender<Arc<str>>,
) -> impl Fn(PushInfo) -> Result<(), SendError> + Send + Sync + 'static {
    let (is_closed, messages) = (is_closed.clone(), messages.clone());
    move |push| {
        match push.kind {
            PushKind::Disconnection => drop(is_closed.send_replace(true)),
            PushKind::Message => {
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
    let error = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, message);
    RedisError::from(error)
}
