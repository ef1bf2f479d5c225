use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value, cmd};

use super::scripts::INCLUDES;

/// A script of the folder `lua/`, called by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    pub(super) source: String,
    sha: String,
}

impl Script {
    pub(super) fn new(source: &str) -> Self {
        let source = with_includes(source);
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }

    /// The script's text with its includes.
    #[cfg(test)]
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The command that puts the script into the server's cache.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        load
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
