//! The errors of the Redis client, as errors of this crate and by what they ask for.
//!
//! The rest of the crate asks an error two questions. Callers ask for its kind, which their error
//! policies match on. Flights ask what to do next: send the script's text, send the keys one by
//! one, or connect again. The client's codes are trusted first, and words in the message only where
//! Redis or the client gives no code. `error_replies.txt` has what real servers reply, recorded by
//! `tests/error_replies.sh`.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::{StoreError, StoreErrorKind};

/// The [`StoreError`] for an error of the Redis client. Its message names the server by `label`.
pub(super) fn store_error(label: &str, error: RedisError) -> StoreError {
    let error = without_user(error);
    let kind = kind_of(&error);
    if kind == StoreErrorKind::Protocol && error.to_string().contains("Parse error at") {
        return StoreError::new(kind, format!("{label} answers, but not as Redis does"));
    }
    let what = match kind {
        StoreErrorKind::Timeout => "did not answer in time",
        StoreErrorKind::Unavailable => "is not available",
        StoreErrorKind::Refused => "refused",
        StoreErrorKind::ReadOnly => "takes no writes",
        StoreErrorKind::WrongType => "holds a value of the wrong type under this key",
        StoreErrorKind::OutOfMemory => "is out of memory",
        StoreErrorKind::Configuration => mistake(&error).unwrap_or("cannot be addressed like this"),
        _ => "answered with an error",
    };
    let said = error.to_string();
    // Fakes add where in their program it happened.
    let said = said.split("stack traceback:").next().unwrap_or_default();
    let said = crate::unseen::blanked(said.trim_end());
    StoreError::new(kind, format!("{label} {what}: {said}")).with_source(error)
}

/// The error without the user's name, which Redis puts into it: `User gate has no permissions to
/// run the 'evalsha' command`.
fn without_user(error: RedisError) -> RedisError {
    let detail = error.detail().unwrap_or_default();
    let (before, denial) = match detail.strip_prefix(FAILURE_IN_SCRIPT) {
        Some(denial) => (FAILURE_IN_SCRIPT, denial),
        None => ("", detail),
    };
    let denial = denial.strip_prefix("User ");
    match denial.and_then(|denial| denial.split_once(" has no permissions")) {
        Some((_, denied)) => {
            let detail = format!("{before}this user has no permissions{denied}");
            RedisError::from((error.kind(), "no permission", detail))
        }
        None => error,
    }
}

/// The mistake in a set-up that this error shows, if it shows one.
fn mistake(error: &RedisError) -> Option<&'static str> {
    let detail = error.detail().unwrap_or_default();
    let lacks = |command| detail.starts_with("unknown command") && detail.contains(command);
    Some(match () {
        () if has_code(error, "CROSSSLOT") => {
            "would need keys in several slots of the cluster: what a name or prefix has between \
             its braces decides on the slot, so they have to match, with something between them; \
             or it is a node of a cluster at a redis:// address: use redis-cluster://"
        }
        // Connections to a cluster follow these, so it is one to a single server.
        () if has_code(error, "MOVED") || has_code(error, "ASK") => {
            "is a node of a cluster: use redis-cluster:// (or RedisAddress::cluster)"
        }
        // Since Valkey 9.1, Lua is in a module. Elsewhere an administrator took the command away.
        () if lacks("EVAL") || detail.starts_with("Could not find scripting engine") => {
            "executes no scripts: load its Lua module (valkey-lua), or the command was renamed"
        }
        // Each fake has words of its own.
        () if ["global variable 'struct'", "global 'struct'"]
            .iter()
            .any(|it| detail.contains(it)) =>
        {
            "lacks the Lua library `struct`, as fakes of Redis do: use a real server, in tests, too"
        }
        // Or a proxy in front of it.
        () if error.kind() == ErrorKind::RESP3NotSupported
            || has_code(error, "NOPROTO")
            || lacks("HELLO") =>
        {
            "speaks no RESP3, which every Redis since 6 does: connect to the server itself"
        }
        () => return None,
    })
}

