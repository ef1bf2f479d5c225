//! Runtimes that end, and several that share a handle.

use std::time::{Duration, Instant};

use futures_util::future::{join_all, select};
use tidegate::limiter::{LimiterErrorKind, RateLimiter};
use tidegate::store::StoreErrorKind;
use tokio::runtime::Runtime;

use crate::{connect, limiter};

#[test]
fn a_runtime_that_ends_takes_its_waiters_along() {
    let server = kit::Redis::start();
    let staying = Runtime::new().expect("a runtime");
    let redis = staying.block_on(connect(&server));
    let limiter = staying.block_on(limiter(&redis, 2, 300));
    for round in 0..4 {
        let ending = Runtime::new().expect("a runtime");
        for _ in 0..8 {
            let (limiter, fair) = (limiter.clone(), limiter.clone().fair());
            ending.spawn(async move { limiter.acquire(1).await });
            ending.spawn(async move { fair.acquire(2).await });
        }
        std::thread::sleep(Duration::from_millis(10 * round));
        ending.shutdown_background();
        // Who waits in another runtime is not held up by the dead.
        staying.block_on(async {
            let most = Duration::from_secs(20);
            let waited = tokio::time::timeout(most, limiter.acquire(1)).await;
            waited.expect("in time").expect("an answer");
        });
    }
}

#[test]
fn two_runtimes_share_a_handle() {
    let server = kit::Redis::start();
    let keeper = Runtime::new().expect("a runtime");
    let redis = keeper.block_on(connect(&server));
    let limiter = keeper.block_on(limiter(&redis, 5, 50));
    let work = |limiter: RateLimiter| async move {
        let waits = (0..20).map(|_| limiter.acquire(1));
        for waited in join_all(waits).await {
            waited.expect("an answer");
        }
        let fair = limiter.fair();
        let drop_soon = Box::pin(tokio::time::sleep(Duration::from_millis(3)));
        select(Box::pin(fair.acquire(5)), drop_soon).await;
    };
    let other = {
        let limiter = limiter.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().expect("a runtime");
            runtime.block_on(work(limiter));
        })
    };
    keeper.block_on(work(limiter.clone()));
    other.join().expect("no panic");

    // Without the runtime of the connection every call is an error, and in time.
    keeper.shutdown_background();
    let runtime = Runtime::new().expect("a runtime");
    let limiters = RateLimiter::new(redis.timeout(Duration::from_millis(300)), "partner");
    runtime.block_on(async {
        for _ in 0..3 {
            let began = Instant::now();
            let error = limiters.acquire(1).await.expect_err("an error").kind();
            let unavailable = LimiterErrorKind::Store(StoreErrorKind::Unavailable);
            assert_eq!(error, unavailable);
            assert!(began.elapsed() < Duration::from_secs(5));
        }
    });
}
