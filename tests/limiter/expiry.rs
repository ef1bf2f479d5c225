//! What counts is kept for as long as it counts, whatever becomes of the rate.

use std::time::Duration;

use redis::Commands;
use tidegate::limiter::{LimiterBackend, LimiterErrorKind, MemoryLimiters, Rate, RateLimiter};
use tokio::time::sleep;

use crate::{connect, limiter, on_both, replace_rate};

const SECOND: Duration = Duration::from_secs(1);

fn lives(connection: &mut redis::Connection, names: &[&str]) -> Vec<i64> {
    let life = |name: &&str| connection.pttl(*name).expect("a time to live");
    names.iter().map(life).collect()
}

on_both!(
    a_rate_that_is_forgotten_refills_nothing,
    a_longer_rate_counts_nothing_that_had_expired,
    a_kept_alive_rate_leaves_no_counts,
);

/// A rate that is forgotten and set anew finds what was granted under it.
async fn a_rate_that_is_forgotten_refills_nothing(on: LimiterBackend) {
    let limiter = limiter(on, 3, 60_000).await;
    assert!(limiter.try_acquire(3).await.expect("an answer"));
    for after in [SECOND, 60 * SECOND] {
        assert!(limiter.expire(after).await.expect("an answer"));
    }
    sleep(SECOND * 6 / 5).await;
    assert!(
        !limiter.try_acquire(1).await.expect("an answer"),
        "a longer life"
    );
    forget(&limiter).await;
    let unknown = limiter.try_acquire(1).await.map_err(|error| error.kind());
    assert_eq!(unknown, Err(LimiterErrorKind::UnknownLimiter));
    let set = limiter
        .try_set_rate(Rate::overall(3, 60 * SECOND).expect("valid"))
        .await;
    assert!(set.expect("an answer"));
    assert!(
        !limiter.try_acquire(1).await.expect("an answer"),
        "set anew"
    );
}

/// Lets the rate expire.
async fn forget(limiter: &RateLimiter) {
    let after = Duration::from_millis(30);
    assert!(limiter.expire(after).await.expect("an answer"));
    while limiter.exists().await.expect("an answer") {
        sleep(Duration::from_millis(5)).await;
    }
}

async fn a_longer_rate_counts_nothing_that_had_expired(on: LimiterBackend) {
    let limiter = limiter(on, 10, 200).await;
    assert!(limiter.try_acquire(10).await.expect("an answer"));
    sleep(Duration::from_millis(220)).await;
    forget(&limiter).await;
    let longer = Rate::overall(10, 10 * SECOND).expect("valid");
    assert!(limiter.try_set_rate(longer).await.expect("an answer"));
    assert_eq!(limiter.available_permits().await.expect("an answer"), 10);
    assert!(limiter.try_acquire(10).await.expect("an answer"));
}

async fn a_kept_alive_rate_leaves_no_counts(on: LimiterBackend) {
    let limiter = RateLimiter::new(on, "partner");
    let interval = Duration::from_millis(100);
    let rate = Rate::overall(10, interval).expect("valid");
    let rate = rate.with_keep_alive(interval).expect("valid");
    assert!(limiter.try_set_rate(rate).await.expect("an answer"));
    assert!(limiter.try_acquire(10).await.expect("an answer"));
    while limiter.exists().await.expect("an answer") {
        sleep(Duration::from_millis(5)).await;
    }
    let longer = Rate::overall(10, 60 * SECOND).expect("valid");
    assert!(limiter.try_set_rate(longer).await.expect("an answer"));
    assert!(limiter.try_acquire(10).await.expect("an answer"));
}

/// Two clients with a budget each, on Redis and in memory.
async fn two_clients(server: &kit::Redis) -> [[RateLimiter; 2]; 2] {
    let clients = [connect(server).await, connect(server).await];
    let on_redis = clients.map(|redis| RateLimiter::new(redis, "partner"));
    let memory = MemoryLimiters::default();
    let clients = [memory.another_client(), memory];
    let in_memory = clients.map(|client| RateLimiter::new(client, "partner"));
    [on_redis, in_memory]
}

