//! One connection to one server, with the settings and scripts that every one gets.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult, ServerErrorKind, Value,
};

use super::keeper::{Link, Loss};
use super::scripts::Preload;

/// How often an idle connection is probed; a few lost probes are a lost connection.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// RESP3, because with it the client is told of a closed connection while it is idle.
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

/// Whoever calls bounds the whole of its waiting.
pub(super) fn unbounded() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

/// Connects and loads the scripts; all that is asked goes in one round trip.
pub(super) async fn open(info: ConnectionInfo, role: Role, preload: Preload) -> RedisResult<Link> {
    let loss = Loss::new();
    let lost = loss.clone();
    let on_push = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            lost.tell();
        }
        Ok::<_, redis::aio::SendError>(())
    };
    let config = unbounded().set_push_sender(on_push);
    #[cfg(feature = "sentinel")]
    let at = info.addr().to_string().into();
    let client = client(info)?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    prepare(&mut connection, role, preload).await?;
    Ok(Link {
        connection,
        loss,
        since: std::time::Instant::now(),
        #[cfg(feature = "sentinel")]
        at,
        #[cfg(feature = "sentinel")]
        epoch: 0,
    })
}

/// What a server has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Whatever it is.
    Any,
    /// A master. It is what sentinels say that it is, but they may be late.
    #[cfg(feature = "sentinel")]
    Master,
}

async fn prepare(
    connection: &mut MultiplexedConnection,
    role: Role,
    preload: Preload,
) -> RedisResult<()> {
    let mut questions = redis::pipe();
    for script in preload.scripts() {
        questions.add_command(script.load());
    }
    let scripts = questions.len();
    if role != Role::Any {
        questions.cmd("ROLE");
    }
    let asked = questions.len();
    let answers = connection.req_packed_commands(&questions, 0, asked);
    let answers = answers.await?;
    for answer in answers.iter().take(scripts) {
        if let Value::ServerError(error) = answer {
            let error = RedisError::from(error.clone());
            if !is_dispensable(&error) {
                return Err(error);
            }
        }
    }
    match answers.get(scripts) {
        // Taken for a master unseen, an old one would be asked, and all that it counts be lost.
        Some(Value::ServerError(error)) => Err(RedisError::from(error.clone())),
        Some(answer) if is_replica(answer) => Err(RedisError::from((
            ErrorKind::Io,
            "the server that the sentinels name is no master (yet, or any more)",
        ))),
        _ => Ok(()),
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
