//! The cache of denials: what it answers, when it asks, what voids a denial, and what it costs.

mod answers;
mod bounds;
mod changes;
mod delayed;
mod history;
mod questions;

use super::*;

const MICROSECOND: Duration = Duration::from_micros(1);

fn is_cached(decision: &Decision) -> bool {
    decision.source() == Source::Cache
}

/// A take of the only unit in ten minutes.
fn scarce() -> Take {
    take_from(1, 600 * SECOND)
}

/// Uses the units up, and has the last denial cached.
async fn deny(store: &dyn Store, take: &Take) -> Decision {
    loop {
        let decision = ask(store, take).await;
        if !decision.is_allowed() {
            return decision;
        }
    }
}
