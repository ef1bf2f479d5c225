//! The borders inside of the three crates: which part of their sources may use which.
//!
//! It reads the sources and needs no server. Docs and comments may name everything.

mod figures;
mod map;
mod repository;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts of the crates, each behind those that it may use: other parts, or paths inside of them.
/// The longest row that a path begins with counts. `http` stands for [`HTTP`].
const BORDERS: &[(&str, &str)] = &[
    // What knows no other part.
    ("base64", ""),
    ("error", ""),
    ("jitter", ""),
    ("trace", ""),
    ("summed_log", ""),
    ("first_thousand", ""),
    // The small parts of the base know each other, and their macros, which stand at its root.
    ("support", "deadline error named sync trace tracing"),
    // Values: no rule and no key.
    ("decision", "error named"),
    ("quota", "error"),
    ("warning", "error trace"),
    // How counts count: no input and no output.
    ("algorithm", "decision error named quota"),
    ("factor", "algorithm quota"),
    // Redis, and Redisson's limiter and lock: no rule, no algorithm and no take.
    (
        "connection",
        "deadline error http in_flight_counter jitter regular_file sync trace unawaited unseen",
    ),
    (
        "limiter",
        "clock connection deadline error jitter log_on_change swept_map sync tagged trace",
    ),
    ("lock", "connection error jitter swept_map sync tagged"),
    ("redis", ""),
    // What stores are asked, and stores: no rule, key or metric.
    ("question", "algorithm deadline decision error quota"),
    (
        "store",
        "algorithm clock connection deadline decision error factor in_flight_counter jitter \
         log_on_change question quota swept_map sync trace unawaited unseen warning",
    ),
    // Who is limited by what: no store.
    (
        "key",
        "base64 error first_thousand http question sync trace warning",
    ),
    (
        "rule",
        "algorithm decision error factor http key named question quota sync warning",
    ),
    ("take", "decision key question rule"),
    // Who waits: no rule, no key and no decision.
    ("waiting", "jitter sync"),
    // Numbers of requests, and what has happened lately: no store and no charge.
    (
        "metrics",
        "decision error key named quota rule summed_log sync trace",
    ),
    ("activity", "decision key metrics question quota rule sync"),
    // What requests were charged, and what answers in place of handlers: no layer.
    (
        "charge",
        "activity deadline decision error first_thousand http jitter log_on_change metrics named \
         question rule store sync take trace unawaited waiting",
    ),
    (
        "callback",
        "base64 decision error http key rule take trace unseen",
    ),
    // What processes tell each other: no layer and no HTTP.
    (
        "fleet",
        "activity decision error metrics rule store sync take unseen",
    ),
    // What is decided about takes: no HTTP, and no callback that answers.
    (
        "layer/decisions",
        "callback::Cause callback::Instead callback::caught callback::guarded charge decision \
         error fleet in_flight_counter key log_on_change metrics named question rule store \
         summed_log swept_map sync take trace waiting warning",
    ),
    // Requests over HTTP, functions and checks: no `Limits`.
    (
        "layer",
        "callback charge decision error fleet http key metrics named question quota rule store \
         take trace waiting warning",
    ),
    // Files of rules: no store.
    ("config", "algorithm error http key quota rule warning"),
    ("live", "config error regular_file rule sync trace"),
    // An application's limits, and what stands on them.
    (
        "limits",
        "activity callback charge config error fleet http key layer live metrics question rule \
         store sync take trace unawaited unseen warning",
    ),
    (
        "outgoing",
        "callback charge error http key layer limits log_on_change named question rule take \
         trace warning",
    ),
    (
        "page",
        "activity callback error http key limits metrics named question rule store sync",
    ),
    // What tests of other crates use.
    (
        "test_util",
        "algorithm decision key question quota rule store take",
    ),
];

/// The crates of HTTP and its services.
const HTTP: [&str; 6] = [
    "axum",
    "axum_core",
    "http",
    "http_body",
    "tower_layer",
    "tower_service",
];

