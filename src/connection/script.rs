use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value, cmd};

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)+) => {
        $($(#[$doc])*
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("../../lua/", $file))));)+

        /// Those that a connection loads at its beginning.
        pub(super) fn all() -> impl Iterator<Item = &'static Script> {
            [$(&$name),+].into_iter().map(LazyLock::force)
        }
    };
}

scripts! {
    /// Takes by the sliding log.
    SLIDING_LOG = "sliding_log.lua";
    /// Takes by the sliding window.
    SLIDING_WINDOW = "sliding_window.lua";
    /// Takes by the generic cell rate algorithm.
    GCRA = "gcra.lua";
    /// Takes by the fixed window.
    FIXED_WINDOW = "fixed_window.lua";
    /// Gives back an earlier take.
    REFUND = "refund.lua";
    /// Grants permits of a rate limiter.
    LIMITER_ACQUIRE = "limiter/acquire.lua";
    /// Grants permits as soon as they are free.
    LIMITER_RESERVE = "limiter/reserve.lua";
    /// Gives back a grant that nobody has used.
    LIMITER_CANCEL = "limiter/cancel.lua";
    /// Gives back permits.
    LIMITER_RELEASE = "limiter/release.lua";
    /// How many permits there are.
    LIMITER_AVAILABLE = "limiter/available.lua";
    /// Sets a rate.
    LIMITER_CONFIGURE = "limiter/configure.lua";
    /// Lets a rate be forgotten.
    LIMITER_EXPIRE = "limiter/expire.lua";
    /// Forgets a rate.
    LIMITER_DELETE = "limiter/delete.lua";
    /// How many permits a fixed window has.
    LIMITER_AVAILABLE_FIRST = "limiter/available_first.lua";
    /// Grants permits of a fixed window.
    LIMITER_FIRST = "limiter/first.lua";
    /// Grants permits, and sends who is denied back too early.
    LIMITER_SECOND = "limiter/second.lua";
    /// Takes a lock.
    LOCK_ACQUIRE = "lock/acquire.lua";
    /// Makes a lock's lease last longer.
    LOCK_RENEW = "lock/renew.lua";
    /// Gives a lock back.
    LOCK_RELEASE = "lock/release.lua";
    /// Takes a lock away from its holder.
    LOCK_FORCE = "lock/force.lua";
    /// Looks at a lock.
    LOCK_LOOK = "lock/look.lua";
    /// Takes one of several permits.
    SLOTS_ACQUIRE = "slots/acquire.lua";
    /// Makes a permit's lease last longer.
    SLOTS_RENEW = "slots/renew.lua";
    /// Gives a permit back.
    SLOTS_RELEASE = "slots/release.lua";
}

/// What several scripts have in common: put in where a line says `-- include: name`.
const INCLUDES: [(&str, &str); 9] = [
    ("question", include_str!("../../lua/include/question.lua")),
    ("decision", include_str!("../../lua/include/decision.lua")),
    ("earlier", include_str!("../../lua/include/earlier.lua")),
    ("carried", include_str!("../../lua/include/carried.lua")),
    ("pace", include_str!("../../lua/include/pace.lua")),
    ("permits", include_str!("../../lua/include/permits.lua")),
    (
        "permits_wait",
        include_str!("../../lua/include/permits_wait.lua"),
    ),
    ("formats", include_str!("../../lua/include/formats.lua")),
    ("lock", include_str!("../../lua/include/lock.lua")),
];

/// A script of the folder `lua/`, called by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    sha: String,
}

impl Script {
    fn new(source: &str) -> Self {
        let source = with_includes(source);
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }

    /// Puts the script into the server's cache.
    pub(crate) async fn load(&self, connection: &mut impl ConnectionLike) -> RedisResult<()> {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        load.query_async(connection).await
    }

    /// Calls the script on keys of one slot. A server that does not know it, because it was restarted or its
    /// cache was flushed, gets its text with the same call again.
    pub(crate) async fn call(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
    ) -> RedisResult<Value> {
        let command = |name: &str, script: &str| {
            // Fits all but huge calls: the numbers of a rule are a few bytes each.
            let keys_length: usize = keys.iter().map(|key| key.len()).sum();
            let mut command = Cmd::with_capacity(16, script.len() + keys_length + 128);
            command.arg(name).arg(script).arg(keys.len()).arg(keys);
            arguments(&mut command);
            command
        };
        let reply = connection
            .req_packed_command(&command("EVALSHA", &self.sha))
            .await
            .and_then(Value::extract_error);
        match reply {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                connection
                    .req_packed_command(&command("EVAL", &self.source))
                    .await
                    .and_then(Value::extract_error)
            }
            reply => reply,
        }
    }
}

/// The text with its includes, and with theirs.
fn with_includes(source: &str) -> String {
    let mut whole = String::with_capacity(source.len());
    for line in source.lines() {
        let name = line.trim_start().strip_prefix("-- include: ");
        match INCLUDES.iter().find(|(known, _)| Some(*known) == name) {
            Some((_, text)) => whole.push_str(&with_includes(text)),
            None => {
                whole.push_str(line);
                whole.push('\n');
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_be_included() {
        for script in all() {
            assert!(!script.source.contains("include:"), "{}", script.source);
        }
    }
}
