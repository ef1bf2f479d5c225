//! Both stores, and the algorithm alone, against the laws.

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod deadline;
mod flights;
mod flights_alike;
mod history;
mod memory;
mod outage;
mod redis_keys;
mod redis_url;

use std::sync::Arc;

use tidegate::store::StoreExt;
use tidegate::{Decision, Key, Quota, Rule, Store, Take};

/// A take of 1 by nobody in particular.
fn take(path: &str, quotas: &[Quota]) -> Take {
    let rule = Rule::new(path, quotas.iter().copied()).expect("a valid rule");
    Take::new(Arc::new(rule), Key::default())
}

async fn ask(store: &dyn Store, take: &Take) -> Decision {
    store.take_one(take).await.expect("a decision")
}

/// How many of so many takes are allowed, asked one after the other.
async fn allowed(store: &dyn Store, take: &Take, times: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..times {
        allowed += usize::from(ask(store, take).await.is_allowed());
    }
    allowed
}
