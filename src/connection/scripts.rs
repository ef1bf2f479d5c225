use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Cmd, cmd};

use super::call_id::{numbered, numbered_with_deadline};

macro_rules! scripts {
    ($list:ident: $($(#[$doc:meta])* $name:ident = $new:ident($file:literal);)+) => {
        $($(#[$doc])*
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::$new(include_str!(concat!("../../lua/", $file)))
        });)+

        const $list: &[&LazyLock<Script>] = &[$(&$name),+];
    };
}

/// Those that a connection loads at its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preload {
    /// What stores call. Each script that a server knows makes all others slower by a little, since
    /// its memory is looked through for garbage again and again.
    Stores,
    /// What limiters and locks call, too.
    All,
}

impl Preload {
    pub(super) fn scripts(self) -> impl Iterator<Item = &'static Script> {
        let others: &[&[&LazyLock<Script>]] = match self {
            Self::Stores => &[],
            Self::All => &[
                #[cfg(feature = "limiter")]
                OF_LIMITERS,
                #[cfg(feature = "lock")]
                OF_LOCKS,
            ],
        };
        let scripts = others.iter().copied().flatten().chain(OF_STORES);
        scripts.map(|script| LazyLock::force(script))
    }
}

scripts! {
    OF_STORES:
    /// Decides by a sliding log. A script of takes repeats the number of its call itself.
    TAKE_SLIDING_LOG = as_it_is("sliding_log.lua");
    /// Decides by a sliding window.
    TAKE_SLIDING_WINDOW = as_it_is("sliding_window.lua");
    /// Decides by GCRA.
    TAKE_GCRA = as_it_is("gcra.lua");
    /// Decides by a fixed window.
    TAKE_FIXED_WINDOW = as_it_is("fixed_window.lua");
    /// Gives back what a sliding log has charged. Scripts of refunds are loaded ahead: with its
    /// text, a refund costs the server almost twice as much, and one that is sent again because the
    /// server does not know the script would lose its place among the takes.
    REFUND_SLIDING_LOG = new("refund/sliding_log.lua");
    /// Gives back what a sliding window has charged.
    REFUND_SLIDING_WINDOW = new("refund/sliding_window.lua");
    /// Gives back what GCRA has charged.
    REFUND_GCRA = new("refund/gcra.lua");
    /// Gives back what a fixed window has charged.
    REFUND_FIXED_WINDOW = new("refund/fixed_window.lua");
    /// Gives permits of requests in progress back.
    RELEASE_PERMITS = new("permits/release.lua");
    /// Keeps them for another lease.
    RENEW_PERMITS = new("permits/renew.lua");
}

/// Forgets what counts under one key of a store. It is called rarely, so it is not loaded ahead:
/// each call carries its text.
pub(crate) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/reset.lua")));

/// Holds a key. It is called rarely, too.
pub(crate) static HOLD: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/hold.lua")));

/// Keeps what a process says of itself, and tells it what its service shares: once a second.
pub(crate) static REPORT: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/fleet/report.lua")));

/// Lets a key through or blocks it for a while.
pub(crate) static SET_KEY: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/fleet/set_key.lua")));

#[cfg(feature = "limiter")]
scripts! {
    OF_LIMITERS:
    /// Grants permits of a rate limiter.
    LIMITER_ACQUIRE = with_deadline("limiter/acquire.lua");
    /// Grants permits in the order in which callers came.
    LIMITER_ACQUIRE_FAIR = with_deadline("limiter/acquire_fair.lua");
    /// Gives back grants, and ends fair waiting.
    LIMITER_GIVE_BACK = new("limiter/give_back.lua");
    /// Gives back permits.
    LIMITER_RELEASE = new("limiter/release.lua");
    /// How many permits there are.
    LIMITER_AVAILABLE = new("limiter/available.lua");
    /// Sets a rate. A call that is held up must not make an old choice of a rate look new.
    LIMITER_CONFIGURE = with_deadline("limiter/configure.lua");
    /// Lets a rate be forgotten.
    LIMITER_EXPIRE = new("limiter/expire.lua");
    /// Forgets a rate.
    LIMITER_DELETE = new("limiter/delete.lua");
    /// How many permits a fixed window has.
    LIMITER_AVAILABLE_FIRST = new("limiter/available_first.lua");
    /// Grants permits of a fixed window.
    LIMITER_FIRST = new("limiter/first.lua");
    /// Grants permits, and sends who is denied back too early.
    LIMITER_SECOND = new("limiter/second.lua");
}

