//! The map of the tests is true: `tests/map.toml` names all of the crate and nothing that is not
//! there, and the tables of `tests/README.md` are made from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kit::map::Map;

/// All files below a folder, as paths from the root.
fn files_below(folder: &str) -> Vec<String> {
    let root = kit::root();
    let mut folders = vec![root.join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let path = path.strip_prefix(root).expect("below the root");
                    files.push(path.display().to_string());
                }
            }
        }
    }
    files
}

#[test]
fn each_file_of_the_crate_is_in_the_map() {
    let map = Map::read();
    let files = ["src", "lua", "crates"]
        .map(files_below)
        .into_iter()
        .flatten();
    let files = files.filter(|file| file.ends_with(".rs") || file.ends_with(".lua"));
    let lost: Vec<_> = files.filter(|file| map.row_of(file).is_none()).collect();
    assert!(lost.is_empty(), "no row of tests/map.toml: {lost:#?}");
    let paths = map.changed.iter().flat_map(|row| &row.paths);
    let gone: Vec<_> = paths
        .filter(|path| !kit::root().join(path).exists())
        .collect();
    assert!(gone.is_empty(), "not there: {gone:#?}");
}

/// The folder of the sources of a test binary. `lib` means the unit tests of the crate.
fn folder_of(binary: &str) -> PathBuf {
    let place = match binary.strip_prefix("hostile_") {
        Some(subject) => Path::new("tests/hostile").join(subject),
        None => Path::new("tests").join(binary),
    };
    kit::root().join(place)
}

/// What a filter can find in a binary: modules and functions, as `module::function`.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let below = folder.strip_prefix(kit::root()).expect("below the root");
    let below = below.display().to_string();
    let mut names = BTreeSet::new();
    for file in files_below(&below)
        .iter()
        .filter(|file| file.ends_with(".rs"))
    {
        let module = file[below.len() + 1..].trim_end_matches(".rs");
        let module = module.trim_end_matches("/mod").replace('/', "::");
        names.insert(format!("{module}::"));
        let text = fs::read_to_string(kit::root().join(file)).expect("a file");
        for word in text.split("fn ").skip(1) {
            let end = word.find(|it: char| !it.is_alphanumeric() && it != '_');
            names.insert(format!("{module}::{}", &word[..end.unwrap_or(0)]));
        }
    }
    names
}

/// The names of the cases of stamped tests.
const STAMPS: [&str; 4] = ["sliding_log", "sliding_window", "gcra", "fixed_window"];

/// What a command names that is not there: a binary, or a word in the names of its tests.
fn lost_by(command: &str) -> Vec<String> {
    let (binaries, filters) = command.split_once(" -- ").unwrap_or((command, ""));
    let (mut names, mut lost) = (BTreeSet::new(), Vec::new());
    let mut words = binaries
        .split_whitespace()
        .filter(|word| !word.contains('='));
    while let Some(word) = words.next() {
        if ["--lib", "--doc"].contains(&word) {
            let places = ["src", "crates/base/src", "crates/redisson/src"];
            names.extend(
                places
                    .iter()
                    .flat_map(|place| names_in(&kit::root().join(place))),
            );
            continue;
        }
        let folder = folder_of(words.next().unwrap_or_default());
        // That of macros is a package of its own, without `main.rs`.
        match folder.join("main.rs").exists() || folder.ends_with("macros") {
            true => names.append(&mut names_in(&folder)),
            false => lost.push(format!("{command}: no such binary")),
        }
    }
    let filters = filters.split_whitespace();
    for filter in filters.filter(|it| !it.starts_with("--")) {
        // Modules within a file, and the cases of stamped tests, have no name of their own here.
        let plain = filter.replace("tests::", "");
        let case = plain
            .rsplit_once("::")
            .filter(|(_, case)| STAMPS.contains(case));
        let plain = case.map_or(plain.as_str(), |(test, _)| test);
        if !names.iter().any(|name| name.contains(plain)) {
            lost.push(format!("{command}: nothing is named {filter}"));
        }
    }
    lost
}

