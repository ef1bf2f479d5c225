//! What is left to callers of Redisson of a limiter that they and callers of this crate use up
//! together.

use kit::Redis;
use kit::redisson::Java;
use tokio::time::sleep_until;

use crate::*;

/// Takes one permit after the other. Returns how many were granted.
async fn take_all(limiter: &RateLimiter) -> u64 {
    let mut granted = 0;
    while limiter.takes_within(1, millis(10)).await {
        granted += 1;
    }
    granted
}

async fn set(limiter: &RateLimiter) {
    limiter.sets(overall(50, MINUTE)).await;
}

/// A limiter of another process, which knows nothing yet.
async fn process(server: &Redis, is_fair: bool) -> RateLimiter {
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    limiter.shared_with_redisson().fair_if(is_fair)
}

#[tokio::test]
async fn what_redisson_uses_and_a_little_more_is_left_to_it() {
    let server = Redis::start();
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    for is_fair in [false, true] {
        let limiter = process(&server, is_fair).await;
        set(&limiter).await;
        for _ in 0..6 {
            java.takes(1, &mut random).await;
        }
        // A third and a fiftieth of the rate more: 9.
        assert_eq!(take_all(&limiter).await, 41);
        assert_eq!(limiter.free().await, 3);
        for _ in 0..3 {
            java.takes(1, &mut random).await;
        }
        // Redisson has more than a third.
        let limiter = process(&server, is_fair).await;
        set(&limiter).await;
        java.takes(25, &mut random).await;
        assert_eq!(take_all(&limiter).await, 25);
        // The request could never be granted otherwise.
        set(&limiter).await;
        java.takes(6, &mut random).await;
        assert!(limiter.takes(44).await);
    }
}

/// Redisson 3.17.0 to 3.21.0 has 8 random bytes in a grant, later ones have 16.
#[tokio::test]
async fn grants_of_earlier_releases_are_known_as_redissons() {
    let server = Redis::start();
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    let redis = handle(&server.url).await;
    for size in [8_u8, 16] {
        let on = LimiterBackend::redis_with_clock(&redis, clock.clone());
        let limiter = RateLimiter::new(on, "partner").shared_with_redisson();
        set(&limiter).await;
        for number in 0..6 {
            let random: Vec<u8> = (0..size).map(|at| 200 + at).collect();
            let grant = [&[size], &random[1..], &[number], &1_u32.to_le_bytes()].concat();
            let add = redis::Cmd::zadd("{partner}:permits", grant, 1_800_000_000_000_u64);
            let _: () = add.query(&mut server.connection()).expect("is added");
        }
        // A third and a fiftieth of the rate more: 9.
        assert_eq!(take_all(&limiter).await, 41, "{size}");
        let denied = limiter.try_acquire_permit(4).await.expect("an answer");
        assert_eq!(denied.expect_err("3 are left"), MINUTE, "{size}");
    }
}

#[tokio::test]
async fn nothing_is_left_to_redisson_once_it_is_gone() {
    let server = Redis::start();
    let limiter = process(&server, false).await;
    let interval = millis(500);
    limiter.sets(overall(50, interval)).await;
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    java.takes(10, &mut random).await;
    let began = Instant::now();
    take_all(&limiter).await;
    sleep_until(began + 3 * interval).await;
    // A machine that is so slow that permits come back meanwhile says nothing.
    let (began, granted) = (Instant::now(), take_all(&limiter).await);
    // One is left to a client of Redisson that was granted nothing yet.
    assert!(granted >= 49 || began.elapsed() > interval / 2, "{granted}");
}

/// A denied caller is told when it can be granted its permits, which is not when the first permit
/// of Redisson expires: what is left to Redisson stays the same then.
#[tokio::test]
async fn a_wait_counts_what_is_left_to_redisson() {
    const BEGIN: u64 = 1_800_000_000_000;
    let server = Redis::start();
    let clock = ManualClock::default();
    let at = |second: u64, millis: u64| clock.set((BEGIN + second * 1_000 - millis) * 1_000);
    at(0, 0);
    let process = async || {
        let redis = handle(&server.url).await;
        let backend = LimiterBackend::redis_with_clock(&redis, clock.clone());
        RateLimiter::new(backend, "partner").shared_with_redisson()
    };
    set(&process().await).await;
    for second in 0..12 {
        let grant = [&[16][..], &[b'r'; 15], &[second as u8], &[1, 0, 0, 0]].concat();
        let score = BEGIN + second * 1_000;
        let added = redis::Cmd::zadd("{partner}:permits", grant, score);
        let _: () = added.query(&mut server.connection()).expect("is added");
    }
    at(12, 0);
    // A third of the rate: 16.
    assert_eq!(take_all(&process().await).await, 34);
    let denied = process().await.try_acquire_permit(1).await;
    let wait = denied.expect("an answer").expect_err("4 are left");
    assert_eq!(wait, Duration::from_secs(49));
    at(61, 1);
    assert!(!process().await.takes(1).await);
    at(61, 0);
    assert!(process().await.takes(1).await);
}

/// Who was granted nothing is not seen. So one permit in four times 50 is left to clients of
/// Redisson, at the same time by all processes.
#[tokio::test]
async fn a_client_of_redisson_that_has_nothing_gets_its_first_permit() {
    let server = Redis::start();
    let clock = ManualClock::default();
    let redis = handle(&server.url).await;
    let limiter = || {
        let backend = LimiterBackend::redis_with_clock(&redis, clock.clone());
        RateLimiter::new(backend, "partner").shared_with_redisson()
    };
    for minute in 0..8 {
        clock.set((28_000_000 + minute) * 60_000_000);
        set(&limiter()).await;
        let left = if minute % 4 == 0 { 1 } else { 0 };
        assert_eq!(take_all(&limiter()).await, 50 - left, "{minute}");
        assert_eq!(limiter().free().await, left);
    }
    // A rate so low that a permit would be much of it.
    clock.set(28_000_000 * 60_000_000);
    limiter().sets(overall(19, MINUTE)).await;
    assert_eq!(take_all(&limiter()).await, 19);
}

/// What Redisson used lately is still known, and the server has lost all grants.
#[tokio::test]
async fn grants_that_are_lost_leave_a_share() {
    let server = Redis::start();
    let limiter = process(&server, false).await;
    set(&limiter).await;
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    java.takes(6, &mut random).await;
    assert!(limiter.takes(20).await);
    run(&server, "DEL {partner}:permits {partner}:value");
    // A third and a fiftieth of the rate more than 6 are left: 9.
    assert!(limiter.takes(41).await);
    assert!(!limiter.takes(1).await);
}

/// Neither another process nor a fair caller is taken for Redisson, nor is a loss.
#[tokio::test]
async fn a_fleet_of_this_crate_alone_leaves_nothing() {
    let server = Redis::start();
    let limiters = [process(&server, false).await, process(&server, false).await];
    set(&limiters[0]).await;
    for number in 0..30 {
        let limiter = limiters[number % 2].fair_if(number >= 15);
        assert!(limiter.takes_within(1, millis(10)).await);
    }
    // Ten permits that nobody was granted.
    run(&server, "DECRBY {partner}:value 10");
    let granted = take_all(&limiters[0]).await + take_all(&limiters[1]).await;
    // One in every fourth minute.
    assert!((9..=10).contains(&granted), "{granted}");
}

/// Of a limiter that does not say that it is shared, nothing is left.
#[tokio::test]
async fn only_a_shared_limiter_gives_way() {
    let server = Redis::start();
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    set(&limiter).await;
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    java.takes(6, &mut random).await;
    assert_eq!(take_all(&limiter).await, 44);
}
