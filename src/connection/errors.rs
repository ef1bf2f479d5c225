//! What errors of the Redis client mean.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::{StoreError, StoreErrorKind};

/// What an error of the Redis client at this address means to somebody who wanted a decision.
pub(crate) fn store_error(address: &str, error: RedisError) -> StoreError {
    let error = without_user(error);
    let kind = kind_of(&error);
    let what = match kind {
        StoreErrorKind::Timeout => "did not answer in time",
        StoreErrorKind::Unavailable => "is not available",
        StoreErrorKind::Refused => "refused",
        StoreErrorKind::ReadOnly => "takes no writes",
        StoreErrorKind::WrongType => "has something of another kind under this key",
        StoreErrorKind::OutOfMemory => "is out of memory",
        StoreErrorKind::Configuration if is_crossing(&error) => {
            "would need keys in several slots of the cluster: what a name or prefix has between its braces decides \
             on the slot, so they have to match, with something between them"
        }
        StoreErrorKind::Configuration if is_redirection(&error) => {
            "is a node of a cluster: use redis-cluster:// (or RedisAddress::cluster)"
        }
        StoreErrorKind::Configuration => "cannot be addressed like this",
        _ => "answered with an error",
    };
    StoreError::new(kind, format!("{address} {what}: {error}")).with_source(error)
}

/// Servers tell which user may not do something: `User gate has no permissions to run the 'evalsha'
/// command`.
fn without_user(error: RedisError) -> RedisError {
    let told = error
        .detail()
        .and_then(|detail| detail.strip_prefix("User "));
    let told = told.and_then(|told| told.split_once(" has no permissions"));
    match told {
        Some((_, what)) => {
            let what = format!("this user has no permissions{what}");
            RedisError::from((error.kind(), "no permission", what))
        }
        None => error,
    }
}

fn is_crossing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot)
}

/// A connection to a cluster follows these, so this is one to a single server.
fn is_redirection(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask))
}

fn kind_of(error: &RedisError) -> StoreErrorKind {
    use StoreErrorKind as To;
    match error.kind() {
        _ if error.is_timeout() => To::Timeout,
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => To::Refused,
        ErrorKind::Server(ServerErrorKind::ReadOnly) => To::ReadOnly,
        ErrorKind::InvalidClientConfig
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::Server(
            ServerErrorKind::CrossSlot | ServerErrorKind::Moved | ServerErrorKind::Ask,
        ) => To::Configuration,
        ErrorKind::Io
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain,
        ) => To::Unavailable,
        _ => kind_by_words(&error.to_string()),
    }
}

/// Codes that the client does not know, and errors of commands inside a script: before version 7
/// the server puts their code into the middle of its message.
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
        // A reply that was cut off, with its connection.
        ("Unexpected end of input", StoreErrorKind::Unavailable),
        ("max number of clients", StoreErrorKind::Unavailable),
    ];
    let known = WORDS.iter().find(|(word, _)| message.contains(word));
    known.map_or(StoreErrorKind::Protocol, |(_, kind)| *kind)
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
