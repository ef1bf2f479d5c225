//! What each function does, on both backends.

use kit::clocked::clock_at;

use crate::*;

on_both!(
    the_first_rate_wins,
    permits_are_counted_by_weight,
    who_asks_for_nonsense_is_told_and_nothing_is_written,
    an_unknown_limiter_is_an_error,
    a_new_rate_clears,
    a_rate_of_a_newer_process_keeps_the_counts,
    what_is_released_is_there_again_but_no_more,
    a_deleted_limiter_is_gone,
    rates_are_forgotten_when_told,
    reads_change_nothing,
);

async fn the_first_rate_wins(on: &Home) {
    let limiter = limiter(on, 3, 60_000).await;
    assert!(!limiter.sets_first(per_client(5, SECOND)).await);
    let rate = limiter.stored_rate().await.expect("an answer");
    assert_eq!(rate, Some(overall(3, MINUTE)));
}

async fn permits_are_counted_by_weight(on: &Home) {
    let limiter = limiter(on, 10, 60_000).await;
    assert!(limiter.takes(4).await && limiter.takes(4).await);
    assert!(!limiter.takes(3).await);
    assert_eq!(limiter.free().await, 2);
    assert!(limiter.takes(2).await);
    assert_eq!(limiter.free().await, 0);
}

async fn who_asks_for_nonsense_is_told_and_nothing_is_written(on: &Home) {
    let limiter = limiter(on, 3, 60_000).await;
    let fair = limiter.clone().fair();
    for asked in [
        kind(limiter.try_acquire(0).await),
        kind(limiter.try_acquire_for(0, SECOND).await),
        kind(limiter.acquire(0).await),
    ] {
        assert_eq!(asked, Some(LimiterErrorKind::NoPermits));
    }
    assert_eq!(limiter.gives_back(0).await, 0, "nothing to do");
    for permits in [4, 1 << 32, u64::MAX] {
        let asked = [
            kind(limiter.try_acquire(permits).await),
            kind(fair.acquire(permits).await),
        ];
        assert_eq!(asked, [Some(LimiterErrorKind::AboveRate); 2], "{permits}");
    }
    let rates = [
        (0, SECOND),
        (1 << 32, SECOND),
        (1, Duration::ZERO),
        (1, Duration::MAX),
    ];
    for (permits, interval) in rates {
        let rate = tidegate::limiter::Rate::overall(permits, interval);
        assert_eq!(kind(rate), Some(LimiterErrorKind::InvalidRate));
    }
    let too_short = overall(1, SECOND).with_keep_alive(millis(999));
    assert_eq!(kind(too_short), Some(LimiterErrorKind::KeepAliveTooShort));
    assert_eq!(limiter.free().await, 3);
}

async fn an_unknown_limiter_is_an_error(on: &Home) {
    let limiter = RateLimiter::new(on, "nobody");
    for asked in [
        kind(limiter.try_acquire(1).await),
        kind(limiter.acquire(1).await),
        kind(limiter.clone().fair().acquire(1).await),
        kind(limiter.release(1).await),
        kind(limiter.available_permits().await),
    ] {
        assert_eq!(asked, Some(LimiterErrorKind::UnknownLimiter));
    }
    assert_eq!(limiter.stored_rate().await.expect("an answer"), None);
    assert!(!limiter.is_there().await);
    assert!(!limiter.expire(SECOND).await.expect("an answer"));
    assert!(!limiter.is_there().await, "nothing was written");
}

async fn a_new_rate_clears(on: &Home) {
    let limiter = limiter(on, 3, 60_000).await;
    assert!(limiter.takes(3).await);
    limiter.sets(overall(2, MINUTE)).await;
    assert_eq!(limiter.free().await, 2);
    assert!(limiter.takes(2).await);
    limiter.sets(per_client(4, MINUTE)).await;
    assert_eq!(limiter.free().await, 4);
}

async fn a_rate_of_a_newer_process_keeps_the_counts(on: &Home) {
    let limiter = limiter(on, 3, 60_000).await;
    assert!(limiter.takes(2).await);
    for (permits, left) in [(10, 8), (1, 0), (2, 0), (3, 1)] {
        limiter.replaces(overall(permits, MINUTE)).await;
        assert_eq!(limiter.free().await, left, "of {permits}");
    }
    assert!(!limiter.takes(2).await);
    assert!(limiter.takes(1).await);
}

async fn what_is_released_is_there_again_but_no_more(on: &Home) {
    let limiter = limiter(on, 5, 60_000).await;
    assert_eq!(limiter.gives_back(3).await, 0);
    assert!(limiter.takes(2).await);
    sleep(millis(3)).await;
    assert!(limiter.takes(3).await);
    for (released, back, free) in [(1, 1, 1), (2, 2, 3), (100, 2, 5)] {
        assert_eq!(limiter.gives_back(released).await, back);
        assert_eq!(limiter.free().await, free);
    }
    assert!(limiter.takes(5).await);
    assert!(!limiter.takes(1).await);
}

async fn a_deleted_limiter_is_gone(on: &Home) {
    let limiter = limiter(on, 2, 60_000).await;
    assert!(limiter.takes(2).await && limiter.is_there().await);
    assert!(limiter.delete().await.expect("an answer"));
    assert!(!limiter.delete().await.expect("an answer"), "true once");
    let unknown = kind(limiter.try_acquire(1).await);
    assert_eq!(unknown, Some(LimiterErrorKind::UnknownLimiter));
    assert!(limiter.sets_first(overall(2, MINUTE)).await);
    assert_eq!(limiter.free().await, 2);
}

async fn rates_are_forgotten_when_told(on: &Home) {
    let limiter = limiter(on, 2, 10).await;
    assert!(limiter.expire(millis(60)).await.expect("an answer"));
    sleep(millis(80)).await;
    assert!(!limiter.is_there().await);

    // A rate that callers keep alive, by a time that a busy machine does not sleep longer.
    let rate = overall(2, millis(10)).with_keep_alive(millis(600));
    let rate = rate.expect("valid");
    assert!(limiter.sets_first(rate).await);
    assert_eq!(limiter.stored_rate().await.expect("an answer"), Some(rate));
    for _ in 0..4 {
        sleep(millis(200)).await;
        assert!(limiter.takes(1).await, "it is kept alive");
    }
    sleep(millis(620)).await;
    assert!(!limiter.is_there().await);
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

/// What an earlier generation does not have is said.
#[tokio::test]
async fn earlier_generations_lack_something() {
    let server = kit::Redis::start();
    let limiter = limiter(&handle(&server.url).await, 3, HOUR.as_millis() as u64).await;
    let unsupported = Some(LimiterErrorKind::Unsupported);
    for generation in [Generation::First, Generation::Second] {
        let limiter = limiter.clone().generation(generation);
        assert_eq!(kind(limiter.release(1).await), unsupported);
        assert_eq!(kind(limiter.clone().fair().acquire(1).await), unsupported);
        assert!(limiter.takes(1).await);
    }
    let memory = crate::limiter(crate::in_memory(), 3, 60_000).await;
    let memory = memory.generation(Generation::First);
    assert_eq!(kind(memory.try_acquire(1).await), unsupported);
}
