//! Each condition of "usual" is there for a reason: without it some history is answered in another
//! way than by the core.

use std::ops::Range;

use kit::Redis;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tidegate::Algorithm;

use super::directed::{histories_of, one_take};
use super::history::history;
use super::play::{Player, file};

/// What decides whether a key is usual.
const NAMES: [&str; 2] = ["is_usual", "is_exact"];
/// The last words of the usual case.
const END: &str = "return concat(replies) end";

/// Where the conditions of each conjunction stand in a script.
fn conjunctions(script: &str) -> Vec<Vec<Range<usize>>> {
    let text = &script[..script.find(END).expect("an end of the usual case")];
    let assigned = |name: &str| -> Vec<usize> {
        let assignment = format!("{name} = ");
        let found = text.match_indices(&assignment);
        found.map(|(at, _)| at + assignment.len()).collect()
    };
    let beginnings = NAMES.iter().flat_map(|name| assigned(name));
    beginnings.map(|from| conditions(text, from)).collect()
}

/// The conditions of the expression that begins there: what stands between its `and`s.
fn conditions(text: &str, from: usize) -> Vec<Range<usize>> {
    let (mut depth, mut at, mut begins) = (0, from, from);
    let mut found = Vec::new();
    loop {
        let rest = &text[at..];
        let ends = depth == 0
            && (rest.starts_with(" then") || rest.starts_with('\n'))
            && !rest.trim_start().starts_with("and ");
        if ends {
            found.push(begins..at);
            return found;
        }
        let is_and = rest.starts_with(char::is_whitespace) && rest.trim_start().starts_with("and ");
        if depth == 0 && is_and {
            found.push(begins..at);
            at += rest.len() - rest.trim_start().len() + "and ".len();
            begins = at;
            continue;
        }
        match rest.as_bytes()[0] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// The script without this condition.
fn without(script: &str, conjunction: &[Range<usize>], removed: usize) -> String {
    let kept = conjunction.iter().enumerate();
    let kept = kept.filter(|(at, _)| *at != removed);
    let kept: Vec<_> = kept.map(|(_, range)| &script[range.clone()]).collect();
    let others = match kept.is_empty() {
        true => "true".to_owned(),
        false => kept.join(" and "),
    };
    let (first, last) = (conjunction[0].start, conjunction[conjunction.len() - 1].end);
    [&script[..first], &others, &script[last..]].concat()
}

/// So many random histories are tried where the directed ones do not do.
const MAX_HISTORIES: usize = 3_000;

/// Random histories, the same in every run, behind those that were made by hand.
struct Histories {
    algorithm: Algorithm,
    runner: TestRunner,
    known: Vec<Vec<Vec<u8>>>,
}

impl Histories {
    fn new(algorithm: Algorithm) -> Self {
        let histories = histories_of(algorithm).into_iter();
        Self {
            algorithm,
            runner: TestRunner::new(Config {
                rng_seed: RngSeed::Fixed(1),
                ..Config::default()
            }),
            known: histories
                .map(|history| history.arguments(algorithm))
                .collect(),
        }
    }

    fn get(&mut self, number: usize) -> &[Vec<u8>] {
        while number >= self.known.len() {
            let tree = history().new_tree(&mut self.runner).expect("a history");
            self.known.push(tree.current().arguments(self.algorithm));
        }
        &self.known[number]
    }
}

kit::for_each_algorithm!(each_is_needed);

fn each_is_needed(algorithm: Algorithm) {
    let server = Redis::start();
    let player = Player::new(&server, algorithm);
    let mut histories = Histories::new(algorithm);
    let (script, first_write) = (
        kit::script(&file(algorithm)),
        one_take().arguments(algorithm),
    );
    let whole = player.play_of(&script, 2);
    let mut needless = Vec::new();
    for conjunction in conjunctions(&script) {
        for removed in 0..conjunction.len() {
            let play = player.play_of(&without(&script, &conjunction, removed), 2);
            let mut differs = player
                .difference_out_of_memory(&play, &first_write)
                .is_some();
            let mut number = 0;
            while !differs && number < MAX_HISTORIES {
                let history = histories.get(number);
                differs = player.difference(&play, history).is_some()
                    && player.difference(&whole, history).is_none();
                number += 1;
            }
            if !differs {
                needless.push(&script[conjunction[removed].clone()]);
            }
        }
    }
    assert!(needless.is_empty(), "needless: {needless:#?}");
}
