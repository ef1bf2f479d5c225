//! Unit leases attacked: never more than the quota is used, nothing is given back twice or lost
//! for longer than promised, and nobody waits for a lease.

mod accounts;
mod edges;
mod faults;
mod fleet;
mod layers;
mod rules;
mod runtimes;
mod wrappers;

use crate::prelude::*;

/// Takes until the process holds a lease; the decisions so far, of which the last is a lease's.
pub(super) async fn until_leased(store: &impl Store, take: &Take) -> Vec<Decision> {
    let (mut decisions, began) = (Vec::new(), Instant::now());
    loop {
        let decision = decide(store, take).await;
        assert!(decision.is_allowed(), "{decision:?} after {decisions:?}");
        let is_leased = decision.source() == Source::Lease;
        decisions.push(decision);
        if is_leased {
            return decisions;
        }
        assert!(began.elapsed() < PATIENT / 2, "no lease: {decisions:?}");
        // Leases are tasks: they need their turn.
        match decisions.len() % 10 {
            0 => sleep(millis(1)).await,
            _ => yield_now().await,
        }
    }
}

/// The units that these decisions were charged.
pub(super) fn units(decisions: &[Decision]) -> u64 {
    let receipts = decisions.iter().filter_map(Decision::receipt);
    receipts.map(|receipt| receipt.units()).sum()
}

/// Takes until it is denied for this long, which is longer than a lease lives: what a lease holds
/// comes back when it ends. The decisions that were allowed.
pub(super) async fn use_up(store: &impl Store, take: &Take, denied_for: Duration) -> Vec<Decision> {
    let (mut allowed, mut last) = (Vec::new(), tokio::time::Instant::now());
    loop {
        let decision = decide(store, take).await;
        if decision.is_allowed() {
            allowed.push(decision);
            last = tokio::time::Instant::now();
            yield_now().await;
        } else if last.elapsed() > denied_for {
            return allowed;
        } else {
            sleep(millis(1)).await;
        }
    }
}
