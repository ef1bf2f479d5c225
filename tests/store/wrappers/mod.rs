//! Stores around stores: what each does, alone and together, and what becomes of requests.

mod breaker;
mod breaker_tasks;
mod calendar;
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
mod shares;
mod timeout;

use tidegate::store::StoreErrorKind as Kind;

use crate::prelude::*;
pub(crate) use flaky_store::{FlakyStore, Mode};

const MILLISECOND: Duration = Duration::from_millis(1);

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

/// A take of one quota.
fn take_from(max: u64, window: Duration) -> Take {
    take_of(rule(quota(max, window)))
}

/// What comes back of a charge.
async fn refunds(store: &dyn Store, take: &Take, receipt: &Receipt) -> u64 {
    let answer = store.refund(take, receipt).await;
    answer.expect("an answer")
}

/// Charges a take.
async fn charge(store: &dyn Store, take: &Take) -> Receipt {
    ask(store, take).await.receipt().expect("it was charged")
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

/// It fails so often in a row, and for this reason.
async fn fails(store: &dyn Store, times: usize, reason: Kind) {
    for _ in 0..times {
        assert_eq!(kind(store).await, reason);
    }
}

/// A wrapper that does only this around a store of this mode, and that store.
fn around<T>(mode: Mode, wrap: impl FnOnce(Resilient<FlakyStore>) -> T) -> (T, FlakyStore) {
    let flaky = FlakyStore::new(mode);
    (wrap(Resilient::bare(flaky.clone())), flaky)
}
