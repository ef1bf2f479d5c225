//! The first round trip over a new connection: scripts, clock and role.

use std::time::Instant;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};

use super::reply::{micros, text};
use super::scripts::Preload;
use super::server_clock::ServerClock;

/// The role that a server must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Master or replica.
    Any,
    /// Master. Sentinels may name a server that is not one yet, or not any more.
    #[cfg(feature = "sentinel")]
    Master,
}

/// Loads the scripts, checks the role, and returns what the server's clock showed.
///
/// All commands are one pipeline, so a new link costs one round trip beside what the client needs
/// to log in. Scripts that cannot be loaded are no failure. A server that is still loading its data
/// is one, and the attempt is made again.
pub(super) async fn handshake(
    connection: &mut MultiplexedConnection,
    role: Role,
    preload: Preload,
) -> RedisResult<ServerClock> {
    let mut commands = Pipeline::new();
    for script in preload.scripts() {
        commands.add_command(script.load());
    }
    let scripts = commands.len();
    commands.cmd("TIME");
    if role != Role::Any {
        commands.cmd("ROLE");
    }
    let asked = Instant::now();
    let replies = connection.req_packed_commands(&commands, 0, commands.len());
    let mut replies = replies.await?.into_iter();
    let answered = Instant::now();
    for reply in replies.by_ref().take(scripts) {
        if let Err(error) = reply.extract_error()
            && !is_loading_impossible(&error)
        {
            return Err(error);
        }
    }
    let time = replies.next().unwrap_or(Value::Nil).extract_error()?;
    if let Some(role) = replies.next() {
        // An unreadable role is an error: an old master would lose all that it counts from now on.
        check_is_master(&role.extract_error()?)?;
    }
    let no_time = || RedisError::from((ErrorKind::UnexpectedReturnType, "no time"));
    let now = match &time {
        Value::Array(parts) => micros(parts),
        _ => None,
    };
    let now = now.ok_or_else(no_time)?;
    Ok(ServerClock::new(now, asked, answered))
}

/// Whether the server forbids `SCRIPT LOAD` or does not know it. The scripts then travel with their
/// first calls.
fn is_loading_impossible(error: &RedisError) -> bool {
    let is_forbidden = error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm);
    let is_unknown = error
        .detail()
        .is_some_and(|detail| detail.starts_with("unknown command"));
    is_forbidden || is_unknown
}

/// Fails if the reply to `ROLE` names another role than master.
fn check_is_master(role: &Value) -> RedisResult<()> {
    match role {
        Value::Array(parts) if parts.first().and_then(text) != Some("master") => {
            Err(RedisError::from((
                ErrorKind::Io,
                "the server that the sentinels name is no master (yet, or any more)",
            )))
        }
        _ => Ok(()),
    }
}
