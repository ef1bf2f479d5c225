//! Law 13: callers that never stop asking.

use crate::*;

/// Who asks in a tight loop, for far more than there is, costs others neither time nor permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_never_stop_asking() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "asked", 10, millis(100)).await;
    let aside = super::limiter(&redis, "aside", 1_000_000, HOUR).await;
    let monitor = Monitor::start(&server.url);
    let mut greedy = JoinSet::new();
    for at in 0..50_u64 {
        let limiter = limiter.fair_if(at % 2 == 0);
        greedy.spawn(async move {
            loop {
                let _ = match at % 5 {
                    0 => limiter.try_acquire(0).await.is_ok(),
                    1 => limiter.try_acquire(u64::MAX).await.is_ok(),
                    2 => limiter
                        .try_acquire_for(10, Duration::from_nanos(1))
                        .await
                        .is_ok(),
                    3 => limiter.release(at).await.is_ok(),
                    _ => timeout(millis(1), limiter.acquire(9)).await.is_ok(),
                };
                tokio::task::yield_now().await;
            }
        });
    }
    let began = Instant::now();
    let calls = join_all((0..100).map(|_| aside.try_acquire(1))).await;
    assert!(calls.iter().all(|call| matches!(call, Ok(true))), "law 13");
    for _ in 0..100 {
        assert!(aside.try_acquire(1).await.expect("law 13"));
    }
    let took = began.elapsed();
    assert!(took < 10 * SECOND, "law 13: {took:?}");
    greedy.shutdown().await;
    monitor.check(&server.url, "asked", 10, millis(100));
    becomes_available(&limiter, 10, 2 * SECOND).await;
    check_expiries(&server, &["asked", "aside"]);
}
