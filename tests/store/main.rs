//! The stores: what each one promises, what Redis holds, and what it costs.
//!
//! [`conformance`] is stamped on every store; [`usual_case`] compares the two parts of each
//! script of takes; [`wrappers`] are stores around stores. `tests/histories` compares the stores
//! with the algorithm alone.

mod allocations;
mod calendar;
mod clock_steps;
mod conformance;
mod deadline;
mod direct;
mod flights;
mod flights_alike;
mod flood;
mod holds;
mod joint;
mod lockouts;
mod memory;
mod outage;
mod prelude;
mod redb;
mod redis_keys;
mod redis_url;
mod usual_case;
mod vectors;
mod wrappers;

use prelude::*;

/// A take of 1 by nobody in particular.
fn take(path: &str, quotas: &[Quota]) -> Take {
    let rule = Rule::new(path, quotas.iter().copied()).expect("a valid rule");
    Take::new(Arc::new(rule), Key::default())
}

/// A server, and a patient store on it.
async fn started() -> (Redis, RedisStore) {
    let server = Redis::start();
    let store = store_on(&server).await;
    (server, store)
}

async fn ask(store: &dyn Store, take: &Take) -> Decision {
    store.take(take).await.expect("a decision")
}

/// How many of this many takes are allowed, asked one after the other.
async fn allowed(store: &dyn Store, take: &Take, times: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..times {
        allowed += usize::from(ask(store, take).await.is_allowed());
    }
    allowed
}