/// The server's codes, and the kinds of error that they stand for.
const CODES: [(&str, StoreErrorKind); 6] = [
    ("WRONGTYPE", StoreErrorKind::WrongType),
    ("OOM", StoreErrorKind::OutOfMemory),
    ("READONLY NOREPLICAS MISCONF", StoreErrorKind::ReadOnly),
    ("NOAUTH WRONGPASS NOPERM DENIED", StoreErrorKind::Refused),
    ("BUSY LOADING MASTERDOWN", StoreErrorKind::Unavailable),
    ("CLUSTERDOWN TRYAGAIN", StoreErrorKind::Unavailable),
];
/// What the messages of errors without a code of their own say.
const PHRASES: [(&str, StoreErrorKind); 10] = [
    (KEY_IS_FORBIDDEN, StoreErrorKind::Refused),
    (FAILURE_IN_SCRIPT, StoreErrorKind::Refused),
    ("can't run this command", StoreErrorKind::Refused),
    ("cluster support disabled", StoreErrorKind::Configuration),
    ("max number of clients", StoreErrorKind::Unavailable),
    // The connection was closed in the middle of a reply.
    ("Unexpected end of input", StoreErrorKind::Unavailable),
    ("while the cluster is down", StoreErrorKind::Unavailable),
    // The client takes away the code of the reply to `SELECT`.
    ("o permissions to", StoreErrorKind::Refused),
    ("is busy running", StoreErrorKind::Unavailable),
    ("refused to switch database", StoreErrorKind::Configuration),
];
/// The error of a script whose user may not use one of its keys.
const KEY_IS_FORBIDDEN: &str = "can't access at least one of the keys";
/// So begins the error of a script whose user may not do something, since Redis 7.2 and Valkey 7.2.
const FAILURE_IN_SCRIPT: &str = "ACL failure in script: ";

/// The kind of an error: by what the client says, by the server's code, or by the message.
fn kind_of(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        _ if error.is_timeout() => return StoreErrorKind::Timeout,
        ErrorKind::AuthenticationFailed => return StoreErrorKind::Refused,
        ErrorKind::InvalidClientConfig | ErrorKind::MasterNameNotFoundBySentinel => {
            return StoreErrorKind::Configuration;
        }
        ErrorKind::Io => return StoreErrorKind::Unavailable,
        _ if mistake(error).is_some() => return StoreErrorKind::Configuration,
        _ => {}
    }
    let message = error.to_string();
    let has_phrase = |phrase: &str| message.contains(phrase);
    let has_one = |codes: &str| codes.split(' ').any(|code| has_code(error, code));
    let by_code = CODES.iter().find(|(codes, _)| has_one(codes));
    let known = by_code.or_else(|| PHRASES.iter().find(|(phrase, _)| has_phrase(phrase)));
    known.map_or(StoreErrorKind::Protocol, |(_, kind)| *kind)
}

/// Whether the server has answered with this code. Before version 7, the code of an error inside a
/// script is in the middle of the message, and the code is `ERR`.
pub(super) fn has_code(error: &RedisError, code: &str) -> bool {
    match error.code() {
        Some("ERR") => {
            let message = error.detail().unwrap_or_default();
            let mut words = message.split(|c: char| !c.is_ascii_uppercase());
            words.any(|word| word == code)
        }
        known => known == Some(code),
    }
}

/// Whether the server does not know the script of the call.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether one key may be the reason, so that the other keys of the same call can be served.
///
/// No caller pays for another one: a forbidden key must not fail the 63 others of its call.
pub(super) fn is_about_a_key(error: &RedisError) -> bool {
    let message = error.to_string();
    let phrases = [KEY_IS_FORBIDDEN, FAILURE_IN_SCRIPT];
    has_code(error, "NOPERM") || phrases.iter().any(|phrase| message.contains(phrase))
}

/// Whether the server does not answer yet or is still loading its data.
///
/// [`connect`](super::Connection::connect) waits for such a server. Questions get such an error at
/// once, and none waits longer than its timeout.
pub(super) fn may_pass(error: &RedisError) -> bool {
    error.is_timeout() || error.kind() == ErrorKind::Server(ServerErrorKind::BusyLoading)
}

/// Whether somebody has to mend the set-up.
pub(super) fn is_mistake(error: &RedisError) -> bool {
    use StoreErrorKind::{Configuration, Refused};
    matches!(kind_of(error), Configuration | Refused)
}

/// Whether the connection is broken.
pub(super) fn is_broken(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_connection_dropped()
}