/// Another client sets a longer interval, or deletes the limiter.
#[tokio::test]
async fn what_had_expired_counts_for_no_client_again() {
    let server = kit::Redis::start();
    for [one, other] in two_clients(&server).await {
        let rate = Rate::per_client(10, Duration::from_millis(200)).expect("valid");
        let longer = Rate::per_client(10, 60 * SECOND).expect("valid");
        assert!(one.try_set_rate(rate).await.expect("an answer"));
        for limiter in [&one, &other] {
            assert!(limiter.try_acquire(10).await.expect("an answer"));
        }
        sleep(Duration::from_millis(220)).await;
        assert!(replace_rate(&one, longer).await.expect("an answer"));
        for limiter in [&one, &other] {
            let available = limiter.available_permits().await;
            assert_eq!(available.expect("an answer"), 10);
            assert!(limiter.try_acquire(10).await.expect("an answer"));
            assert!(!limiter.try_acquire(1).await.expect("an answer"));
        }
        forget(&one).await;
        assert!(one.try_set_rate(longer).await.expect("an answer"));
        for limiter in [&one, &other] {
            assert!(!limiter.try_acquire(1).await.expect("an answer"), "forgot");
        }
        assert!(one.delete().await.expect("an answer"));
        assert!(one.try_set_rate(longer).await.expect("an answer"));
        for limiter in [&one, &other] {
            assert!(limiter.try_acquire(10).await.expect("an answer"), "deleted");
        }
    }
}

/// A new rate lives as long as it says, whatever the old one's expiry was.
#[tokio::test]
async fn a_new_rate_has_an_expiry_of_its_own() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 3, 1_000).await;
    assert!(limiter.expire(SECOND).await.expect("an answer"));
    limiter
        .set_rate(Rate::overall(4, SECOND).expect("valid"))
        .await
        .expect("is set");
    assert_eq!(lives(&mut server.connection(), &["partner"]), [-1]);
}

/// After the host's clock went back, however much was granted.
#[tokio::test]
async fn many_grants_from_the_future_count_from_now() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5_000, 400).await;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("a time");
    let mut pipeline = redis::pipe();
    pipeline.set("{partner}:value", 0);
    for at in 0..5_000_u64 {
        let identity = [at.to_be_bytes(), [7; 8]].concat();
        let member = [&[16][..], &identity, &1_u32.to_le_bytes()].concat();
        pipeline.zadd(
            "{partner}:permits",
            member,
            (seconds + 3_600) * 1_000 + at / 20,
        );
    }
    pipeline.exec(&mut connection).expect("is written");
    let soon = 20 * SECOND;
    assert!(
        limiter
            .clone()
            .fair()
            .try_acquire_for(1, soon)
            .await
            .expect("an answer")
    );
    assert!(
        limiter
            .try_acquire_for(4_000, soon)
            .await
            .expect("an answer")
    );
}

#[tokio::test]
async fn a_keep_alive_time_that_makes_no_sense_is_told() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 3, 1_000).await;
    for nonsense in ["1e300", "inf", "-5", "1.5", "9223372036854775807"] {
        let _: () = connection
            .hset("partner", "keepAliveTime", nonsense)
            .expect("is set");
        let malformed = limiter.try_acquire(1).await.map_err(|error| error.kind());
        assert_eq!(malformed, Err(LimiterErrorKind::Malformed), "{nonsense}");
        let written: bool = connection.exists("{partner}:permits").expect("an answer");
        assert!(!written, "{nonsense}");
    }
}

#[test]
fn an_interval_is_rounded_up() {
    let interval = |duration| Rate::overall(1, duration).expect("valid").interval();
    assert_eq!(interval(Duration::from_nanos(1)), Duration::from_millis(1));
    assert_eq!(interval(Duration::new(1, 1)), Duration::from_millis(1_001));
}
