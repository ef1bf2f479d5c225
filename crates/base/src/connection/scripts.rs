use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use redis::{Cmd, cmd};

use super::call_id::{numbered, numbered_with_deadline};
use crate::sync::lock;

/// Makes a script of each listed file of the folder `lua/` of the package that calls this, and the
/// list of all of them.
#[macro_export]
macro_rules! scripts {
    (
        $list:ident of $library:expr =>
        $($(#[$doc:meta])* $name:ident = $new:ident($file:literal);)+
    ) => {
        $($(#[$doc])*
        pub(crate) static $name: ::std::sync::LazyLock<$crate::connection::Script> =
            ::std::sync::LazyLock::new(|| {
            let source = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $file));
            $crate::connection::Script::$new(&$library, source)
        });)+

        #[doc = "All of these."]
        pub(crate) const $list: $crate::connection::ScriptList = &[$(&$name),+];
    };
}
pub use crate::scripts;

/// The names and texts of files of the folder `lua/include/` of the package that calls this.
#[macro_export]
macro_rules! includes {
    ($($name:literal,)+) => {
        &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/include/", $name, ".lua")),
        )),+]
    };
}
pub use crate::includes;

/// Scripts that are called by their hash.
pub type ScriptList = &'static [&'static LazyLock<Script>];

/// The scripts that each link of a connection loads at its beginning. Clones are the same.
///
/// Each store, limiter or lock of a connection adds those that it calls. Each script that a server
/// knows makes all others slower by a little, since its memory is looked through for garbage again
/// and again, so what nobody calls is not loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Preload(Arc<Mutex<Vec<&'static LazyLock<Script>>>>);

impl Preload {
    /// Adds scripts, and returns those that were not there.
    pub(super) fn add(&self, scripts: ScriptList) -> Vec<&'static Script> {
        let mut all = lock(&self.0);
        let known = all.len();
        let is_new = |script: &&_| !all.iter().any(|of: &&_| std::ptr::eq(*of, *script));
        let new: Vec<_> = scripts.iter().copied().filter(is_new).collect();
        all.extend(new);
        all[known..].iter().map(|script| &***script).collect()
    }

    pub(super) fn scripts(&self) -> Vec<&'static Script> {
        lock(&self.0).iter().map(|script| &***script).collect()
    }
}

/// What the scripts of a package are put together from.
#[derive(Debug)]
pub struct Library {
    /// The name and the text of each include. A script has the text where a line says
    /// `-- include: name`.
    pub includes: &'static [(&'static str, &'static str)],
    /// Lines `pub(crate) const NAME: type = text;`, the constants of the scripts, and comments.
    pub constants: &'static str,
}

impl Library {
    /// The text with its includes and constants put in, and with those of the includes.
    fn expand(&self, source: &str) -> String {
        let mut whole = String::with_capacity(source.len());
        self.put(source, &self.constants(), &mut whole);
        whole
    }

    fn put(&self, source: &str, constants: &HashMap<&str, &str>, whole: &mut String) {
        for line in source.lines() {
            let name = line.trim_start().strip_prefix("-- include: ");
            match self.includes.iter().find(|(known, _)| Some(*known) == name) {
                Some((_, text)) => self.put(text, constants, whole),
                None => {
                    debug_assert!(name.is_none(), "an include that is not listed: {line}");
                    put_line(line, constants, whole);
                }
            }
        }
    }

    fn constants(&self) -> HashMap<&'static str, &'static str> {
        let lines = self.constants.lines();
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.strip_prefix("pub(crate) const ")?.split_once(": ")?;
            Some((name, value.strip_suffix(';')?.split_once(" = ")?.1))
        });
        pairs.collect()
    }
}

/// A script of the folder `lua/`, called by its hash.
///
/// A script is made once in a process, at its first use, from text that is part of the program. No
/// text of a script is ever made of data: that travels in KEYS and ARGV alone. `bash tests/lua.sh`
/// expands a script in the same way, and looks for mistakes in the result.
#[derive(Debug)]
pub struct Script {
    source: String,
    sha: String,
    /// Whether it gets a deadline: see [`numbered_with_deadline`].
    pub(super) has_deadline: bool,
    /// Whether it is called so rarely that every call carries its text. Then the server never
    /// answers that it does not know the script, and no call loses its place in the order.
    is_rare: bool,
}

impl Script {
    /// A script whose reply is read by [`CallId::read`](super::call_id::CallId::read).
    pub fn new(library: &Library, source: &str) -> Self {
        Self::with_source(numbered(&library.expand(source)))
    }

    /// A script that is not executed once its deadline is over: see [`numbered_with_deadline`].
    pub fn with_deadline(library: &Library, source: &str) -> Self {
        Self {
            has_deadline: true,
            ..Self::with_source(numbered_with_deadline(&library.expand(source)))
        }
    }

    /// A script that repeats the number of its call itself.
    pub fn as_it_is(library: &Library, source: &str) -> Self {
        Self::with_source(library.expand(source))
    }

    fn with_source(source: String) -> Self {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self {
            source,
            sha,
            has_deadline: false,
            is_rare: false,
        }
    }

    /// A script that is called by its text.
    pub fn rare(library: &Library, source: &str) -> Self {
        Self {
            is_rare: true,
            ..Self::new(library, source)
        }
    }

    /// The command that puts the script into the server's cache.
    pub(super) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        load
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The beginning of a call with this number of keys, with the script's text or its hash. It has
    /// room for `bytes` of keys and arguments.
    pub fn command(&self, has_text: bool, keys: usize, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(keys + 6, bytes);
        if has_text || self.is_rare {
            command.arg("EVAL").arg(&self.source)
        } else {
            command.arg("EVALSHA").arg(&self.sha)
        };
        command.arg(keys);
        command
    }
}

/// Adds a line. Outside of comments, a word that is the name of a constant becomes its text.
fn put_line(line: &str, constants: &HashMap<&str, &str>, whole: &mut String) {
    let is_comment = line.trim_start().starts_with("--");
    let is_part = |of: char| of.is_ascii_alphanumeric() || of == '_';
    let words = line.split_inclusive(|of| !is_part(of));
    for word in words {
        let name = word.trim_end_matches(|of| !is_part(of));
        match constants.get(name).filter(|_| !is_comment) {
            Some(text) => whole.extend([text, &word[name.len()..]]),
            None => whole.push_str(word),
        }
    }
    whole.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_put_in_for_its_name_alone() {
        let constants = HashMap::from([("ALLOWED", "1"), ("OWED", "16384"), ("ROW", "'>I7I2I7'")]);
        let put = |line| {
            let mut whole = String::new();
            put_line(line, &constants, &mut whole);
            whole
        };
        assert_eq!(put("if a == ALLOWED then"), "if a == 1 then\n");
        assert_eq!(put("(OWED+ROW)"), "(16384+'>I7I2I7')\n");
        assert_eq!(put("  -- ALLOWED"), "  -- ALLOWED\n");
        assert_eq!(
            put("DISALLOWED, ALLOWED_ONCE"),
            "DISALLOWED, ALLOWED_ONCE\n"
        );
    }
}
