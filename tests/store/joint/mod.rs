//! Takes over several counts: charged in all, or in none.

mod denial_cache;
mod fallback;
mod refunds;

use crate::prelude::*;

fn subject(name: &str, max: u32) -> Subject {
    Subject::new(name, Everyone).limit(Quota::per_hour(max))
}

/// A quota of so many requests, whatever they cost.
fn requests(name: &str, max: u32, cost: u64) -> Policy {
    Policy::new(name, Quota::per_hour(max)).with_cost(cost)
}

fn joint(path: &str, subjects: impl IntoIterator<Item = Subject>) -> Arc<Rule> {
    Arc::new(Rule::joint(path, subjects).expect("a valid rule"))
}

/// A take of these subjects with these keys; an empty key is everyone's.
fn take(rule: &Arc<Rule>, keys: &[(&str, &str)]) -> Take {
    let key = |key: &str| match key {
        "" => Key::default(),
        key => Key::from(key),
    };
    let keys = keys.iter().map(|(subject, text)| (*subject, key(text)));
    Take::of_subjects(Arc::clone(rule), keys).expect("subjects of the rule")
}
