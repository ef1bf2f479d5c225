//! Callers of a connection that is well, and slow: it is kept.

use futures_util::future::try_join_all;
use kit::load::{store, take};

use crate::prelude::*;

/// Callers that give up, and those that drop their questions, tell nothing about the connection: it
/// answers others.
#[tokio::test]
async fn giving_up_costs_no_connection() {
    let server = kit::Redis::start();
    let proxy = kit::proxy::Proxy::start(&server.url).await;
    let store = store(&proxy.url).await;
    let batch: Vec<_> = (0..50).map(|at| take(&format!("p{at}"), 1_000)).collect();
    let all = |store: &RedisStore| try_join_all(batch.iter().map(|take| store.take(take)));
    all(&store).await.expect("decisions");
    proxy.delay(Duration::ZERO, millis(40));
    let stalls = Stalls::watch(&[&proxy.url], millis(80)).await;
    let before = proxy.accepted();
    let hasty = store.clone().timeout(millis(5));
    for _ in 0..30 {
        let error = all(&hasty).await.expect_err("nobody answers");
        assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
        drop(all(&store));
    }
    all(&store).await.expect("decisions");
    // A machine that stands still for longer than silence is tolerated proves nothing.
    if stalls.longest().is_none() {
        assert_eq!(proxy.accepted(), before, "the connection was well");
    }
}