#[test]
fn each_test_that_the_map_names_is_there() {
    let map = Map::read();
    let commands = map.changed.iter().flat_map(|row| &row.run);
    let mut wrong: Vec<_> = commands.flat_map(|command| lost_by(command)).collect();
    for law in &map.laws {
        let gone = law
            .tests
            .iter()
            .filter(|test| !kit::root().join("tests").join(test).exists());
        wrong.extend(gone.map(|test| format!("law {}: no {test}", law.number)));
    }
    assert!(wrong.is_empty(), "tests/map.toml: {wrong:#?}");
}

#[test]
fn each_test_that_a_mutant_names_is_there() {
    let read = |file: &str| -> toml::Table {
        let text = fs::read_to_string(kit::root().join("tests/mutants").join(file));
        text.expect("a file").parse().expect("TOML")
    };
    let strings = |value: &toml::Value| -> Vec<String> {
        let strings = value.as_array().expect("an array").iter();
        strings
            .map(|it| it.as_str().expect("a string").to_owned())
            .collect()
    };
    let (list, past) = (read("list.toml"), read("past/list.toml"));
    let groups = list["tests"].as_array().expect("tables").iter();
    let of_list = groups.flat_map(|group| strings(&group["run"]));
    let defects = past["defect"].as_array().expect("tables").iter();
    let of_past = defects
        .flat_map(|defect| strings(&defect["noticed-by"]))
        .map(|test| {
            let (binary, name) = test.split_once(' ').expect("a binary and a test");
            match binary {
                "lib" => format!("--lib -- {name}"),
                binary => format!("--test {binary} -- {name}"),
            }
        });
    let wrong: Vec<_> = of_list.chain(of_past).flat_map(|it| lost_by(&it)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The last column of the table of threats names tests, as a binary and a filter.
#[test]
fn each_threat_has_its_tests() {
    let page = fs::read_to_string(kit::root().join("docs/security.md")).expect("a file");
    let rows = page.lines().skip_while(|line| *line != "## Threats");
    let rows = rows.skip(1).take_while(|line| !line.starts_with("## "));
    let rows = rows.filter(|line| line.starts_with('|')).skip(2);
    let tests = |row: &str| {
        let column = row.trim_end_matches('|').rsplit('|').next().unwrap_or("");
        let quoted = column.split('`').skip(1).step_by(2);
        let found = quoted.filter_map(|test| test.split_once(' '));
        Vec::from_iter(found.map(|(binary, name)| format!("--test {binary} -- {name}")))
    };
    let tests: Vec<_> = rows.map(tests).collect();
    assert!(tests.len() > 9, "the table: {tests:?}");
    assert!(
        tests.iter().all(|row| !row.is_empty()),
        "a row without a test: {tests:#?}"
    );
    let wrong: Vec<_> = tests.concat().iter().flat_map(|it| lost_by(it)).collect();
    assert!(wrong.is_empty(), "docs/security.md: {wrong:#?}");
}

/// The texts of events in the table of docs/metrics.md are those of the code.
#[test]
fn each_event_is_in_the_code() {
    let page = fs::read_to_string(kit::root().join("docs/metrics.md")).expect("a file");
    let rows = page.lines().skip_while(|line| *line != "## The log");
    let rows = rows.skip(1).filter(|line| line.starts_with('|')).skip(2);
    let texts = rows.filter_map(|row| row.split(" | ").nth(1));
    let texts = texts.flat_map(|text| text.split('`').skip(1).step_by(2));
    let texts: Vec<_> = texts.collect();
    assert!(texts.len() > 8, "the table: {texts:?}");
    let files = files_below("src")
        .into_iter()
        .filter(|it| it.ends_with(".rs"));
    let code = files.map(|file| fs::read_to_string(kit::root().join(file)).expect("a file"));
    let code: String = code.collect();
    let lost = texts.into_iter().filter(|text| !code.contains(*text));
    assert_eq!(lost.collect::<Vec<_>>(), [""; 0], "docs/metrics.md");
}

/// The items of the guarantees that begin with bold words, and the rows of the map.
#[test]
fn each_promise_has_its_tests() {
    let page = fs::read_to_string(kit::root().join("docs/guarantees.md")).expect("a file");
    let items = page.lines().filter_map(|line| line.strip_prefix("- **"));
    let items: Vec<_> = items
        .filter_map(|item| Some(item.split_once("**")?.0.trim_end_matches('.')))
        .collect();
    let promises = Map::read().promises;
    let rows: Vec<_> = promises.iter().map(|it| it.says.as_str()).collect();
    assert_eq!(rows, items, "tests/map.toml and docs/guarantees.md");
    let tests = promises.iter().flat_map(|it| &it.tests);
    let wrong = tests.flat_map(|test| match test.split_once(' ') {
        Some((binary, name)) => lost_by(&format!("--test {binary} -- {name}")),
        None => vec![test.clone()],
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "tests/map.toml: {wrong:#?}");
}

#[test]
fn each_of_the_nineteen_laws_has_its_tests() {
    let laws = Map::read().laws;
    let numbers: Vec<_> = laws.iter().map(|law| law.number).collect();
    assert_eq!(numbers, Vec::from_iter(1..=19));
    assert!(laws.iter().all(|law| !law.tests.is_empty()));
}

/// Each binary of the package is run by a tier.
#[test]
fn each_binary_is_run() {
    let manifest = fs::read_to_string(kit::root().join("tests/Cargo.toml")).expect("a file");
    let names = manifest.split("[[test]]\nname = \"").skip(1);
    let names = names.filter_map(|rest| rest.split('"').next());
    let script = fs::read_to_string(kit::root().join("tests/run.sh")).expect("a file");
    let words = BTreeSet::from_iter(script.split(|it: char| !it.is_alphanumeric() && it != '_'));
    let lost: Vec<_> = names.filter(|name| !words.contains(name)).collect();
    assert!(lost.is_empty(), "tests/run.sh does not run {lost:?}");
}

fn tables(map: &Map) -> String {
    let code = |paths: &[String]| {
        let quoted: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
        quoted.join(", ")
    };
    let mut text = String::from("| I changed | in | run |\n| --- | --- | --- |\n");
    for row in &map.changed {
        let runs = row.run.iter().map(|run| format!("`run {run}`"));
        let runs: Vec<_> = runs.chain(row.also.clone()).collect();
        text += &format!(
            "| {} | {} | {} |\n",
            row.what,
            code(&row.paths),
            runs.join(", ")
        );
    }
    text += "\n## Which promise is tested where\n\n`bash tests/run.sh --test BINARY -- NAME` runs one.\n\n";
    text += "| docs/guarantees.md | tests |\n| --- | --- |\n";
    for promise in &map.promises {
        text += &format!("| {} | {} |\n", promise.says, code(&promise.tests));
    }
    text += "\n## Which law is tested where\n\nPaths are relative to this folder.\n\n";
    text += "| | law | tests |\n| ---: | --- | --- |\n";
    for law in &map.laws {
        let tests = law.tests.join(", ");
        text += &format!("| {} | {} | {tests} |\n", law.number, law.says);
    }
    text
}

#[test]
fn the_readme_shows_the_map() {
    const BEGIN: &str = "<!-- made from map.toml -->\n";
    const END: &str = "<!-- end -->\n";
    let path = kit::root().join("tests/README.md");
    let readme = fs::read_to_string(&path).expect("a file");
    let (before, rest) = readme.split_once(BEGIN).expect("the begin of the tables");
    let (_, after) = rest.split_once(END).expect("the end of the tables");
    let wanted = format!("{before}{BEGIN}\n{}\n{END}{after}", tables(&Map::read()));
    if std::env::var("TIDEGATE_UPDATE").is_ok() {
        fs::write(&path, &wanted).expect("is written");
    } else {
        assert!(
            readme == wanted,
            "TIDEGATE_UPDATE=1 cargo test -p tidegate-tests --test structure map"
        );
    }
}
