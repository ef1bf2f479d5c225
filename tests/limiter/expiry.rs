//! What counts is kept for as long as it counts, whatever becomes of the rate.

use std::time::Duration;

use redis::Commands;
use tidegate::limiter::{LimiterErrorKind, Rate, RateType};
use tokio::time::sleep;

use crate::{connect, limiter};

const SECOND: Duration = Duration::from_secs(1);

fn lives(connection: &mut redis::Connection, names: &[&str]) -> Vec<i64> {
    let life = |name: &&str| connection.pttl(*name).expect("a time to live");
    names.iter().map(life).collect()
}

/// A rate that is forgotten and set anew finds what was granted under it.
#[tokio::test]
async fn a_rate_that_is_forgotten_refills_nothing() {
    let server = test_support::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 3, 60_000).await;
    assert!(limiter.try_acquire(3).await.expect("an answer"));
    for after in [Duration::from_millis(30), 60 * SECOND] {
        assert!(limiter.expire(after).await.expect("an answer"));
    }
    sleep(Duration::from_millis(60)).await;
    assert!(
        !limiter.try_acquire(1).await.expect("an answer"),
        "a longer life"
    );
    assert!(
        limiter
            .expire(Duration::from_millis(30))
            .await
            .expect("an answer")
    );
    sleep(Duration::from_millis(60)).await;
    let unknown = limiter.try_acquire(1).await.map_err(|error| error.kind());
    assert_eq!(unknown, Err(LimiterErrorKind::UnknownLimiter));
    let set = limiter
        .try_set_rate(RateType::Overall, 3, 60 * SECOND)
        .await;
    assert!(set.expect("an answer"));
    assert!(
        !limiter.try_acquire(1).await.expect("an answer"),
        "set anew"
    );
}

/// A new rate lives as long as it says, whatever the old one's expiry was.
#[tokio::test]
async fn a_new_rate_has_an_expiry_of_its_own() {
    let server = test_support::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 3, 1_000).await;
    assert!(limiter.expire(SECOND).await.expect("an answer"));
    limiter
        .set_rate(RateType::Overall, 4, SECOND)
        .await
        .expect("is set");
    assert_eq!(lives(&mut server.connection(), &["partner"]), [-1]);
}

/// After the host's clock went back, however much was granted.
#[tokio::test]
async fn many_grants_from_the_future_count_from_now() {
    let server = test_support::Redis::start();
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
    let server = test_support::Redis::start();
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
