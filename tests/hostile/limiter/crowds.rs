//! Law 13: callers that never stop asking, and crowds of earlier generations.

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

/// The earlier generations under callers that leave, plain as they are: all who stay are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_of_earlier_generations() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, redis) = far_server(millis(2)).await;
    for (name, generation) in [("first", Generation::First), ("second", Generation::Second)] {
        let limiter = limiter(&redis, name, 20, INTERVAL)
            .await
            .generation(generation);
        let mut crowd = JoinSet::new();
        for at in 0..150_u64 {
            let limiter = limiter.clone();
            crowd.spawn(async move {
                if at % 3 == 0 {
                    let _ = timeout(millis(at % 70), limiter.acquire(2)).await;
                } else {
                    limiter.waits(1).await;
                }
            });
        }
        let all = timeout(10 * SECOND, async {
            while let Some(ended) = crowd.join_next().await {
                ended.expect("no panic");
            }
        });
        all.await.unwrap_or_else(|_| panic!("{name}: law 13"));
        let asked = limiter.try_acquire_for(20, 3 * SECOND).await;
        assert!(asked.expect("an answer"), "{name}: law 14");
    }
    check_expiries(&server, &["first", "second"]);
}
