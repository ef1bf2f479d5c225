//! The figures of the README are those of benches/README.md, which its commands write, and of
//! docs/evidence/dependencies.md.

use std::fs;

fn page(name: &str) -> String {
    fs::read_to_string(kit::root().join(name)).expect("a page")
}

/// A cell of a table of benches/README.md: of the row with this name, below the heading that begins
/// like this.
fn cell(benches: &str, heading: &str, row: &str, column: usize) -> String {
    let mut lines = benches.lines();
    lines
        .by_ref()
        .find(|line| line.starts_with(&format!("| {heading}")))
        .unwrap_or_else(|| panic!("benches/README.md has no table {heading}"));
    let mut rows = lines.take_while(|line| line.starts_with('|'));
    let found = rows.find(|line| line.starts_with(&format!("| {row} |")));
    let found = found.unwrap_or_else(|| panic!("the table {heading} has no row {row}"));
    let cell = found.split(" | ").nth(column).expect("a column");
    cell.trim_matches([' ', '|']).to_owned()
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().expect("a number")
}

/// What such a table says of 64 connections, in percent.
fn throughput(benches: &str, heading: &str, row: &str) -> String {
    let cell = cell(benches, heading, row, 1);
    let at_64 = number(cell.split(" / ").nth(1).expect("1, 64 and 256 connections"));
    format!("{:.0} %", 100.0 * at_64)
}

fn thousands(number: f64) -> String {
    format!("{:.0},000", number / 1_000.0)
}

#[test]
fn the_costs_in_the_readme_are_measured() {
    let (readme, benches) = (page("README.md"), page("benches/README.md"));
    let lone = |row: &str| cell(&benches, "one connection, hot key", row, 3);
    let few = |row: &str, connections: u32| {
        let heading = "processor time a request";
        // The columns are 1, 2, 4, 8 connections and so on.
        let column = 1 + connections.ilog2() as usize;
        number(&cell(&benches, heading, row, column))
    };
    let share = |heading: &str, row: &str| throughput(&benches, heading, row);
    let (keys, hot, denied) = (
        "100,000 keys in turn",
        "one hot key, allowed",
        "one key, denied",
    );
    let server = "eight processes; tasks in each";
    let each = |row: &str| cell(&benches, server, row, 1);
    let alone: Vec<f64> = ["log, 1", "gcra, 1"]
        .iter()
        .flat_map(|row| each(row).split(" / ").map(number).collect::<Vec<_>>())
        .collect();
    let least = alone.iter().copied().fold(f64::INFINITY, f64::min);
    let most = alone.iter().copied().fold(0.0, f64::max);
    let at_8 = number(each("log, 8").split(" / ").nth(1).expect("of 100,000 keys"));
    let rows = [
        format!(
            "| {} | tower-rate-limit-redis {} |",
            lone("`log-resilient`"),
            lone("`tower-rate-limit-redis`")
        ),
        format!(
            "| {} | tower-rate-limit-redis {} |",
            share(keys, "log-resilient"),
            share(keys, "tower-rate-limit-redis")
        ),
        format!(
            "| {} | tower_governor {} |",
            share(hot, "memory"),
            share(hot, "tower_governor")
        ),
        format!(
            "| {} | tower_governor {} |",
            share(denied, "memory"),
            share(denied, "tower_governor")
        ),
        format!(
            "| {:.0} / {:.0} µs | tower-rate-limit-redis {:.0} / {:.0} µs |",
            few("`gcra`, keys", 1),
            few("`gcra`, keys", 8),
            few("`tower-rate-limit-redis`, keys", 1),
            few("`tower-rate-limit-redis`, keys", 8)
        ),
        format!(
            "| {} to {} / {} | |",
            thousands(least),
            thousands(most),
            thousands(at_8)
        ),
    ];
    let lost: Vec<_> = rows.iter().filter(|row| !readme.contains(*row)).collect();
    assert!(
        lost.is_empty(),
        "benches/README.md says otherwise: {lost:#?}"
    );
}

#[test]
fn the_dependencies_in_the_readme_are_counted() {
    let (readme, counted) = (page("README.md"), page("docs/evidence/dependencies.md"));
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (readme, counted) = (plain(&readme), plain(&counted));
    let found = |text: &str, before: &str, after: &str| {
        let rest = text
            .split_once(before)
            .unwrap_or_else(|| panic!("no {before:?}"))
            .1;
        rest.split_once(after)
            .expect("a number before it")
            .0
            .to_owned()
    };
    let all = [
        found(&readme, "axum and tidegate compiles ", " packages"),
        found(&readme, "default features and axum: ", " ("),
        found(&readme, "with tower_governor 0.8: ", "; limitador"),
        found(&readme, "limitador: ", ")"),
    ];
    let wanted = [
        found(&counted, "A service compiles ", " packages"),
        found(&counted, "packages for this crate, ", " without"),
        found(&counted, "it takes ", " for tower_governor"),
        found(&counted, "tower_governor 0.8 and ", " for limitador"),
    ];
    assert_eq!(all, wanted, "README.md, docs/evidence/dependencies.md");
}

/// The table of features names each one.
#[test]
fn the_features_in_the_readme_are_all() {
    let (readme, manifest) = (page("README.md"), page("Cargo.toml"));
    let table = readme
        .split("| feature | default |")
        .nth(1)
        .expect("a table");
    let table = table.split("\n\n").next().expect("its rows");
    let features = manifest.split("\n[features]\n").nth(1).expect("features");
    let features = features.split("\n[").next().expect("their lines");
    let names = features.lines().filter(|line| !line.starts_with('#'));
    let names = names.filter_map(|line| Some(line.split_once(" = ")?.0));
    let lost: Vec<_> = names
        .filter(|name| *name != "default" && !table.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(lost, [""; 0], "README.md");
}
