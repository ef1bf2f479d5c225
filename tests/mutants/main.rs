//! Proof that the tests can fail: each mutant is the crate with one small mistake, and some test has
//! to notice.
//!
//! They come from three places: `list.toml`, written by hand; `past/`, defects that were mended once;
//! and `cargo mutants`, of which a part is drawn. Each is built and tested in a copy of the tree;
//! that takes minutes, so it is ignored unless `tests/mutants.sh` runs it, which prints which test
//! noticed which mutant.

mod mutant;
mod tree;

use std::collections::BTreeSet;
use std::env;

use mutant::{Change, Mutant};
use tree::{Outcome, Tree};

#[test]
fn each_mistake_of_the_list_can_be_made() {
    let lost = mutant::list().into_iter().filter_map(|mutant| {
        let Change::Text { file, from, .. } = &mutant.change else {
            panic!("the list has texts alone");
        };
        let text = std::fs::read_to_string(kit::root().join(file)).unwrap_or_default();
        let places = text.matches(from.as_str()).count();
        (places != 1).then(|| format!("{places} places: {mutant}"))
    });
    let lost: Vec<_> = lost.collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// A defect of the past may be impossible by now; then its patch goes. Not all of them.
#[test]
fn most_past_defects_can_be_made_again() {
    let past = mutant::past();
    let tree = Tree::copy();
    let lost = past.iter().filter(|mutant| tree.apply(mutant).is_none());
    let lost: Vec<_> = lost.map(ToString::to_string).collect();
    println!("no longer possible: {lost:#?}");
    assert!(lost.len() <= past.len() / 4, "{lost:#?}");
}

/// `TIDEGATE_MUTANTS` is `list`, `past`, `tool`, the name of a part of the list, or `--changed`: those
/// of the list in the files of `TIDEGATE_CHANGED`, which may be none.
fn chosen() -> Vec<Mutant> {
    let choice = env::var("TIDEGATE_MUTANTS").unwrap_or_else(|_| "list".to_owned());
    let mutants = match choice.as_str() {
        "list" => mutant::list(),
        "past" => mutant::past(),
        "tool" => mutant::of_tool(),
        "--changed" => {
            let changed = env::var("TIDEGATE_CHANGED").expect("tests/mutants.sh sets it");
            let is_changed = |it: &Mutant| match &it.change {
                Change::Text { file, .. } => changed.lines().any(|line| line == file),
                Change::Patch(_) => false,
            };
            return mutant::list().into_iter().filter(is_changed).collect();
        }
        part => {
            let of_part = mutant::list().into_iter().filter(|it| it.part == part);
            of_part.collect()
        }
    };
    assert!(!mutants.is_empty(), "no mutants: {choice}");
    // `2/3`: the second of three shares. Neighbours share what was built.
    let shard = env::var("TIDEGATE_SHARD").unwrap_or_else(|_| "1/1".to_owned());
    let (number, of) = shard.split_once('/').expect("as in 2/3");
    let (number, of): (usize, usize) = (number.parse().expect("2"), of.parse().expect("3"));
    let len = mutants.len();
    let (begin, end) = (len * (number - 1) / of, len * number / of);
    mutants.into_iter().take(end).skip(begin).collect()
}

#[test]
#[ignore = "takes an hour: tests/mutants.sh"]
fn every_mutant_is_noticed() {
    let tree = Tree::copy();
    let chosen = chosen();
    let (mut alive, mut lost, mut noticing) = (Vec::new(), 0, BTreeSet::new());
    let mut proposed = Vec::new();
    println!("| part | mutant | noticed by |\n|---|---|---|");
    for mutant in &chosen {
        let noticed = match tree.apply(mutant) {
            None => {
                lost += 1;
                "(no longer possible)".to_owned()
            }
            Some(_changed) => match tree.outcome(mutant) {
                Outcome::Noticed(test) => {
                    let shown = format!("`{test}`");
                    noticing.insert(test);
                    shown
                }
                Outcome::NoticedElsewhere(test) => {
                    proposed.push(format!("{mutant}: {test}"));
                    let shown = format!("`{test}`, which its row lacks");
                    noticing.insert(test);
                    shown
                }
                Outcome::DoesNotBuild => "(does not build)".to_owned(),
                Outcome::Alive => {
                    alive.push(mutant.to_string());
                    "nobody".to_owned()
                }
            },
        };
        println!("| {} | {} | {noticed} |", mutant.part, mutant.what);
    }
    assert!(lost <= chosen.len() / 4, "{lost} are no longer possible");
    println!(
        "{} mutants, {lost} no longer possible, {} alive",
        chosen.len(),
        alive.len()
    );
    if !proposed.is_empty() {
        println!("for the rows of these mutants: {proposed:#?}");
    }
    // What fails without a mutant, too, has noticed none.
    noticing.retain(|test| !test.ends_with("(it never ends)") && !tree.passes(test));
    assert!(
        alive.is_empty() && noticing.is_empty(),
        "alive: {alive:#?}, failed without a mutant: {noticing:#?}"
    );
}
