//! What a mutant is, and the three places that they come from.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use kit::map::Map;
use kit::random::Random;
use toml::{Table, Value};

pub(crate) struct Mutant {
    pub(crate) part: String,
    pub(crate) what: String,
    pub(crate) change: Change,
    /// The tests that know it, as options of `cargo test`: what is quick comes first.
    pub(crate) tests: Vec<String>,
}

pub(crate) enum Change {
    /// A text that stands once in its file.
    Text {
        file: String,
        from: String,
        to: String,
    },
    /// A unified diff.
    Patch(PathBuf),
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.change {
            Change::Text { file, .. } => file.clone(),
            Change::Patch(patch) => patch.display().to_string(),
        };
        write!(f, "{}: {} ({place})", self.part, self.what)
    }
}

fn table(file: &str) -> Table {
    let text = fs::read_to_string(kit::root().join("tests/mutants").join(file));
    let table = text.expect("a file").parse();
    table.unwrap_or_else(|error| panic!("tests/mutants/{file}: {error}"))
}

fn text(table: &Value, key: &str) -> String {
    let text = table.get(key).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{key} is missing: {table:?}"))
        .to_owned()
}

fn texts(table: &Value, key: &str) -> Vec<String> {
    let texts = table[key].as_array().expect("an array").iter();
    texts
        .map(|it| it.as_str().expect("a string").to_owned())
        .collect()
}

/// Those that were written by hand. What does not say its part or its file has that of the one before.
pub(crate) fn list() -> Vec<Mutant> {
    let table = table("list.toml");
    let (mut mutants, mut part, mut file) = (Vec::new(), String::new(), String::new());
    for group in table["tests"].as_array().expect("tables") {
        for mutant in group["mutant"].as_array().expect("tables") {
            for (key, known) in [("part", &mut part), ("file", &mut file)] {
                if mutant.get(key).is_some() {
                    *known = text(mutant, key);
                }
            }
            mutants.push(Mutant {
                part: part.clone(),
                what: text(mutant, "what"),
                change: Change::Text {
                    file: file.clone(),
                    from: text(mutant, "from"),
                    to: text(mutant, "to"),
                },
                tests: texts(group, "run"),
            });
        }
    }
    mutants
}

/// Defects that were mended once.
pub(crate) fn past() -> Vec<Mutant> {
    let folder = kit::root().join("tests/mutants/past");
    let table = table("past/list.toml");
    let defects = table["defect"].as_array().expect("tables").iter();
    let mutants = defects.map(|defect| Mutant {
        part: text(defect, "commit"),
        what: text(defect, "what"),
        change: Change::Patch(folder.join(text(defect, "patch"))),
        tests: texts(defect, "noticed-by")
            .iter()
            .map(|it| command(it))
            .collect(),
    });
    mutants.collect()
}

/// The options for a binary and the name of a test in it.
fn command(test: &str) -> String {
    let (binary, name) = test.split_once(' ').expect("a binary and a test");
    match binary {
        "lib" => format!("--lib -- {name}"),
        binary => format!("--test {binary} -- {name}"),
    }
}

/// The folders of which [`EACH`] mutants of `cargo mutants` are drawn.
const DRAWN: &str = "src/algorithm src/callback src/config src/key src/layer src/rule src/store \
    crates/base/src/connection crates/redisson/src/limiter crates/redisson/src/lock";
const EACH: usize = 4;

/// A part of what `cargo mutants --list --json --diff` has written, the same in each run.
pub(crate) fn of_tool() -> Vec<Mutant> {
    let folder = kit::root().join("target/mutants-of-tool");
    let listed = fs::read(folder.join("list.json")).expect("tests/mutants.sh writes it");
    let listed: serde_json::Value = serde_json::from_slice(&listed).expect("JSON");
    let map = Map::read();
    let mut random = Random::new(54);
    let mut drawn = Vec::new();
    for place in DRAWN.split(' ') {
        let of_place = listed.as_array().expect("an array").iter();
        let of_place = of_place.filter(|it| file_of(it).starts_with(place));
        let mut of_place: Vec<_> = of_place.collect();
        assert!(of_place.len() >= EACH, "too few are listed of {place}");
        for _ in 0..EACH {
            let at = random.below(of_place.len() as u64) as usize;
            let one = of_place.swap_remove(at);
            let patch = folder.join(format!("{}.patch", drawn.len()));
            let diff = one["diff"].as_str().expect("a diff");
            let hunks = &diff[diff.find("@@").expect("a hunk")..];
            let head = format!("--- a/{0}\n+++ b/{0}\n", file_of(one));
            fs::write(&patch, head + hunks).expect("is written");
            drawn.push(Mutant {
                part: place.to_owned(),
                what: one["name"].as_str().unwrap_or_default().to_owned(),
                change: Change::Patch(patch),
                tests: map.tests_of(file_of(one)),
            });
        }
    }
    drawn
}

fn file_of(mutant: &serde_json::Value) -> &str {
    mutant["file"].as_str().expect("a file")
}
