//! State that is lost in part, or was never ours: never more than the rate, and all of it again
//! soon.

use std::time::Duration;

use kit::limiter_monitor::Monitor;
use kit::random::Random;
use redis::Commands;
use tidegate::limiter::{LimiterBackend, Rate, RateLimiter, RateType};
use tokio::time::{Instant, sleep};

use crate::{assert_comes_to_rest, connect, limiter, on_both};

/// One of the keys is lost now and then, never two at once.
#[tokio::test]
async fn keys_are_lost_one_by_one() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let mut random = Random::new(7);
    for round in 0..6 {
        let (rate, interval) = (1 + random.below(20), 40 + random.below(60));
        let limiter = RateLimiter::new(&redis, format!("evicted {round}"));
        let is_alone = round % 2 == 0;
        let kind = if is_alone {
            RateType::PerClient
        } else {
            RateType::Overall
        };
        let set = limiter
            .try_set_rate(Rate::new(kind, rate, Duration::from_millis(interval)).expect("valid"));
        assert!(set.await.expect("an answer"));
        let client = if is_alone {
            format!(":{}", redis.id())
        } else {
            String::new()
        };
        let key = |what: &str| format!("{{evicted {round}}}:{what}{client}");
        let monitor = Monitor::start(&server.url);
        let until = Instant::now() + Duration::from_millis(10 * interval);
        while Instant::now() < until {
            let permits = 1 + random.below(rate);
            match random.below(3) {
                0 => sleep(Duration::from_micros(random.below(interval * 300))).await,
                _ => {
                    limiter.try_acquire(permits).await.expect("an answer");
                }
            }
            let lost = ["value", "permits", "epoch"][random.below(3) as usize];
            if random.below(4) == 0 {
                let _: () = connection.del(key(lost)).expect("is gone");
                // The other half is looked at before it is lost, too.
                limiter.try_acquire(1).await.expect("an answer");
            }
        }
        let grants = &monitor.grants(&server.url)[&key("permits")];
        let fullest = grants.fullest(interval * 1_000);
        assert!(fullest <= rate, "{fullest} of {rate} in {interval} ms");
        // Back to full use after at most two intervals, and what a busy machine takes.
        let patience = Duration::from_millis(2 * interval + 500);
        assert!(
            limiter
                .try_acquire_for(rate, patience)
                .await
                .expect("an answer")
        );
        limiter.delete().await.expect("an answer");
    }
}

/// A value below zero is healed, and nothing is granted before.
#[tokio::test]
async fn a_value_below_zero_gives_no_reservation_away() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 2, 200).await;
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    let mut connection = server.connection();
    let _: () = connection.set("{partner}:value", -7).expect("is set");
    sleep(Duration::from_millis(220)).await;
    let fair = limiter.clone().fair();
    let soon = Duration::from_millis(100);
    assert!(!fair.try_acquire_for(1, soon).await.expect("an answer"));
    assert!(
        limiter
            .try_acquire_for(2, 30 * soon)
            .await
            .expect("an answer")
    );
}

on_both!(waiting_keeps_a_limiter_alive);

/// With a keep-alive time as short as the interval, callers that wait find a rate.
async fn waiting_keeps_a_limiter_alive(on: LimiterBackend) {
    let limiter = RateLimiter::new(on, "partner");
    let interval = Duration::from_secs(1);
    let rate = Rate::overall(1, interval).expect("valid");
    let rate = rate.with_keep_alive(interval).expect("valid");
    assert!(limiter.try_set_rate(rate).await.expect("an answer"));
    let fair = limiter.clone().fair();
    let waits = (0..3).map(|_| fair.acquire(1));
    for waited in futures_util::future::join_all(waits).await {
        waited.expect("an answer");
    }
    // The last of them was used just now, and counts.
    assert!(limiter.exists().await.expect("an answer"));
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
    sleep(3 * interval).await;
    assert!(!limiter.exists().await.expect("an answer"));
}

/// Values that no one would write heal by themselves, also if they never expire.
#[tokio::test]
async fn nonsense_alone_heals() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5, 50).await;
    for nonsense in [
        "", "abc", "1e999", "-1e999", "-7", "-1e18", "99", "NaN", "-nan", "2.5", "0x3",
    ] {
        let _: () = connection.set("{partner}:value", nonsense).expect("is set");
        let _: () = connection.del("{partner}:permits").expect("is gone");
        let began = Instant::now();
        while !limiter.try_acquire(5).await.expect("an answer") {
            assert!(began.elapsed() < Duration::from_secs(10), "{nonsense:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
    assert_comes_to_rest(&limiter, &server, Duration::from_millis(500)).await;
}

/// What another wrote without an expiry gets one when the limiter does.
#[tokio::test]
async fn whatever_belongs_to_it_expires_with_it() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5, 50).await;
    let _: () = connection.set("{partner}:value", 4).expect("is set");
    let member = [&[16][..], &[7; 16], &1_u32.to_le_bytes()].concat();
    let _: () = connection
        .zadd("{partner}:permits", member, 1)
        .expect("is added");
    assert!(
        limiter
            .expire(Duration::from_millis(30))
            .await
            .expect("an answer")
    );
    sleep(Duration::from_millis(30 + 3 * 50 + 1_100)).await;
    let names: Vec<String> = connection.keys("*").expect("names");
    assert_eq!(names, [""; 0]);
}

/// What a lost key held may be what a client releases: later grants stay in its place, or the
/// interval after the loss would hold more than the rate.
#[tokio::test]
async fn a_release_after_a_loss_frees_no_later_grant() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 10, 3_600_000).await;
    let available = async || limiter.available_permits().await.expect("an answer");
    assert!(limiter.try_acquire(4).await.expect("an answer"));
    let _: () = connection.del("{partner}:permits").expect("is gone");
    assert!(limiter.try_acquire(3).await.expect("an answer"));
    assert!(limiter.try_acquire(3).await.expect("an answer"));

    // The four that were granted first are not there to come back.
    assert_eq!(limiter.release(4).await.expect("an answer"), 0);
    assert_eq!(available().await, 0);
    // Of six, the four before the loss and two later ones.
    assert_eq!(limiter.release(6).await.expect("an answer"), 2);
    assert_eq!(available().await, 2);
    assert_eq!(limiter.release(100).await.expect("an answer"), 4);
    assert_eq!(available().await, 6, "what was lost counts on");

    // Before the loss is noticed, too.
    limiter.delete().await.expect("an answer");
    let limiter = self::limiter(&redis, 10, 3_600_000).await;
    assert!(limiter.try_acquire(4).await.expect("an answer"));
    let _: () = connection.del("{partner}:permits").expect("is gone");
    assert_eq!(limiter.release(4).await.expect("an answer"), 0);
    assert!(limiter.try_acquire(6).await.expect("an answer"));
    assert_eq!(limiter.release(4).await.expect("an answer"), 0);
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
}
