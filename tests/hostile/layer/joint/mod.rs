//! Attacks on rules of several subjects behind layers and `Limits`: requests that lack keys, quotas
//! that clients must not see, and reloads.

mod absent;
mod hidden;
mod reload;

use kit::redis_and_memory as stores;
use tidegate::layer::SubjectKeys;

use crate::*;

const OK: u16 = 200;
const DENIED: u16 = 429;

async fn ask(app: &Router, fields: &str) -> u16 {
    kit::http::ask(app, "/", fields).await.status
}

fn limits(file: &str, store: impl Store) -> Limits {
    let limits = Limits::from_toml(file).unwrap_or_else(|error| panic!("{error}"));
    limits.store(store)
}

fn header(name: &str, value: &str) -> Key {
    Header::new(name).key(value)
}

/// What each quota of the rule `api` has left, for these keys.
async fn left(limits: &Limits, keys: impl Into<SubjectKeys>) -> Vec<u64> {
    kit::left_of_each(limits, "api", keys).await
}
