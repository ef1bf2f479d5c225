//! One server, a cluster, and a master behind sentinels, with all that happens to them.

mod addresses;
mod connects;
mod quiet;
mod ready;
mod resharding;
mod together;

use kit::prelude::*;
use tidegate::redis::IntoRedisAddress;

/// Why there is no connection, which is told in time.
async fn refused(address: impl IntoRedisAddress, kind: StoreErrorKind) -> StoreError {
    let started = Instant::now();
    let error = RedisStore::connect(address).await;
    let error = error.expect_err("no connection");
    assert!(started.elapsed() < RedisStore::CONNECT_TIMEOUT + PATIENT);
    assert_eq!(error.kind(), kind, "{error}");
    error
}
