//! Stores around stores: what each does, alone and together, and what becomes of requests.

mod breaker;
mod breaker_tasks;
mod denial_cache;
mod events;
mod fallback;
mod flaky_store;
mod half_open;
mod in_flight;
mod layer;
mod once;
mod outage;
mod resilient;
mod timeout;

use std::sync::Arc;
use std::time::Duration;

use tidegate::store::StoreErrorKind;
use tidegate::{Decision, Key, Quota, Rule, Store, StoreError, Take};

use flaky_store::FlakyStore;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(window, max).expect("a valid quota")
}

fn rule(quota: Quota) -> Rule {
    Rule::new("p", [quota]).expect("a valid rule")
}

/// A take of 1 by nobody in particular.
fn take_of(rule: Rule) -> Take {
    Take::new(Arc::new(rule), Key::default())
}

/// The same of a rule that has room for everybody.
fn take() -> Take {
    take_of(rule(quota(1_000_000, 60 * SECOND)))
}

async fn ask(store: &dyn Store, take: &Take) -> Decision {
    store.take(take).await.expect("a decision")
}

/// The answer, if it is there before the future is polled.
fn at_once(store: &dyn Store, take: &Take) -> Option<Result<Decision, StoreError>> {
    store.take(take).poll_now()
}

async fn failure(store: &dyn Store) -> StoreError {
    let answer = store.take(&take()).await;
    answer.expect_err("no decision")
}

async fn kind(store: &dyn Store) -> StoreErrorKind {
    failure(store).await.kind()
}
