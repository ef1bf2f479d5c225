//! Processes that are slow themselves, and what they give back.

use crate::*;

/// A caller leaves that may have been granted its permits, and a permit is released, beside turns of
/// the runtime that are longer than the time-out.
#[test]
fn grants_come_back_beside_long_turns() {
    for (turn, time_out) in SLOW {
        still_runtime().block_on(async {
            let server = Arc::new(Server::start());
            let redis = handle(&server.url).await;
            let patient = limiter(&redis, "slow", 10, HOUR).await;
            let limiter = RateLimiter::new(redis.timeout(time_out), "slow");
            let permit = limiter.acquire_permit(3).await.expect("free");
            let mut leaves = Box::pin(async move { limiter.acquire(4).await });
            server.signal("STOP");
            assert!(futures_util::poll!(&mut leaves).is_pending());
            for _ in 0..20 {
                yield_now().await;
            }
            server.signal("CONT");
            let released = tokio::spawn(permit.release());
            let (seen, mut act) = (Arc::clone(&server), Some(leaves));
            turns_until(turn, move |passed| {
                drop(act.take());
                passed > 4 && seen.run::<Option<u64>>("GET {slow}:value") == Some(10)
            })
            .await;
            released.await.expect("no panic").ok();
            assert_eq!(patient.free().await, 10);
        });
    }
}

/// A release that got no answer, or was dropped, goes on in the background.
#[tokio::test]
async fn a_release_without_an_answer_goes_on() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    limiter(&redis, "slow", 10, HOUR).await;
    let limiter = RateLimiter::new(redis.clone().timeout(millis(50)), "slow");
    let [one, other] = [2, 3].map(async |permits| limiter.acquire_permit(permits).await);
    let (one, other) = (one.await.expect("free"), other.await.expect("free"));
    server.signal("STOP");
    let late = one.release().await.expect_err("no answer");
    assert_eq!(
        late.kind(),
        LimiterErrorKind::Store(StoreErrorKind::Timeout)
    );
    let mut dropped = Box::pin(other.release());
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    assert!(!redis.flush(millis(20)).await, "nothing is answered");
    server.signal("CONT");
    assert!(redis.flush(PATIENT).await);
    let left: u64 = server.run("GET {slow}:value");
    assert_eq!(left, 10);
}