#[cfg(feature = "lock")]
scripts! {
    OF_LOCKS:
    /// Takes a lock.
    LOCK_ACQUIRE = new("lock/acquire.lua");
    /// Makes a lock's lease last longer.
    LOCK_RENEW = new("lock/renew.lua");
    /// Gives a lock back.
    LOCK_RELEASE = new("lock/release.lua");
    /// Takes a lock away from its holder.
    LOCK_FORCE = new("lock/force.lua");
    /// Looks at a lock.
    LOCK_LOOK = new("lock/look.lua");
}

/// A script of the folder `lua/`, called by its hash.
///
/// A script is made once in a process, at its first use, from text that is part of the program. No
/// text of a script is ever made of data: that travels in KEYS and ARGV alone. `bash tests/lua.sh`
/// expands a script in the same way, and looks for mistakes in the result.
#[derive(Debug)]
pub(crate) struct Script {
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
    fn new(source: &str) -> Self {
        Self::with_source(numbered(&with_includes(source)))
    }

    /// The same, with a deadline.
    #[cfg_attr(not(feature = "limiter"), expect(dead_code))]
    fn with_deadline(source: &str) -> Self {
        Self {
            has_deadline: true,
            ..Self::with_source(numbered_with_deadline(&with_includes(source)))
        }
    }

    /// A script that does itself what a reply needs.
    fn as_it_is(source: &str) -> Self {
        Self::with_source(with_includes(source))
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
    fn rare(source: &str) -> Self {
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

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The beginning of a call with this number of keys, with the script's text or its hash. It has
    /// room for `bytes` of keys and arguments.
    pub(crate) fn command(&self, has_text: bool, keys: usize, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(keys + 6, bytes);
        match has_text || self.is_rare {
            true => command.arg("EVAL").arg(&self.source),
            false => command.arg("EVALSHA").arg(&self.sha),
        };
        command.arg(keys);
        command
    }
}

/// The text with its includes and constants put in, and with those of the includes.
fn with_includes(source: &str) -> String {
    let mut whole = String::with_capacity(source.len());
    for line in source.lines() {
        let name = line.trim_start().strip_prefix("-- include: ");
        match INCLUDES.iter().find(|(known, _)| Some(*known) == name) {
            Some((_, text)) => whole.push_str(&with_includes(text)),
            None => put_line(line, &mut whole),
        }
    }
    whole
}

/// Adds a line. Outside of comments, a word that is the name of a constant becomes its text.
fn put_line(line: &str, whole: &mut String) {
    let is_comment = line.trim_start().starts_with("--");
    let is_part = |of: char| of.is_ascii_alphanumeric() || of == '_';
    let words = line.split_inclusive(|of| !is_part(of));
    for word in words {
        let name = word.trim_end_matches(|of| !is_part(of));
        match CONSTANTS.get(name).filter(|_| !is_comment) {
            Some(text) => whole.extend([text, &word[name.len()..]]),
            None => whole.push_str(word),
        }
    }
    whole.push('\n');
}

/// The constants of the scripts, by name.
static CONSTANTS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = include_str!("../../lua/constants.txt").lines();
    let constants = lines.filter(|line| !line.starts_with('#'));
    constants
        .filter_map(|line| line.split_once(" = "))
        .collect()
});

macro_rules! includes {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../lua/include/", $name, ".lua")))),+]
    };
}

/// The files of the folder `lua/include/`, by name. A script has them where a line says
/// `-- include: name`.
///
/// A new file has to be listed here. A name that is not listed leaves its line in the script, where
/// Lua takes it for a comment; a test of `scripts.rs` finds such lines.
const INCLUDES: &[(&str, &str)] = includes![
    "core_begin",
    "core",
    "counter_states",
    "counter_takes",
    "gcra_buckets",
    "gcra_takes",
    "fixed_windows",
    "fixed_takes",
    "sliding_windows",
    "sliding_takes",
    "lease_marks",
    "permit_states",
    "joint",
    "joint_permits",
    "joint_gcra",
    "joint_fixed_window",
    "joint_sliding_window",
    "joint_sliding_log",
    "log_states",
    "log_takes",
    "bucket",
    "refunded_ranges",
    "refund_ranges",
    "refund_begin",
    "refund_counters",
    "refund_end",
    "permits",
    "give_way",
    "permits_wait",
    "lock",
];

/// The name in braces. A name that contains `{` is left as it is, as Redisson leaves it.
///
/// A cluster chooses the slot of a key by the text between the first braces in its name, and one
/// script call uses keys of one slot only.
#[cfg_attr(not(any(feature = "limiter", feature = "lock")), expect(dead_code))]
pub(crate) fn tagged(name: &str) -> String {
    match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_be_included() {
        for script in Preload::All.scripts() {
            assert!(!script.source.contains("include:"), "{}", script.source);
        }
    }

    #[test]
    fn a_constant_is_put_in_for_its_name_alone() {
        let put = |line| {
            let mut whole = String::new();
            put_line(line, &mut whole);
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
