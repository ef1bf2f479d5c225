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
