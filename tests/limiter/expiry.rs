//! Counts from the future, and keep-alive times that make no sense. What counts is kept for as long
//! as it counts, whatever becomes of the rate: so say `scenes`.

use kit::Redis;

use crate::*;

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
