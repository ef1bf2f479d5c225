//! Units owed, attacked: a settlement charges exactly what it says, whatever comes in between, and
//! later takes are denied until a time that is true.

mod races;
mod truth;
mod wrapped;

use crate::prelude::*;

/// So many that no test uses them up.
const MANY: u64 = 100_000_000;

/// By default a key owes the max once more.
fn rule(
    algorithm: Algorithm,
    path: &str,
    quotas: &[(u64, Duration)],
    owe_at_most: impl Into<Option<u64>>,
) -> Arc<Rule> {
    let quotas = quotas.iter().map(|&(max, window)| Quota::new(window, max));
    let quotas = quotas.map(|quota| quota.expect("a valid quota"));
    let rule = Rule::new(path, quotas).expect("a valid rule");
    let rule = rule.with_algorithm(algorithm);
    Arc::new(match owe_at_most.into() {
        Some(units) => rule.with_owe_at_most(units),
        None => rule,
    })
}

fn take(rule: &Arc<Rule>, key: &str, cost: u64) -> Take {
    Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost)
}

/// All units that count for a key of a rule of one quota, also those above its max: what another
/// rule of the path with more room finds.
async fn used(store: &(impl Store + ?Sized), rule: &Rule, key: &str) -> u64 {
    let (algorithm, window) = (rule.algorithm().algorithm(), rule.quotas()[0].window());
    let roomy = by(algorithm, rule.path(), MANY, window);
    MANY - remaining(store, &take(&roomy, key, 1)).await
}
