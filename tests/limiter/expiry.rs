//! What counts is kept for as long as it counts, whatever becomes of the rate.

use kit::Redis;

use crate::*;

on_both!(
    a_rate_that_is_forgotten_refills_nothing,
    a_longer_rate_counts_nothing_that_had_expired,
    a_kept_alive_rate_leaves_no_counts,
);

/// A rate that is forgotten and set anew finds what was granted under it.
async fn a_rate_that_is_forgotten_refills_nothing(on: &Home) {
    let limiter = limiter(on, 3, 3_600_000).await;
    assert!(limiter.takes(3).await);
    for after in [millis(500), HOUR] {
        assert!(limiter.expire(after).await.expect("an answer"));
    }
    sleep(millis(600)).await;
    assert!(!limiter.takes(1).await, "a longer life");
    forget(&limiter).await;
    let unknown = kind(limiter.try_acquire(1).await);
    assert_eq!(unknown, Some(LimiterErrorKind::UnknownLimiter));
    assert!(limiter.sets_first(overall(3, HOUR)).await);
    assert!(!limiter.takes(1).await, "set anew");
}

/// Lets the rate expire.
async fn forget(limiter: &RateLimiter) {
    assert!(limiter.expire(millis(30)).await.expect("an answer"));
    eventually("it expires", async || !limiter.is_there().await).await;
}

async fn a_longer_rate_counts_nothing_that_had_expired(on: &Home) {
    let limiter = limiter(on, 10, 200).await;
    assert!(limiter.takes(10).await);
    sleep(millis(220)).await;
    forget(&limiter).await;
    assert!(limiter.sets_first(overall(10, MINUTE)).await);
    assert_eq!(limiter.free().await, 10);
    assert!(limiter.takes(10).await);
}

async fn a_kept_alive_rate_leaves_no_counts(on: &Home) {
    let limiter = RateLimiter::new(on, "partner");
    let rate = overall(10, millis(100)).with_keep_alive(millis(100));
    assert!(limiter.sets_first(rate.expect("valid")).await);
    assert!(limiter.takes(10).await);
    eventually("it ends", async || !limiter.is_there().await).await;
    assert!(limiter.sets_first(overall(10, MINUTE)).await);
    assert!(limiter.takes(10).await);
}

/// Two clients with a budget each, on Redis and in memory.
async fn two_clients(server: &Redis) -> [[RateLimiter; 2]; 2] {
    let clients = [handle(&server.url).await, handle(&server.url).await];
    let on_redis = clients.map(|redis| RateLimiter::new(redis, "partner"));
    let memory = MemoryLimiters::default();
    let clients = [memory.another_client(), memory];
    let in_memory = clients.map(|client| RateLimiter::new(client, "partner"));
    [on_redis, in_memory]
}

/// Another client sets a longer interval, or deletes the limiter.
#[tokio::test]
async fn what_had_expired_counts_for_no_client_again() {
    let server = Redis::start();
    for [one, other] in two_clients(&server).await {
        let longer = per_client(10, HOUR);
        assert!(one.sets_first(per_client(10, millis(200))).await);
        assert!(one.takes(10).await && other.takes(10).await);
        sleep(millis(220)).await;
        one.replaces(longer).await;
        for limiter in [&one, &other] {
            assert_eq!(limiter.free().await, 10);
            assert!(limiter.takes(10).await);
            assert!(!limiter.takes(1).await);
        }
        forget(&one).await;
        assert!(one.sets_first(longer).await);
        assert!(!one.takes(1).await && !other.takes(1).await, "forgot");
        assert!(one.delete().await.expect("an answer"));
        assert!(one.sets_first(longer).await);
        assert!(one.takes(10).await && other.takes(10).await, "deleted");
    }
}

/// A new rate lives as long as it says, whatever the old one's expiry was.
#[tokio::test]
async fn a_new_rate_has_an_expiry_of_its_own() {
    let server = Redis::start();
    let limiter = limiter(&handle(&server.url).await, 3, 1_000).await;
    assert!(limiter.expire(PATIENT).await.expect("an answer"));
    limiter.sets(overall(4, SECOND)).await;
    assert_eq!(server.life("partner"), -1);
}

/// After the host's clock went back, however much was granted.
#[tokio::test]
async fn many_grants_from_the_future_count_from_now() {
    let server = Redis::start();
    let limiter = limiter(&handle(&server.url).await, 5_000, 400).await;
    let (seconds, _): (u64, u64) = server.run("TIME");
    let mut pipeline = redis::pipe();
    pipeline.set("{partner}:value", 0);
    for at in 0..5_000_u64 {
        let identity = [at.to_be_bytes(), [7; 8]].concat();
        let member = [&[16][..], &identity, &1_u32.to_le_bytes()].concat();
        let score = (seconds + 3_600) * 1_000 + at / 20;
        pipeline.zadd("{partner}:permits", member, score);
    }
    pipeline.exec(&mut server.connection()).expect("is written");
    assert!(limiter.clone().fair().takes_within(1, PATIENT).await);
    assert!(limiter.takes_within(4_000, PATIENT).await);
}

#[tokio::test]
async fn a_keep_alive_time_that_makes_no_sense_is_told() {
    let server = Redis::start();
    let mut connection = server.connection();
    let limiter = limiter(&handle(&server.url).await, 3, 1_000).await;
    for nonsense in ["1e300", "inf", "-5", "1.5", "9223372036854775807"] {
        let set = connection.hset("partner", "keepAliveTime", nonsense);
        let _: () = set.expect("is set");
        let malformed = kind(limiter.try_acquire(1).await);
        assert_eq!(malformed, Some(LimiterErrorKind::Malformed), "{nonsense}");
        assert_eq!(server.life("{partner}:permits"), -2, "{nonsense}");
    }
}

#[test]
fn an_interval_is_rounded_up() {
    let interval = |duration| overall(1, duration).interval();
    assert_eq!(interval(Duration::from_nanos(1)), millis(1));
    assert_eq!(interval(Duration::new(1, 1)), millis(1_001));
}