/// Whether the server takes no writes for now: it has become a replica or lost its master, so that
/// another server may be at the address by now, or its memory is full, so that somebody may let it
/// evict keys.
pub(super) fn takes_no_writes(error: &RedisError) -> bool {
    let codes = ["READONLY", "MASTERDOWN", "OOM"];
    codes.iter().any(|code| has_code(error, code))
}

/// The error for an address that makes no sense.
pub(super) fn invalid_address(message: &str) -> StoreError {
    let message = format!("redis cannot be addressed like this: {message}");
    StoreError::new(StoreErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a server that replies with this line.
    fn error_of(reply: &str) -> RedisError {
        let reply = format!("-{reply}\r\n");
        let value = redis::parse_redis_value(reply.as_bytes()).expect("an error reply");
        value.extract_error().expect_err("an error reply")
    }

    #[test]
    fn replies_of_real_servers() {
        let recorded = include_str!("error_replies.txt");
        for line in recorded.lines() {
            let mut columns = line.split('\t').skip(1);
            let (kind, reply) = (columns.next(), columns.next().expect("three columns"));
            let seen = format!("{:?}", kind_of(&error_of(reply)));
            assert_eq!(Some(&*seen), kind, "{line}");
        }
    }

    /// miniredis 2.40, fakeredis 2.41, jedis-mock 1.1, Envoy 1.40, and servers before Redis 6.
    #[test]
    fn replies_of_fakes_and_proxies() {
        let traced = "(new function): :16: Script attempted to access nonexistent global variable \
                      'struct' stack traceback:  [G]: in function 'error'";
        let indexed = "[string \"<python>\"]:1: attempt to index global 'struct' (a nil value)\n\
                       stack traceback:\n\t[string \"<python>\"]:1: in main chunk";
        for (reply, lacks) in [
            (format!("ERR Error compiling script {traced}"), "`struct`"),
            (
                format!("ERR Error running script: @user_script:?: {indexed}"),
                "`struct`",
            ),
            (
                "NOPROTO Resp3 not supported by JedisMock".to_owned(),
                "RESP3",
            ),
            ("NOPROTO unsupported protocol version".to_owned(), "RESP3"),
            (
                "ERR unknown command 'HELLO', with args beginning with: '3'".to_owned(),
                "RESP3",
            ),
        ] {
            let error = store_error("redis", error_of(&reply));
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{reply}");
            let text = error.to_string();
            assert!(
                text.contains(lacks) && !text.contains("traceback"),
                "{text}"
            );
        }
    }

    /// The client has its own words for what a server replies to `SELECT`, and no code.
    #[test]
    fn replies_to_select() {
        use StoreErrorKind::{Configuration, Refused, Unavailable};
        for (reply, kind) in [
            ("DB index is out of range", Configuration),
            ("SELECT is not allowed in cluster mode", Configuration),
            ("No permissions to access database", Refused),
            (
                "User gate has no permissions to run the 'select' command",
                Refused,
            ),
            (
                "Redis is busy running a script. You can only call SCRIPT KILL.",
                Unavailable,
            ),
        ] {
            let error = RedisError::from((
                ServerErrorKind::ResponseError.into(),
                "Redis server refused to switch database",
                reply.to_owned(),
            ));
            let error = store_error("redis", error);
            assert_eq!(error.kind(), kind, "{reply}");
            assert!(!error.to_string().contains("gate"), "{error}");
        }
    }

    #[test]
    fn words_of_others_are_no_codes() {
        for reply in [
            "ERR no ROOM for it",
            "ERR the server is BUSYBODY",
            "ERR oom",
        ] {
            assert_eq!(
                kind_of(&error_of(reply)),
                StoreErrorKind::Protocol,
                "{reply}"
            );
        }
    }

    #[test]
    fn users_are_not_shown() {
        for reply in [
            "NOPERM User gate has no permissions to run the 'evalsha' command",
            "ERR ACL failure in script: User gate has no permissions to run the 'evalsha' command",
        ] {
            let error = store_error("redis", error_of(reply));
            assert_eq!(error.kind(), StoreErrorKind::Refused);
            let all = format!("{error} {error:?}");
            assert!(!all.contains("gate"), "{all}");
            assert!(
                all.contains("permissions to run the 'evalsha' command"),
                "{all}"
            );
        }
    }
}
