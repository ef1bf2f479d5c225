//! Proof that the laws' tests can fail: each mutant is the crate with one small mistake, and some
//! test has to notice.
//!
//! Each is a copy of the tree in a temporary folder, built and tested there; that takes minutes, so
//! it is ignored unless `tests/mutants.sh` runs it, which prints which test killed which mutant.

mod list;
mod shape;
mod tree;

use std::fs;
use std::path::Path;

use list::MUTANTS;

fn root() -> &'static Path {
    kit::root()
}

#[test]
fn each_mistake_can_be_made() {
    let mut lost = Vec::new();
    for mutant in MUTANTS {
        match mutant.try_put_into(root()) {
            Ok((file, mutated)) => {
                let original = fs::read_to_string(&file).expect("a file of the tree");
                assert_ne!(mutated, original, "{mutant}");
            }
            Err(places) => lost.push(format!("{places} places: {mutant}")),
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// A rename in the source, and the mistake is the same, with the new name.
#[test]
fn a_renamed_identifier_hides_no_place() {
    let mut lost = Vec::new();
    for mutant in MUTANTS {
        let (file, mutated) = mutant.put_into(root());
        let original = fs::read_to_string(&file).expect("a file of the tree");
        for name in shape::names(mutant.from) {
            let rename = |text: &str| shape::rename(text, name, "another_name");
            let wanted = without_space(&rename(&mutated));
            let placed = mutant.put_into_text(&rename(&original));
            if placed.map(|text| without_space(&text)) != Ok(wanted) {
                lost.push(format!("{mutant}, {name}"));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn a_moved_file_hides_no_place() {
    let mut lost = Vec::new();
    // Some: each looks through the whole tree.
    for mutant in MUTANTS.iter().step_by(5) {
        let (file, mutated) = mutant.put_into(root());
        let file_is_gone = list::Mutant {
            file: "src/moved.rs",
            ..*mutant
        };
        let placed = file_is_gone.try_put_into(root());
        let wanted = Ok((file, without_space(&mutated)));
        if placed.map(|(file, text)| (file, without_space(&text))) != wanted {
            lost.push(mutant.to_string());
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn a_shape_is_found_by_its_names() {
    let source = "if a.b <= c.b {\n d }\nif e.f <= e.f {";
    let replaced = |shape, by| match &shape::find(shape, source)[..] {
        [found] => Ok(found.replace(source, by)),
        found => Err(found.len()),
    };
    // Equal names match equal ones alone; which ones, does not matter.
    assert_eq!(
        replaced("if x.y <= x.y {", "if x.y < x.y {"),
        Ok(source.replace("e.f <= e.f", "e.f < e.f"))
    );
    // With the same shape twice, the place that keeps more names is meant.
    assert_eq!(
        replaced("if a.y <= z.y {", "if z.y {"),
        Ok(source.replace("a.b <= c.b", "c.b"))
    );
    assert_eq!(replaced("if x.y <= z.y {", ""), Err(2));
    assert_eq!(replaced("while x.y <= z.y {", ""), Err(0));
}

/// Right behind all tests, which have passed: they are not run again without a mutant.
fn is_short() -> bool {
    std::env::var("TIDEGATE_MUTANTS").is_ok_and(|choice| choice == "short")
}

/// Of these the short form tries the first mutant.
const SHORT: [&str; 5] = ["all", "gcra, Lua", "limiter", "lock", "connection"];

/// `short`: some mutants alone. The name of a part: its mutants.
fn chosen() -> Vec<&'static list::Mutant> {
    let choice = std::env::var("TIDEGATE_MUTANTS").unwrap_or_default();
    let short = is_short();
    let is_part = |mutant: &&list::Mutant| mutant.part == choice;
    if MUTANTS.iter().any(|mutant| is_part(&mutant)) {
        return MUTANTS.iter().filter(is_part).collect();
    }
    let mut tried = Vec::new();
    let is_chosen = |mutant: &&list::Mutant| {
        let is_first = SHORT.contains(&mutant.part) && !tried.contains(&mutant.part);
        tried.push(mutant.part);
        is_first || !short
    };
    MUTANTS.iter().filter(is_chosen).collect()
}

#[test]
#[ignore = "takes minutes: tests/mutants.sh"]
fn every_mutant_is_killed() {
    let tree = tree::Tree::copy();
    let chosen = chosen();
    if !is_short() {
        tree.assert_passes(&chosen);
    }
    let mut survivors = Vec::new();
    println!("| part | mutant | killed by |\n|---|---|---|");
    for mutant in chosen {
        let _mutated = tree.mutate(mutant);
        let killers = tree.killers(mutant);
        let (first, more) = match &killers[..] {
            [] => ("nobody", String::new()),
            [only] => (only.as_str(), String::new()),
            [first, more @ ..] => (first.as_str(), format!(", and {} more", more.len())),
        };
        println!("| {} | {} | `{first}`{more} |", mutant.part, mutant.what);
        if killers.is_empty() {
            survivors.push(mutant.what);
        }
    }
    assert!(survivors.is_empty(), "alive: {survivors:?}");
}
