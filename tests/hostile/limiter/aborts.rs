//! Law 9: a caller that leaves keeps no permit, no place, and nobody waiting.

use crate::*;

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// One permit, by one of the ways to get it, and whether it came in time.
async fn ask(limiter: &RateLimiter, way: u64, patience: Duration) -> bool {
    match way % 4 {
        0 => timeout(patience, limiter.acquire(1)).await.is_ok(),
        1 => timeout(patience, limiter.acquire_permit(1)).await.is_ok(),
        2 => {
            let asked = limiter.try_acquire_for(1, HOUR);
            timeout(patience, asked)
                .await
                .is_ok_and(|got| got.expect("an answer"))
        }
        _ => {
            let asked = limiter.try_acquire(1);
            timeout(patience, asked)
                .await
                .is_ok_and(|got| got.expect("an answer"))
        }
    }
}

/// Before the call is sent, while it is on its way, while the reply is: what was granted to
/// nobody is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_while_permits_are_free() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    for name in ["plain", "fair"] {
        let limiter = limiter(&redis, name, 1_000, HOUR)
            .await
            .fair_if(name == "fair");
        let callers = crowd(800, |at| {
            let limiter = limiter.clone();
            async move {
                sleep(micros(at * 200)).await;
                ask(&limiter, at, micros(at * 37 % 16_000)).await
            }
        });
        let granted = callers.await.into_iter().filter(|got| *got).count() as u64;
        assert!(granted < 800, "{granted} of 800 in time");
        becomes_available(&limiter, 1_000 - granted, 5 * SECOND).await;
    }
    check_expiries(&server, &["plain", "fair"]);
}

/// Futures that were polled once and then forgotten hold up nobody, and are served when they
/// are looked at again.
async fn forget_futures_of(limiter: RateLimiter) {
    assert!(limiter.takes(1).await);
    let mut forgotten: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire(1))).collect();
    for future in &mut forgotten {
        assert!(futures_util::poll!(future).is_pending(), "nothing is free");
    }
    for place in 0..10 {
        let limiter = limiter.clone();
        let served = tokio::spawn(async move { limiter.acquire(1).await });
        let served = timeout(6 * SECOND, served).await;
        let served = served.unwrap_or_else(|_| panic!("caller {place} hangs"));
        served.expect("no panic").expect("a permit");
    }
    let late = timeout(PATIENT, join_all(forgotten)).await;
    let late = late.expect("all are served");
    assert!(late.iter().all(Result::is_ok), "{late:?}");
    sleep(millis(100)).await;
    assert_eq!(limiter.free().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_that_nobody_polls() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let cases = [false, true].map(async |is_fair| {
        let name = if is_fair { "fair" } else { "plain" };
        let on_redis = limiter(&redis, name, 1, millis(50)).await;
        let in_memory = RateLimiter::new(MemoryLimiters::default(), name);
        in_memory.sets(overall(1, millis(50))).await;
        let both = [on_redis, in_memory].map(|limiter| limiter.fair_if(is_fair));
        join_all(both.map(forget_futures_of)).await;
    });
    join_all(cases).await;
}
