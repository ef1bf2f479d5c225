//! The errors of the Redis client, as errors of this crate and by what they ask for.
//!
//! The rest of the crate asks an error two questions. Callers ask for its kind, which their error
//! policies match on. Flights ask what to do next: send the script's text, send the keys one by
//! one, or connect again. The client's codes are trusted first, and words in the message only where
//! Redis or the client gives no code.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::{StoreError, StoreErrorKind};

/// The [`StoreError`] for an error of the Redis client. Its message names the server by `label`.
pub(crate) fn store_error(label: &str, error: RedisError) -> StoreError {
    let error = without_user(error);
    let kind = kind_of(&error);
    let what = match kind {
        StoreErrorKind::Timeout => "did not answer in time",
        StoreErrorKind::Unavailable => "is not available",
        StoreErrorKind::Refused => "refused",
        StoreErrorKind::ReadOnly => "takes no writes",
        StoreErrorKind::WrongType => "has something of another kind under this key",
        StoreErrorKind::OutOfMemory => "is out of memory",
        StoreErrorKind::Configuration if is_crossing_slots(&error) => {
            "would need keys in several slots of the cluster: what a name or prefix has between \
             its braces decides on the slot, so they have to match, with something between them"
        }
        StoreErrorKind::Configuration if is_redirection(&error) => {
            "is a node of a cluster: use redis-cluster:// (or RedisAddress::cluster)"
        }
        StoreErrorKind::Configuration => "cannot be addressed like this",
        _ => "answered with an error",
    };
    StoreError::new(kind, format!("{label} {what}: {error}")).with_source(error)
}

/// The error without the user's name, which Redis puts into it: `User gate has no permissions to
/// run the 'evalsha' command`.
fn without_user(error: RedisError) -> RedisError {
    let detail = error.detail().unwrap_or_default();
    let denial = detail
        .strip_prefix("User ")
        .and_then(|detail| detail.split_once(" has no permissions"));
    match denial {
        Some((_, denied)) => {
            let detail = format!("this user has no permissions{denied}");
            RedisError::from((error.kind(), "no permission", detail))
        }
        None => error,
    }
}

/// Whether the keys of a call are of several slots.
fn is_crossing_slots(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot)
}

/// Whether a node of a cluster refuses because another node serves the slot. Connections to a
/// cluster follow these refusals, so only a connection to a single server returns such an error.
fn is_redirection(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask))
}

/// The kind of an error, by its code, or otherwise by words in its message.
fn kind_of(error: &RedisError) -> StoreErrorKind {
    use StoreErrorKind as Kind;
    match error.kind() {
        _ if error.is_timeout() => Kind::Timeout,
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            Kind::Refused
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => Kind::ReadOnly,
        ErrorKind::InvalidClientConfig
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::Server(
            ServerErrorKind::CrossSlot | ServerErrorKind::Moved | ServerErrorKind::Ask,
        ) => Kind::Configuration,
        ErrorKind::Io
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain,
        ) => Kind::Unavailable,
        _ => kind_by_words(&error.to_string()),
    }
}

/// The kind of an error whose code the client does not know, by words in its message. Before
/// version 7, Redis puts the code of an error inside a script into the middle of its message.
fn kind_by_words(message: &str) -> StoreErrorKind {
    const WORDS: [(&str, StoreErrorKind); 14] = [
        ("WRONGTYPE", StoreErrorKind::WrongType),
        ("OOM", StoreErrorKind::OutOfMemory),
        ("READONLY", StoreErrorKind::ReadOnly),
        ("NOREPLICAS", StoreErrorKind::ReadOnly),
        ("MISCONF", StoreErrorKind::ReadOnly),
        ("BUSY", StoreErrorKind::Unavailable),
        ("NOAUTH", StoreErrorKind::Refused),
        ("WRONGPASS", StoreErrorKind::Refused),
        ("NOPERM", StoreErrorKind::Refused),
        ("cluster support disabled", StoreErrorKind::Configuration),
        (
            "can't access at least one of the keys",
            StoreErrorKind::Refused,
        ),
        ("can't run this command", StoreErrorKind::Refused),
        // The connection was closed in the middle of a reply.
        ("Unexpected end of input", StoreErrorKind::Unavailable),
        ("max number of clients", StoreErrorKind::Unavailable),
    ];
    let known = WORDS.iter().find(|(word, _)| message.contains(word));
    known.map_or(StoreErrorKind::Protocol, |(_, kind)| *kind)
}

/// Whether the server does not know the script of the call.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether one key may be the reason, so that the other keys of the same call can be served.
///
/// No caller pays for another one: a forbidden key must not fail the 63 others of its call.
pub(super) fn is_about_a_key(error: &RedisError) -> bool {
    let is_forbidden = error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm);
    is_forbidden
        || error
            .to_string()
            .contains("can't access at least one of the keys")
}

/// Whether the server does not answer yet or is still loading its data.
///
/// Only [`connect`](super::Connection::connect) waits for such a server. Afterwards questions get
/// such an error at once, and none waits longer than its timeout.
pub(super) fn may_pass(error: &RedisError) -> bool {
    error.is_timeout() || error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading)
}

/// Whether the connection has to be replaced: it is broken, or the server has become a replica or
/// lost its master, so that another server may be at the address by now.
pub(super) fn needs_another_connection(error: &RedisError) -> bool {
    let is_broken = error.is_unrecoverable_error() || error.is_connection_dropped();
    let is_wrong_server = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    // Before version 7 the code of an error inside a script stands in the middle of its message.
    is_broken || is_wrong_server || error.to_string().contains("READONLY")
}

/// The error for an address that makes no sense.
pub(super) fn invalid_address(message: &str) -> StoreError {
    let message = format!("redis cannot be addressed like this: {message}");
    StoreError::new(StoreErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_not_shown() {
        let reply = b"-NOPERM User gate has no permissions to run the 'evalsha' command\r\n";
        let value = redis::parse_redis_value(reply).expect("an error reply");
        let error = value.extract_error().expect_err("an error reply");
        let error = store_error("redis", error);
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        let all = format!("{error} {error:?}");
        assert!(!all.contains("gate"), "{all}");
        assert!(
            all.contains("permissions to run the 'evalsha' command"),
            "{all}"
        );
    }
}
