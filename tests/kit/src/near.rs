//! Stores on a server of their own, at once or behind a proxy.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{MemoryStore, RedisStore, Store};

use crate::proxy::Proxy;
use crate::{PATIENT, Redis, behind, connect};

/// A server, and a store on it with this time-out.
pub async fn near_within(timeout: Duration) -> (Redis, RedisStore) {
    let server = Redis::start();
    let store = connect(&server.url, timeout).await;
    (server, store)
}

/// The same with a patient store.
pub async fn near() -> (Redis, RedisStore) {
    near_within(PATIENT).await
}

/// A server, a proxy that adds this much to every round trip, and a store behind both.
pub async fn far_within(round_trip: Duration, timeout: Duration) -> (Redis, Proxy, RedisStore) {
    let server = Redis::start();
    let proxy = behind(&server, round_trip).await;
    let store = connect(&proxy.url, timeout).await;
    (server, proxy, store)
}

/// The same with a patient store.
pub async fn far(round_trip: Duration) -> (Redis, Proxy, RedisStore) {
    far_within(round_trip, PATIENT).await
}

/// A server, a proxy that only passes on what comes, and a store behind both.
pub async fn proxied(timeout: Duration) -> (Redis, Proxy, RedisStore) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connect(&proxy.url, timeout).await;
    (server, proxy, store)
}

/// A server, and a patient store on it beside one in memory.
pub async fn redis_and_memory() -> (Redis, [Arc<dyn Store>; 2]) {
    let (server, redis) = near().await;
    (server, [Arc::new(redis), Arc::new(MemoryStore::new())])
}