/// What a part uses beyond its border today: it is to become empty.
const EXCEPTIONS: [(&str, &str); 1] = [("page", "layer")];

/// Stores around other stores. Those that keep counts know none of them.
const WRAPPERS: [&str; 6] = [
    "breaker",
    "denial_cache",
    "fallback",
    "guarded",
    "path_stores",
    "resilient",
];

#[test]
fn every_part_uses_only_what_its_border_allows() {
    let mut wrong = BTreeSet::new();
    let words = |row: &&'static Row| row.1.split_whitespace().map(|word| (row.0, word));
    let mut unused: BTreeSet<_> = BORDERS.iter().flat_map(|row| words(&row)).collect();
    unused.extend(EXCEPTIONS);
    for source in sources() {
        let Some(row) = row_of(&source.module) else {
            continue;
        };
        let own = row.0.replace('/', "::");
        for used in source.uses() {
            let path = used.join("::");
            let is_in = |part: &str| path == part || path.starts_with(&format!("{part}::"));
            if is_in(&own) {
                continue;
            }
            let exceptions = EXCEPTIONS.into_iter().filter(|known| known.0 == row.0);
            match words(&row).chain(exceptions).find(|known| is_in(known.1)) {
                Some(known) => _ = unused.remove(&known),
                None => _ = wrong.insert(format!("{} uses {path}", source.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unused.is_empty(), "not used any more: {unused:?}");
}

#[test]
fn every_part_uses_only_those_before_it() {
    let place = |part: &str| BORDERS.iter().position(|row| row.0 == part);
    for (at, (part, uses)) in BORDERS.iter().enumerate() {
        for used in uses.split_whitespace() {
            let used = used.split("::").next().expect("a part");
            assert!(place(used) < Some(at), "{part} stands before {used}");
        }
    }
}

#[test]
fn every_part_has_a_border() {
    let sources = sources().into_iter();
    let parts: BTreeSet<_> = sources
        .filter_map(|it| it.module.into_iter().next())
        .collect();
    let without = |part: &&String| row_of(std::slice::from_ref(*part)).is_none();
    let without: Vec<_> = parts.iter().filter(without).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn stores_that_keep_counts_know_no_wrapper() {
    let is_backend = |module: &[String]| {
        let begins = |with: [&str; 2]| module.len() > 1 && module[..2] == with;
        begins(["store", "memory"]) || begins(["store", "redis"])
    };
    let mut wrong = BTreeSet::new();
    for source in sources().iter().filter(|source| is_backend(&source.module)) {
        for used in source.uses() {
            if used.first().is_some_and(|part| part == "store")
                && used
                    .get(1)
                    .is_some_and(|part| WRAPPERS.contains(&part.as_str()))
            {
                wrong.insert(format!("{} uses {}", source.name, used.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

type Row = (&'static str, &'static str);

/// The row of a module.
fn row_of(module: &[String]) -> Option<&'static Row> {
    let module = module.join("/");
    let begins = |part: &str| module == part || module.starts_with(&format!("{part}/"));
    let rows = BORDERS.iter().filter(|row| begins(row.0));
    rows.max_by_key(|row| row.0.len())
}

/// A file of the sources.
struct Source {
    name: String,
    /// The path of its module. That of `lib.rs` and the guides is not looked at.
    module: Vec<String>,
    /// Its text without comments.
    code: String,
}

fn sources() -> Vec<Source> {
    let crates = ["src", "crates/base/src", "crates/redisson/src"];
    let sources = crates.map(|folder| sources_of(&kit::root().join(folder)));
    sources.into_iter().flatten().collect()
}

fn sources_of(root: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(Source::read(
                    &path,
                    path.strip_prefix(root).expect("inside"),
                ));
            }
        }
    }
    sources.retain(|source| !["lib", "guide"].contains(&source.module[0].as_str()));
    sources
}

impl Source {
    fn read(path: &Path, name: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a source");
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code = text.lines().filter(is_code).flat_map(|line| [line, "\n"]);
        let module: PathBuf = match name.ends_with("mod.rs") {
            true => name.parent().expect("a folder").into(),
            false => name.with_extension(""),
        };
        let module = module
            .iter()
            .map(|part| part.to_string_lossy().into_owned());
        Self {
            name: name.display().to_string(),
            module: module.collect(),
            code: code.collect(),
        }
    }

    /// The paths from the root of the crate that the file names, in imports and elsewhere, and
    /// `http` for those of other crates. A `pub use` is a second door for users, and no import.
    fn uses(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("crate::") {
            if self.code[..at].ends_with("pub use ") {
                continue;
            }
            self.paths_at(at, at + "crate::".len(), Vec::new(), &mut found);
        }
        for (at, _) in self.code.match_indices("super::") {
            let mut rest = at;
            // In a module of tests, the first `super` is this file's module.
            let mut base = self.module.clone();
            base.extend(self.code[..at].contains("\nmod tests {").then(String::new));
            while self.code[rest..].starts_with("super::") {
                base.pop();
                rest += "super::".len();
            }
            self.paths_at(at, rest, base, &mut found);
        }
        for name in HTTP {
            for (at, _) in self.code.match_indices(&format!("{name}::")) {
                let base = vec!["http".to_owned()];
                self.paths_at(at, at + name.len() + "::".len(), base, &mut found);
            }
        }
        found
    }

    /// The paths of the text from `from` on, which begins at `at` with `crate` or `super`.
    fn paths_at(&self, at: usize, from: usize, base: Vec<String>, found: &mut Vec<Vec<String>>) {
        let before = self.code[..at].chars().next_back();
        let is_middle = |before: char| before.is_alphanumeric() || "_:".contains(before);
        if !before.is_some_and(is_middle) {
            paths(&self.code[from..], base, found);
        }
    }
}

/// Adds the paths at the beginning of this text, behind `base`: `a::b`, or `{a, b::{c, d}}`.
/// Returns how long they are.
fn paths(text: &str, mut base: Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let mut at = 0;
    loop {
        if text[at..].starts_with('{') {
            loop {
                let next = text[at + 1..].find(|char: char| !char.is_whitespace() && char != ',');
                at += 1 + next.expect("the end of the group");
                if text[at..].starts_with('}') {
                    return at + 1;
                }
                at += paths(&text[at..], base.clone(), found) - 1;
            }
        }
        let length = text[at..].find(|char: char| !char.is_alphanumeric() && char != '_');
        let length = length.unwrap_or(text.len() - at);
        base.push(text[at..at + length].to_owned());
        at += length;
        if !text[at..].starts_with("::") {
            found.push(base);
            // `*`, or a name behind `as`.
            return at + text[at..].find([',', '}', ';', '\n']).unwrap_or(0);
        }
        at += "::".len();
    }
}

#[test]
fn paths_are_read() {
    let read = |module: &[&str], code: &str| {
        let source = Source {
            name: String::new(),
            module: module.iter().map(|part| (*part).to_owned()).collect(),
            code: code.to_owned(),
        };
        source
            .uses()
            .iter()
            .map(|path| path.join("::"))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(&["a"], "use crate::rule::Rule;"), ["rule::Rule"]);
    let group = "use crate::{\n    key::{self, Key as K},\n    Rule,\n};";
    assert_eq!(read(&["a"], group), ["key::self", "key::Key", "Rule"]);
    assert_eq!(read(&["a"], "fn f(k: crate::key::Key) {}"), ["key::Key"]);
    assert_eq!(
        read(&["a", "b"], "use super::super::key::Key;"),
        ["key::Key"]
    );
    assert_eq!(read(&["a", "b"], "use super::c::D;"), ["a::c::D"]);
    let tests = "\nmod tests {\n    use super::super::c::D;\n}";
    assert_eq!(read(&["a", "b"], tests), ["a::c::D"]);
    assert_eq!(read(&["a"], "supercrate::x"), [""; 0]);
    let foreign = "use axum_core::body::Body;\nuse b::http::C;";
    assert_eq!(read(&["a"], foreign), ["http::body::Body"]);
}
