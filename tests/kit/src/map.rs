//! `tests/map.toml`: which tests look where.

use toml::{Table, Value};

/// What was changed, and the tests to run.
#[derive(Debug)]
pub struct Changed {
    pub what: String,
    /// Files and folders of `src`, and scripts.
    pub paths: Vec<String>,
    /// Options of `tests/run.sh`.
    pub run: Vec<String>,
    /// Another script.
    pub also: Option<String>,
}

/// A law, and the files and folders that test it.
#[derive(Debug)]
pub struct Law {
    pub number: i64,
    pub says: String,
    pub tests: Vec<String>,
}

/// What docs/guarantees.md promises, and its tests: a binary and a filter.
#[derive(Debug)]
pub struct Promise {
    pub says: String,
    pub tests: Vec<String>,
}

#[derive(Debug)]
pub struct Map {
    pub promises: Vec<Promise>,
    pub changed: Vec<Changed>,
    pub laws: Vec<Law>,
}

impl Map {
    /// # Panics
    ///
    /// If a key is missing, or the file is no TOML.
    pub fn read() -> Self {
        let text = std::fs::read_to_string(crate::root().join("tests/map.toml"));
        let table: Table = text.expect("a file").parse().expect("TOML");
        let rows = |name: &str| table[name].as_array().expect("tables").clone();
        let changed = rows("changed").into_iter().map(|row| Changed {
            what: string(&row["what"]),
            paths: strings(&row["paths"]),
            run: strings(&row["run"]),
            also: row.get("also").map(string),
        });
        let laws = rows("law").into_iter().map(|row| Law {
            number: row["number"].as_integer().expect("a number"),
            says: string(&row["says"]),
            tests: strings(&row["tests"]),
        });
        let promises = rows("promise").into_iter().map(|row| Promise {
            says: string(&row["says"]),
            tests: strings(&row["tests"]),
        });
        Self {
            promises: promises.collect(),
            changed: changed.collect(),
            laws: laws.collect(),
        }
    }

    /// The row of a file or folder: the one with the longest path.
    pub fn row_of(&self, path: &str) -> Option<&Changed> {
        let is_in = |place: &&String| {
            let rest = path.strip_prefix(place.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let longest = |row: &Changed| row.paths.iter().filter(is_in).map(String::len).max();
        let rows = self.changed.iter().filter(|row| longest(row).is_some());
        rows.max_by_key(|row| longest(row))
    }

    /// The tests to run for a file, as options of `tests/run.sh`.
    ///
    /// # Panics
    ///
    /// If no row names it.
    pub fn tests_of(&self, path: &str) -> Vec<String> {
        let row = self.row_of(path);
        row.unwrap_or_else(|| panic!("tests/map.toml lacks {path}"))
            .run
            .clone()
    }
}

fn string(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

fn strings(value: &Value) -> Vec<String> {
    let strings = value.as_array().expect("an array").iter();
    strings.map(string).collect()
}
