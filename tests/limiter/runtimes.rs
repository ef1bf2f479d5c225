//! A handle that several runtimes share.

use futures_util::future::{Either, select};
use kit::Redis;

use crate::*;

/// In memory the runtimes of the callers do the work: one that ends takes no caller of others
/// along.
#[test]
fn a_runtime_that_ends_keeps_no_caller_of_others() {
    let [ends, stays] = [(); 2].map(|()| Runtime::new().expect("a runtime"));
    let limiter = stays.block_on(limiter(in_memory(), 1, 500));
    assert!(stays.block_on(limiter.takes(1)));
    let denied = |runtime: &Runtime| {
        let mut waits = Box::pin({
            let limiter = limiter.clone();
            async move { limiter.waits(1).await }
        });
        // It has asked, was denied, and is in the queue.
        runtime.block_on(async {
            let soon = tokio::time::sleep(millis(50));
            assert!(matches!(
                select(waits.as_mut(), Box::pin(soon)).await,
                Either::Right(_)
            ));
        });
        waits
    };
    // The task that sleeps for both is in the first one's runtime.
    let first = denied(&ends);
    let second = denied(&stays);
    ends.shutdown_background();
    let granted = stays.block_on(async { timeout(PATIENT, second).await });
    granted.expect("the other runtime asks for it again");
    drop(first);
}

#[test]
fn two_runtimes_share_a_handle() {
    let server = Redis::start();
    let keeper = Runtime::new().expect("a runtime");
    let redis = keeper.block_on(handle(&server.url));
    let limiter = keeper.block_on(limiter(&redis, 5, 50));
    let work = |limiter: RateLimiter| async move {
        join_all((0..20).map(|_| limiter.waits(1))).await;
        let fair = limiter.fair();
        let drop_soon = Box::pin(tokio::time::sleep(millis(3)));
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
    let limiter = RateLimiter::new(redis.timeout(millis(300)), "partner");
    let unavailable = Some(LimiterErrorKind::Store(StoreErrorKind::Unavailable));
    Runtime::new().expect("a runtime").block_on(async {
        for _ in 0..3 {
            let told = timeout(PATIENT, limiter.acquire(1)).await;
            assert_eq!(kind(told.expect("in time")), unavailable);
        }
    });
}
