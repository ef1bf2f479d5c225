//! What each function does, on both backends.

use std::time::Duration;

use tidegate::limiter::{
    Generation, LimiterBackend, LimiterError, LimiterErrorKind, Rate, RateLimiter,
};

use crate::{limiter, on_both, replace_rate};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

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

fn kind<T: std::fmt::Debug>(result: Result<T, LimiterError>) -> LimiterErrorKind {
    result.expect_err("an error").kind()
}

async fn the_first_rate_wins(on: LimiterBackend) {
    let limiter = limiter(on, 3, 60_000).await;
    let second = limiter
        .try_set_rate(Rate::per_client(5, SECOND).expect("valid"))
        .await;
    assert!(!second.expect("an answer"));
    let rate = limiter
        .stored_rate()
        .await
        .expect("an answer")
        .expect("a rate");
    assert_eq!(rate, Rate::overall(3, MINUTE).expect("valid"));
}

async fn permits_are_counted_by_weight(on: LimiterBackend) {
    let limiter = limiter(on, 10, 60_000).await;
    assert!(limiter.try_acquire(4).await.expect("an answer"));
    assert!(limiter.try_acquire(4).await.expect("an answer"));
    assert!(!limiter.try_acquire(3).await.expect("an answer"));
    assert_eq!(limiter.available_permits().await.expect("an answer"), 2);
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    assert_eq!(limiter.available_permits().await.expect("an answer"), 0);
}

async fn who_asks_for_nonsense_is_told_and_nothing_is_written(on: LimiterBackend) {
    let limiter = limiter(on, 3, 60_000).await;
    for acquired in [
        limiter.try_acquire(0).await,
        limiter.try_acquire_for(0, SECOND).await,
        limiter.acquire(0).await.map(|()| true),
    ] {
        assert_eq!(kind(acquired), LimiterErrorKind::NoPermits);
    }
    assert_eq!(limiter.release(0).await.expect("nothing to do"), 0);
    for permits in [4, 1 << 32, u64::MAX] {
        assert_eq!(
            kind(limiter.try_acquire(permits).await),
            LimiterErrorKind::AboveRate
        );
        assert_eq!(
            kind(limiter.clone().fair().acquire(permits).await),
            LimiterErrorKind::AboveRate
        );
    }
    for (permits, interval) in [
        (0, SECOND),
        (1 << 32, SECOND),
        (1, Duration::ZERO),
        (1, Duration::MAX),
    ] {
        let rate = Rate::overall(permits, interval);
        assert_eq!(kind(rate), LimiterErrorKind::InvalidRate);
    }
    let rate = Rate::overall(1, SECOND).expect("valid");
    let too_short = rate.with_keep_alive(Duration::from_millis(999));
    assert_eq!(kind(too_short), LimiterErrorKind::KeepAliveTooShort);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 3);
}

async fn an_unknown_limiter_is_an_error(on: LimiterBackend) {
    let limiter = RateLimiter::new(on, "nobody");
    let unknown = LimiterErrorKind::UnknownLimiter;
    assert_eq!(kind(limiter.try_acquire(1).await), unknown);
    assert_eq!(kind(limiter.acquire(1).await), unknown);
    assert_eq!(kind(limiter.clone().fair().acquire(1).await), unknown);
    assert_eq!(kind(limiter.release(1).await), unknown);
    assert_eq!(kind(limiter.available_permits().await), unknown);
    assert_eq!(limiter.stored_rate().await.expect("an answer"), None);
    assert!(!limiter.exists().await.expect("an answer"));
    assert!(!limiter.expire(SECOND).await.expect("an answer"));
    assert!(
        !limiter.exists().await.expect("an answer"),
        "nothing was written"
    );
}

async fn a_new_rate_clears(on: LimiterBackend) {
    let limiter = limiter(on, 3, 60_000).await;
    assert!(limiter.try_acquire(3).await.expect("an answer"));
    limiter
        .set_rate(Rate::overall(2, MINUTE).expect("valid"))
        .await
        .expect("is set");
    assert_eq!(limiter.available_permits().await.expect("an answer"), 2);
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    let set = limiter.set_rate(Rate::per_client(4, MINUTE).expect("valid"));
    set.await.expect("is set");
    assert_eq!(limiter.available_permits().await.expect("an answer"), 4);
}

