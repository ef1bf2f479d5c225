use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value, cmd};

/// `lua/sliding_log.lua`.
pub(crate) static SLIDING_LOG: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/sliding_log.lua")));

/// A script of the folder `lua/`, called by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    sha: String,
}

impl Script {
    fn new(source: &'static str) -> Self {
        let sha = redis::Script::new(source).get_hash().to_owned();
        Self { source, sha }
    }

    /// Puts the script into the server's cache.
    pub(crate) async fn load(&self, connection: &mut impl ConnectionLike) -> RedisResult<()> {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.source);
        load.query_async(connection).await
    }

    /// Calls the script on one key. A server that does not know it, because it was restarted or its
    /// cache was flushed, gets its text with the same call again.
    pub(crate) async fn call(
        &self,
        connection: &mut impl ConnectionLike,
        key: &str,
        arguments: impl Fn(&mut Cmd),
    ) -> RedisResult<Value> {
        let command = |name: &str, script: &str| {
            // Fits all but huge calls: the numbers of a rule are a few digits each.
            let mut command = Cmd::with_capacity(16, script.len() + key.len() + 128);
            command.arg(name).arg(script).arg(1).arg(key);
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
                    .req_packed_command(&command("EVAL", self.source))
                    .await
                    .and_then(Value::extract_error)
            }
            reply => reply,
        }
    }
}
