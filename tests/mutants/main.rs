//! Proof that the laws' tests can fail: each mutant is the crate with one small mistake, and some test has to notice.
//!
//! Each is a copy of the tree in a temporary folder, built and tested there; that takes minutes, so it is
//! ignored unless `tests/mutants.sh` runs it, which prints which test killed which mutant.

mod list;
mod tree;

use list::MUTANTS;

#[test]
fn each_mistake_can_be_made() {
    for mutant in MUTANTS {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(mutant.file);
        let original = std::fs::read_to_string(&path).expect("a file of the tree");
        let mutated = mutant.put_into(&original);
        assert_ne!(mutated, original, "{}: {}", mutant.part, mutant.what);
    }
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
    if !is_short() {
        tree.assert_passes();
    }
    let mut survivors = Vec::new();
    println!("| part | mutant | killed by |\n|---|---|---|");
    for mutant in chosen() {
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
