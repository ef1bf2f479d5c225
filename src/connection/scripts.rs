use std::sync::LazyLock;

use redis::{Cmd, cmd};

use super::call_id::{numbered, numbered_with_deadline};
use crate::algorithm::Algorithm;

/// The script that decides by this algorithm.
pub(crate) fn algorithm_script(algorithm: Algorithm) -> &'static Script {
    static SCRIPTS: LazyLock<[Script; Algorithm::ALL.len()]> =
        LazyLock::new(|| Algorithm::ALL.map(|algorithm| Script::of_takes(algorithm.script())));
    // `ALL` is in the order of the variants.
    &SCRIPTS[algorithm as usize]
}

/// The script that gives back what was charged by this algorithm.
///
/// It is loaded ahead: with its text, a refund costs the server almost twice as much, and one that
/// is sent again because the server does not know the script would lose its place among the takes.
pub(crate) fn refund_script(algorithm: Algorithm) -> &'static Script {
    static SCRIPTS: LazyLock<[Script; Algorithm::ALL.len()]> =
        LazyLock::new(|| Algorithm::ALL.map(|algorithm| Script::new(algorithm.refund_script())));
    // `ALL` is in the order of the variants.
    &SCRIPTS[algorithm as usize]
}

#[cfg(any(feature = "limiter", feature = "lock"))]
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
        let others = others.iter().copied().flatten();
        let others = others.map(|script| LazyLock::force(script));
        let of_stores = Algorithm::ALL.map(|one| [algorithm_script(one), refund_script(one)]);
        others.chain(of_stores.into_iter().flatten())
    }
}

/// Forgets what counts under one key of a store. It is called rarely, so it is not loaded ahead:
/// each call carries its text.
pub(crate) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/reset.lua")));

/// Keeps what a process says of itself, and tells it what its service shares: once a second.
pub(crate) static REPORT: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/fleet/report.lua")));

/// Lets a key through for a while.
pub(crate) static LET_THROUGH: LazyLock<Script> =
    LazyLock::new(|| Script::rare(include_str!("../../lua/fleet/let_through.lua")));

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
    /// Takes one of several permits.
    SEMAPHORE_ACQUIRE = new("semaphore/acquire.lua");
    /// Makes a permit's lease last longer.
    SEMAPHORE_RENEW = new("semaphore/renew.lua");
    /// Gives a permit back.
    SEMAPHORE_RELEASE = new("semaphore/release.lua");
}

/// A script of the folder `lua/`, called by its hash.
///
/// A script is made once in a process, at its first use, from text that is part of the program. No
/// text of a script is ever made of data: that travels in KEYS and ARGV alone. `bash tests/lua.sh`
/// expands the includes in the same way, and looks for mistakes in the result.
#[derive(Debug)]
pub(crate) struct Script {
    pub(super) source: String,
    sha: String,
    /// Whether it gets a deadline: see [`numbered_with_deadline`].
    pub(super) has_deadline: bool,
    /// Whether it is called so rarely that every call carries its text. Then the server never
    /// answers that it does not know the script, and no call loses its place in the order.
    pub(super) is_rare: bool,
}

impl Script {
    /// A script whose reply is read by [`CallId::read`](super::call_id::CallId::read).
    pub(super) fn new(source: &str) -> Self {
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

    /// A script that decides takes. It repeats the number of its call itself.
    fn of_takes(source: &str) -> Self {
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
    "setup",
    "reply_format",
    "read_question",
    "read_row",
    "decide",
    "answer",
    "end_key",
    "longer",
    "mark_lease",
    "read_values",
    "tallies",
    "gcra_tally",
    "sliding_window_tally",
    "fixed_window_tally",
    "read_tallies",
    "choose_tallies",
    "log_entry",
    "read_log",
    "log_search",
    "log_wait",
    "drain",
    "given_back",
    "give_back",
    "refund_begin",
    "refund_tallies",
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

/// The name of the key with what was given back of the count `name`, where that stands apart. It
/// differs from the names of all counts: paths and keys are encoded without braces.
pub(super) fn of_given_back(name: &str) -> String {
    match has_tag(name) {
        true => format!("{name}{{back}}"),
        false => format!("{{{name}}}:back"),
    }
}

/// The name of a key that the processes of a service share, in one slot with the others. No path
/// and no key of a count makes it: they are encoded without `~` at their beginning.
pub(crate) fn of_fleet(prefix: &str, what: &str) -> String {
    match has_tag(prefix) {
        true => format!("{prefix}~fleet:{what}"),
        false => format!("{{{prefix}~fleet}}:{what}"),
    }
}

/// Whether a part of the name chooses the slot of a cluster.
fn has_tag(name: &str) -> bool {
    let after = name.split_once('{');
    after.is_some_and(|(_, rest)| rest.contains('}'))
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
}
