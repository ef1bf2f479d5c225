use redis::{Cmd, cmd};

use super::includes::INCLUDES;

/// A script of the folder `lua/`, called by its hash.
///
/// A script is made once in a process, at its first use, from text that is part of the program. No
/// text of a script is ever made of data: that travels in KEYS and ARGV alone. `bash tests/lua.sh`
/// expands the includes in the same way, and looks for mistakes in the result.
#[derive(Debug)]
pub(crate) struct Script {
    pub(super) source: String,
    sha: String,
    /// Whether its last argument is a deadline by the server's clock, in microseconds. After that
    /// the script does nothing, and answers with the error `LATE`.
    pub(super) has_deadline: bool,
    /// Whether it is called so rarely that every call carries its text. Then the server never
    /// answers that it does not know the script, and no call loses its place in the order.
    pub(super) is_rare: bool,
}

impl Script {
    pub(super) fn new(source: &str) -> Self {
        let source = with_includes(source);
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self {
            source,
            sha,
            has_deadline: false,
            is_rare: false,
        }
    }

    /// The same, with a deadline as its last argument.
    #[cfg_attr(not(feature = "limiter"), expect(dead_code))]
    pub(super) fn with_deadline(mut self) -> Self {
        self.has_deadline = true;
        self
    }

    /// A script that is called by its text.
    pub(super) fn rare(source: &str) -> Self {
        Self {
            is_rare: true,
            ..Self::new(source)
        }
    }

    /// The command that puts the script into the server's cache.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        load
    }

    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The call of the script on these keys, of one slot, by its hash.
    pub(super) fn by_hash(&self, keys: &[&str], arguments: impl FnOnce(&mut Cmd)) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.sha).arg(keys.len()).arg(keys);
        arguments(&mut command);
        command
    }
}

/// The text with its includes put in, and with the includes of those.
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