async fn a_rate_of_a_newer_process_keeps_the_counts(on: LimiterBackend) {
    let limiter = limiter(on, 3, 60_000).await;
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    for (permits, left) in [(10, 8), (1, 0), (2, 0), (3, 1)] {
        let rate = Rate::overall(permits, MINUTE).expect("valid");
        assert!(replace_rate(&limiter, rate).await.expect("an answer"));
        assert_eq!(
            limiter.available_permits().await.expect("an answer"),
            left,
            "of {permits}"
        );
    }
    assert!(!limiter.try_acquire(2).await.expect("an answer"));
    assert!(limiter.try_acquire(1).await.expect("an answer"));
}

async fn what_is_released_is_there_again_but_no_more(on: LimiterBackend) {
    let limiter = limiter(on, 5, 60_000).await;
    assert_eq!(limiter.release(3).await.expect("an answer"), 0);
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert!(limiter.try_acquire(3).await.expect("an answer"));
    assert_eq!(limiter.release(1).await.expect("an answer"), 1);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 1);
    assert_eq!(limiter.release(2).await.expect("an answer"), 2);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 3);
    assert_eq!(limiter.release(100).await.expect("an answer"), 2);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 5);
    assert!(limiter.try_acquire(5).await.expect("an answer"));
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
}

async fn a_deleted_limiter_is_gone(on: LimiterBackend) {
    let limiter = limiter(on, 2, 60_000).await;
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    assert!(limiter.exists().await.expect("an answer"));
    assert!(limiter.delete().await.expect("an answer"));
    assert!(!limiter.delete().await.expect("an answer"), "true once");
    assert_eq!(
        kind(limiter.try_acquire(1).await),
        LimiterErrorKind::UnknownLimiter
    );
    let set = limiter
        .try_set_rate(Rate::overall(2, MINUTE).expect("valid"))
        .await;
    assert!(set.expect("an answer"));
    assert_eq!(limiter.available_permits().await.expect("an answer"), 2);
}

async fn rates_are_forgotten_when_told(on: LimiterBackend) {
    let limiter = limiter(on, 2, 10).await;
    assert!(
        limiter
            .expire(Duration::from_millis(60))
            .await
            .expect("an answer")
    );
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert!(!limiter.exists().await.expect("an answer"));

    let rate = Rate::overall(2, Duration::from_millis(10)).expect("valid");
    let rate = rate
        .with_keep_alive(Duration::from_millis(300))
        .expect("valid");
    assert!(limiter.try_set_rate(rate).await.expect("an answer"));
    assert_eq!(limiter.stored_rate().await.expect("an answer"), Some(rate));
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(limiter.try_acquire(1).await.expect("it is kept alive"));
    }
    tokio::time::sleep(Duration::from_millis(320)).await;
    assert!(!limiter.exists().await.expect("an answer"));
}

async fn reads_change_nothing(on: LimiterBackend) {
    let limiter = limiter(on, 2, 60).await;
    let rate = Rate::overall(2, Duration::from_millis(60)).expect("valid");
    let rate = rate
        .with_keep_alive(Duration::from_millis(200))
        .expect("valid");
    limiter.set_rate(rate).await.expect("is set");
    let until = tokio::time::Instant::now() + Duration::from_millis(230);
    while tokio::time::Instant::now() < until {
        let _ = limiter.available_permits().await;
        let _ = limiter.stored_rate().await;
        let _ = limiter.exists().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        !limiter.exists().await.expect("an answer"),
        "nobody acquired"
    );
}

/// Equal grants of one client count one by one, and are free one by one.
#[tokio::test]
async fn equal_grants_are_told_apart() {
    for generation in [Generation::First, Generation::Second, Generation::Third] {
        let server = kit::Redis::start();
        let redis = crate::connect(&server).await;
        let limiter = limiter(&redis, 4, 200).await.generation(generation);
        for round in 0..2 {
            for number in 0..4 {
                let granted = limiter.try_acquire(1).await.expect("an answer");
                assert!(granted, "{generation:?}: grant {number} of round {round}");
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
    }
}

/// What an earlier generation does not have is said.
#[tokio::test]
async fn earlier_generations_lack_something() {
    let server = kit::Redis::start();
    let redis = crate::connect(&server).await;
    let limiter = limiter(&redis, 3, 60_000).await;
    for generation in [Generation::First, Generation::Second] {
        let limiter = limiter.clone().generation(generation);
        let unsupported = LimiterErrorKind::Unsupported;
        assert_eq!(kind(limiter.release(1).await), unsupported);
        assert_eq!(kind(limiter.clone().fair().acquire(1).await), unsupported);
        assert!(limiter.try_acquire(1).await.expect("an answer"));
    }
    let memory = crate::limiter(crate::in_memory(), 3, 60_000).await;
    let memory = memory.generation(Generation::First);
    assert_eq!(
        kind(memory.try_acquire(1).await),
        LimiterErrorKind::Unsupported
    );
}
