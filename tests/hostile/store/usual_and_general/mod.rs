//! Attacks on the two parts of the scripts that decide takes: the usual case, and the core
//! that answers all else. Whoever asks must not notice which of them answered.

mod access;
mod damage;
mod expiries;
mod ties;

use crate::prelude::*;

/// Not far from the real time, so that Redis does not expire what is alive by a manual clock.
const START: u64 = 1_800_000_000_000_777;

fn quota(max: u64, millis: u64) -> Quota {
    Quota::new(Duration::from_millis(millis), max).expect("a valid quota")
}

/// A rule of quotas with names of their own, each with its max and its window in milliseconds.
fn owned(algorithm: Algorithm, path: &str, of: &[(u64, u64)]) -> Rule {
    let of = of.iter().enumerate();
    let policies = of.map(|(at, &(max, millis))| Policy::new(&at.to_string(), quota(max, millis)));
    let rule = Rule::with_policies(path, policies).expect("a valid rule");
    rule.with_algorithm(algorithm)
}

fn rule(algorithm: Algorithm, path: &str, of: &[(u64, u64)]) -> Arc<Rule> {
    Arc::new(owned(algorithm, path, of))
}

fn take(rule: &Arc<Rule>, key: &str) -> Take {
    Take::new(Arc::clone(rule), Key::from(key))
}

/// The names of the keys of a count: its own, and where GCRA keeps what was given back.
fn names(take: &Take) -> [String; 2] {
    let name = take.name("CurrentLimiter:");
    let back = format!("{{{name}}}:back");
    [name, back]
}

/// Law 4: each key of a limiter has an expiry, of so many milliseconds at most.
fn check_expiries(server: &Redis, longest: i64, story: &str) {
    let names = server.names().into_iter();
    for name in names.filter(|it| it.trim_start_matches('{').starts_with("CurrentLimiter:")) {
        let left = server.life(&name);
        let is_right = left == -2 || (0..=longest).contains(&left);
        assert!(is_right, "{story}: {name} lives for {left} of {longest} ms");
    }
}
