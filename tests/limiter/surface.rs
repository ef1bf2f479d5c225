//! What single functions do; what several do together is in `scenes`.

use kit::clocked::clock_at;

use crate::*;

on_both!(reads_change_nothing);

#[test]
fn rates_that_cannot_be() {
    let rates = [
        (0, SECOND),
        (1 << 32, SECOND),
        (1, Duration::ZERO),
        (1, Duration::MAX),
    ];
    for (permits, interval) in rates {
        let rate = Rate::overall(permits, interval);
        assert_eq!(kind(rate), Some(LimiterErrorKind::InvalidRate));
    }
    let too_short = overall(1, SECOND).with_keep_alive(millis(999));
    assert_eq!(kind(too_short), Some(LimiterErrorKind::KeepAliveTooShort));
    let interval = |duration| overall(1, duration).interval();
    assert_eq!(interval(Duration::from_nanos(1)), millis(1), "rounded up");
    assert_eq!(interval(Duration::new(1, 1)), millis(1_001), "rounded up");
}

async fn reads_change_nothing(on: &Home) {
    let limiter = limiter(on, 2, 60).await;
    let rate = overall(2, millis(60)).with_keep_alive(millis(200));
    limiter.sets(rate.expect("valid")).await;
    let until = tokio::time::Instant::now() + millis(230);
    while tokio::time::Instant::now() < until {
        let _ = limiter.available_permits().await;
        let _ = limiter.stored_rate().await;
        let _ = limiter.exists().await;
        sleep(millis(10)).await;
    }
    assert!(!limiter.is_there().await, "nobody acquired");
}

/// Equal grants of one client count one by one, and are free one by one.
#[tokio::test]
async fn equal_grants_are_told_apart() {
    const STEP: u64 = 60_000_000;
    for generation in [Generation::Second, Generation::Third] {
        let server = kit::Redis::start();
        let clock = clock_at(1_800_000_000_000_000);
        let redis = handle(&server.url).await;
        let redis = LimiterBackend::redis_with_clock(&redis, clock.clone());
        let limiter = limiter(redis, 4, 4 * 60_000).await.generation(generation);
        for number in 0..4 {
            let granted = limiter.takes(1).await;
            assert!(granted, "{generation:?}: grant {number}");
            clock.set(clock.now() + STEP);
        }
        for free in 1..=4 {
            assert_eq!(limiter.free().await, free, "{generation:?}");
            clock.set(clock.now() + STEP);
        }
    }
}

/// The first generation keeps no grants, but a window.
#[tokio::test]
async fn a_window_of_the_first_generation_is_free_again() {
    let server = kit::Redis::start();
    let limiter = limiter(&handle(&server.url).await, 4, 200).await;
    let limiter = limiter.generation(Generation::First);
    for round in 0..2 {
        for number in 0..4 {
            assert!(limiter.takes(1).await, "grant {number} of round {round}");
        }
        eventually("all are free", async || limiter.free().await == 4).await;
    }
}
