//! Attacks on rules of several subjects: a request is charged in all of them, or in none, whatever
//! its neighbours, the server or its caller do.

mod concurrent;
mod damage;
mod edges;
mod refused_writes;

use crate::prelude::*;

const MINUTE: u64 = 60_000;

/// At most `max` in a window of so many milliseconds.
fn quota(max: u64, millis: u64) -> Quota {
    Quota::new(Duration::from_millis(millis), max).expect("a valid quota")
}

/// A subject with one quota of a minute.
fn subject(name: &str, max: u64) -> Subject {
    Subject::new(name, Everyone).limit(quota(max, MINUTE))
}

/// A policy of a minute with a cost of its own.
fn costing(max: u64, cost: u64) -> Policy {
    Policy::from(quota(max, MINUTE)).with_cost(cost)
}

fn joint(
    algorithm: Algorithm,
    path: &str,
    subjects: impl IntoIterator<Item = Subject>,
) -> Arc<Rule> {
    let rule = Rule::joint(path, subjects).expect("a valid rule");
    Arc::new(rule.with_algorithm(algorithm))
}

/// The subjects `user`, `address` and `everyone`, each with a max a minute.
fn three(algorithm: Algorithm, path: &str, max: [u64; 3]) -> Arc<Rule> {
    let subjects = ["user", "address", "everyone"].into_iter().zip(max);
    let subjects = subjects.map(|(name, max)| subject(name, max));
    joint(algorithm, path, subjects)
}

/// A rule whose path is the algorithm's name.
fn named(algorithm: Algorithm, subjects: impl IntoIterator<Item = Subject>) -> Arc<Rule> {
    joint(algorithm, algorithm.name(), subjects)
}

fn take(rule: &Arc<Rule>, keys: &[(&str, &str)]) -> Take {
    let keys = keys.iter().map(|(name, key)| (*name, Key::from(*key)));
    Take::of_subjects(Arc::clone(rule), keys).expect("subjects of the rule")
}

/// A take of a rule of [`three`] subjects.
fn tuple(rule: &Arc<Rule>, user: &str, address: &str) -> Take {
    let keys = [("user", user), ("address", address), ("everyone", "")];
    take(rule, &keys)
}

/// What each quota of the take has left, in the rule's order.
async fn left(store: &(impl Store + ?Sized), take: &Take) -> Vec<u64> {
    let decision = store.peek(take).await.expect("a decision");
    let states = decision.quotas().iter();
    states.map(|state| state.remaining()).collect()
}
