//! Unit leases attacked: never more than the quota is used, nothing is given back twice or lost
//! for longer than promised, and nobody waits for a lease.

mod accounts;
mod edges;
mod faults;
mod fleet;
mod layers;
mod rules;
mod runtimes;
mod simulated;
mod wrappers;

use std::sync::Arc;
use std::time::Duration;

use tidegate::decision::Source;
use tidegate::{Algorithm, Decision, Quota, Rule, Store, Take};

use kit::millis;

/// A rule of one quota with leases.
pub(super) fn leased(
    algorithm: Algorithm,
    path: &str,
    max: u64,
    window: Duration,
    lease: Duration,
) -> Arc<Rule> {
    let quota = Quota::new(window, max).expect("a valid quota");
    let rule = Rule::new(path, [quota]).expect("a valid rule");
    let rule = rule.with_algorithm(algorithm).with_lease(lease);
    Arc::new(rule.expect("leases under this algorithm"))
}

/// The algorithms that have leases.
const LEASED: [Algorithm; 3] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
];

pub(super) async fn decide(store: &impl Store, take: &Take) -> Decision {
    store.take(take).await.expect("a decision")
}

/// Takes until the process holds a lease; the decisions so far, of which the last is a lease's.
pub(super) async fn until_leased(store: &impl Store, take: &Take) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let began = std::time::Instant::now();
    loop {
        let decision = decide(store, take).await;
        assert!(
            decision.is_allowed(),
            "{decision:?} after {}",
            decisions.len()
        );
        let is_leased = decision.source() == Source::Lease;
        decisions.push(decision);
        if is_leased {
            return decisions;
        }
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "no lease: {:?}",
            decisions.last()
        );
        // Leases are tasks: they need their turn.
        match decisions.len() % 10 {
            0 => tokio::time::sleep(millis(1)).await,
            _ => tokio::task::yield_now().await,
        }
    }
}

/// The units that these decisions were charged.
pub(super) fn units(decisions: &[Decision]) -> u64 {
    let receipts = decisions.iter().filter_map(Decision::receipt);
    receipts.map(|receipt| receipt.units()).sum()
}
