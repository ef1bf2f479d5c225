//! Attacks on what the layer and `Limits` promise, only through the public API. Each test names the
//! law or the promise it attacks.

mod blips;
mod calls;
mod counters;
mod events;
mod first_steps;
mod joint;
mod keys;
mod limits;
mod lockouts;
mod nginx;
mod outcomes;
mod outgoing;
mod owed;
mod page;
mod permits;
mod plans;
mod published;
mod reload;
mod shadow;
mod threats;
mod unawaited;
mod uploads;
mod waiting_requests;

use kit::prelude::*;
use tower::util::BoxCloneSyncService;

/// A clock of its own for each test, and a store that reads it.
fn clocked() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    (clock.clone(), MemoryStore::new().clock(clock))
}

/// A layer around a service that has nothing to do.
type Wrapped = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

fn wrap(layer: RateLimitLayer) -> Wrapped {
    let empty = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()));
    BoxCloneSyncService::new(layer.layer(service_fn(empty)))
}

/// The key that the extractor of a rule by `x-key` makes.
fn key(name: &str) -> Key {
    Header::new("x-key").key(name)
}

fn tenant() -> Header {
    Header::new("x-tenant")
}

/// These rules from now on.
fn replace(limits: &Limits, rules: impl IntoIterator<Item = Rule>) {
    limits.rules().replace(Rules::from_iter(rules));
}

async fn status(app: &Router, target: &str) -> u16 {
    kit::http::send(app, target).await.status().as_u16()
}

fn refused() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "a test refuses")
}
