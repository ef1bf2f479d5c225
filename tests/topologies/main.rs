//! One server, a cluster, and a master behind sentinels, with all that happens to them.

mod addresses;
mod cluster_faults;
mod connects;
mod load;
mod quiet;
mod ready;
mod resharding;
mod sentinel_faults;
mod together;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::redis::IntoRedisAddress;
use tidegate::{Key, Quota, RedisStore, Rule, Store, StoreError, Take};

/// Longer than any hiccup of a busy machine: for what is not about time.
const PATIENCE: Duration = Duration::from_secs(20);

/// A take of 1 by nobody in particular.
fn take(path: &str, max: u64) -> Take {
    let hour = Duration::from_secs(3_600);
    let rule = Rule::new(path, [Quota::new(hour, max).expect("a quota")]);
    Take::new(Arc::new(rule.expect("a valid rule")), Key::default())
}

async fn store(address: impl IntoRedisAddress) -> RedisStore {
    let store = RedisStore::connect(address).await.expect("a running Redis");
    store.timeout(PATIENCE)
}

async fn refused(address: impl IntoRedisAddress) -> StoreError {
    let started = Instant::now();
    let error = RedisStore::connect(address)
        .await
        .expect_err("no connection");
    assert!(started.elapsed() < RedisStore::CONNECT_TIMEOUT + Duration::from_secs(5));
    error
}

/// How many of so many takes are allowed, asked one after the other.
async fn allowed(store: &RedisStore, take: &Take, times: usize) -> usize {
    let store: &dyn Store = store;
    let mut allowed = 0;
    for _ in 0..times {
        let decision = store.take(take).await.expect("a decision");
        allowed += usize::from(decision.is_allowed());
    }
    allowed
}

/// Waits until something holds, while other tasks go on. It is long because a sentinel on a busy
/// machine may do nothing for half a minute, since it mistrusts its clock then.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(150),
            "never: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
