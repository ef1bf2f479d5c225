//! The scripts that stores call.

use std::sync::LazyLock;

use crate::algorithm::core::StateKind;
use crate::connection::{Library, Script, includes, scripts};

/// The files of `lua/include/` that these scripts have. A new file has to be listed here.
const LIBRARY: Library = Library {
    includes: includes![
        "take_begin",
        "lone_read",
        "lone_write",
        "usual_read",
        "usual_begin",
        "usual_write",
        "usual_end",
        "holds",
        "core_begin",
        "core",
        "counters",
        "counters_take",
        "gcra",
        "gcra_take",
        "fixed_window",
        "fixed_window_take",
        "sliding_window",
        "sliding_window_take",
        "permits",
        "calendar",
        "calendar_read",
        "calendar_charge",
        "sliding_log",
        "sliding_log_take",
        "pace",
        "refunded_ranges",
        "refunded_ranges_add",
        "refund_begin",
        "counters_refund",
        "refund_end",
        "fleet",
    ],
    constants: include_str!("../../../lua/constants.rs"),
};

scripts! {
    OF_STORES of LIBRARY =>
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
    /// Gives back what was charged in a period of the calendar.
    REFUND_CALENDAR = new("refund/calendar.lua");
    /// Gives permits of requests in progress back.
    RELEASE_PERMITS = new("permits/release.lua");
    /// Keeps them for another lease.
    RENEW_PERMITS = new("permits/renew.lua");
    /// Counts a failure of a take.
    LOCKOUT = new("lockout.lua");
}

/// Gives back what was charged in counts of this kind. `None`: each algorithm of windows has its own.
pub(super) fn refund_of(kind: StateKind) -> Option<&'static Script> {
    Some(match kind {
        StateKind::Calendar => &REFUND_CALENDAR,
        StateKind::Permits => &RELEASE_PERMITS,
        StateKind::Windows | StateKind::Hold => return None,
    })
}

/// Forgets what counts under one key of a store. It is called rarely, so it is not loaded ahead:
/// each call carries its text.
pub(crate) static RESET: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/reset.lua")));

/// Holds a key. It is called rarely, too.
pub(crate) static HOLD: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/hold.lua")));

/// Keeps what a process says of itself, and tells it what its service shares: once a second.
pub(crate) static REPORT: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/fleet/report.lua")));

/// Lets a key through or blocks it for a while.
pub(crate) static SET_KEY: LazyLock<Script> =
    LazyLock::new(|| Script::rare(&LIBRARY, include_str!("../../../lua/fleet/set_key.lua")));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use crate::algorithm::Algorithm;

    fn read(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn is_constant(name: &str) -> bool {
        name.starts_with(|first: char| first.is_ascii_uppercase())
            && name
                .chars()
                .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_')
    }

    /// The names of constants in a script, outside of comments and texts.
    fn names(script: &str) -> BTreeSet<String> {
        let lines = script.lines();
        let code = lines.filter(|line| !line.trim_start().starts_with("--"));
        let outside_of_texts = code.flat_map(|line| line.split('\'').step_by(2));
        let words = outside_of_texts
            .flat_map(|code| code.split(|of: char| !(of.is_ascii_alphanumeric() || of == '_')));
        let names = words.filter(|word| word.len() > 1 && is_constant(word));
        names.map(str::to_owned).collect()
    }

    /// The files of an algorithm's scripts, with what they include.
    fn scripts_of(algorithm: Algorithm) -> Vec<String> {
        fn add(file: String, to: &mut Vec<String>) {
            let text = read(&file);
            to.push(file);
            let includes = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix("-- include: "));
            includes.for_each(|name| add(format!("lua/include/{name}.lua"), to));
        }
        let name = algorithm.name().replace('-', "_");
        let mut files = Vec::new();
        add(format!("lua/{name}.lua"), &mut files);
        add(format!("lua/refund/{name}.lua"), &mut files);
        files
    }

    #[test]
    fn what_scripts_of_takes_name_is_listed_and_used() {
        let list = read("lua/constants.rs");
        let lines = list
            .lines()
            .filter_map(|line| line.strip_prefix("pub(crate) const "));
        let listed = lines.filter_map(|line| line.split_once(':'));
        let listed: BTreeSet<_> = listed.map(|(name, _)| name.to_owned()).collect();
        let (of_redis, mut used) = (["ARGV", "KEYS"], BTreeSet::new());
        for algorithm in Algorithm::ALL {
            for file in scripts_of(algorithm) {
                for name in names(&read(&file)) {
                    let is_known = listed.contains(&name) || of_redis.contains(&name.as_str());
                    assert!(is_known, "{file}: {name} is not listed");
                    used.insert(name);
                }
            }
        }
        // Other scripts name some of them, too.
        used.extend(names(&read("lua/reset.lua")));
        used.extend(names(&read("lua/lockout.lua")));
        let unused: Vec<_> = listed.difference(&used).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
