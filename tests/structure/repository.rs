//! What a visitor of the repository finds, as far as two files have to agree.

use std::fs;
use std::path::Path;

fn text(name: &str) -> String {
    fs::read_to_string(kit::root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The numbers of the line of a text that begins with this word, whatever stands in front of it.
fn numbers(text: &str, word: &str) -> Vec<u32> {
    let mut lines = text.lines().map(str::trim_start);
    let line = lines.find_map(|line| line.strip_prefix(word));
    let numbers = line.expect(word).split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn the_weekly_run_takes_each_part_of_the_nightly() {
    let nightly = text("tests/nightly.sh");
    let (_, parts) = nightly.split_once("parts=(\n").expect("the parts");
    let (parts, _) = parts.split_once("\n)").expect("the end of the parts");
    let parts: Vec<u32> = parts
        .lines()
        .map(|part| numbers(part, "\"").first().copied().expect("a number"))
        .collect();
    assert_eq!(
        numbers(&text(".github/workflows/weekly.yml"), "part: ["),
        parts
    );
}

#[test]
fn a_change_is_checked_by_the_command_of_developers() {
    let workflow = text(".github/workflows/ci.yml");
    assert!(workflow.lines().any(|line| line.trim() == "- run: .ci/run"));
}

#[test]
fn dependabot_looks_at_workspaces() {
    let dependabot = text(".github/dependabot.yml");
    let mut lines = dependabot.lines().map(str::trim);
    let folders = lines.find_map(|line| line.strip_prefix("directories: ["));
    let folders = folders.expect("the folders").trim_end_matches(']');
    for folder in folders.split(", ").map(|it| it.trim_matches(['"', '/'])) {
        let manifest = Path::new(folder).join("Cargo.toml");
        let manifest = text(manifest.to_str().expect("text"));
        assert!(manifest.contains("[workspace]"), "{folder}");
    }
}
