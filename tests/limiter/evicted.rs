//! State that is lost in part, or was never ours: never more than the rate, and all of it again
//! soon.

use kit::Redis;
use tidegate::limiter::RateType;

use crate::*;

/// One of the keys is lost now and then, never two at once.
#[tokio::test]
async fn keys_are_lost_one_by_one() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let mut random = Random::new(7);
    for round in 0..6 {
        let (rate, interval) = (1 + random.below(20), 40 + random.below(60));
        let limiter = RateLimiter::new(&redis, format!("evicted{round}"));
        let (kind, client) = match round % 2 {
            0 => (RateType::PerClient, format!(":{}", redis.id())),
            _ => (RateType::Overall, String::new()),
        };
        let set = Rate::new(kind, rate, millis(interval)).expect("valid");
        assert!(limiter.sets_first(set).await);
        let key = |what: &str| format!("{{evicted{round}}}:{what}{client}");
        let monitor = Monitor::start(&server.url);
        let until = Instant::now() + millis(5 * interval);
        while Instant::now() < until {
            let permits = 1 + random.below(rate);
            match random.below(3) {
                0 => sleep(Duration::from_micros(random.below(interval * 300))).await,
                _ => drop(limiter.takes(permits).await),
            }
            let lost = ["value", "permits", "epoch"][random.below(3) as usize];
            if random.below(4) == 0 {
                run(&server, &format!("DEL {}", key(lost)));
                // The other half is looked at before it is lost, too.
                limiter.takes(1).await;
            }
        }
        monitor.grants(&server.url)[&key("permits")].check(rate, millis(interval));
        // Back to full use after at most two intervals, and what a busy machine takes.
        let stopwatch = server.stopwatch();
        assert!(limiter.takes_within(rate, PATIENT).await);
        let waited = stopwatch.waited();
        assert!(waited < millis(2 * interval + 500), "{waited:?}");
        limiter.delete().await.expect("an answer");
    }
}

on_both!(waiting_keeps_a_limiter_alive);

/// With a keep-alive time as short as the interval, callers that wait find a rate.
async fn waiting_keeps_a_limiter_alive(on: &Home) {
    let limiter = RateLimiter::new(on, "partner");
    let interval = millis(500);
    let rate = overall(1, interval).with_keep_alive(interval);
    assert!(limiter.sets_first(rate.expect("valid")).await);
    let fair = limiter.clone().fair();
    let waits: Vec<_> = (0..3).map(|_| waiting(&fair, 1)).collect();
    for waited in waits {
        waited.await.expect("no panic");
    }
    // The last of them was used just now, and counts.
    assert!(limiter.is_there().await);
    assert!(!limiter.takes(1).await);
    eventually("it ends", async || !limiter.is_there().await).await;
}

/// Values that no one would write heal by themselves, also if they never expire.
#[tokio::test]
async fn nonsense_alone_heals() {
    let server = Redis::start();
    let mut connection = server.connection();
    let limiter = limiter(&handle(&server.url).await, 5, 50).await;
    for nonsense in [
        "", "abc", "1e999", "-1e999", "-7", "-1e18", "99", "NaN", "-nan", "2.5", "0x3",
    ] {
        let _: () = connection.set("{partner}:value", nonsense).expect("is set");
        run(&server, "DEL {partner}:permits");
        eventually(nonsense, async || limiter.takes(5).await).await;
    }
    comes_to_rest(&limiter, &server).await;
}

/// What another wrote without an expiry gets one when the limiter does.
#[tokio::test]
async fn whatever_belongs_to_it_expires_with_it() {
    let server = Redis::start();
    let mut connection = server.connection();
    let limiter = limiter(&handle(&server.url).await, 5, 50).await;
    run(&server, "SET {partner}:value 4");
    let member = [&[16][..], &[7; 16], &1_u32.to_le_bytes()].concat();
    let added = connection.zadd("{partner}:permits", member, 1);
    let _: () = added.expect("is added");
    assert!(limiter.expire(millis(30)).await.expect("an answer"));
    let stopwatch = server.stopwatch();
    eventually("all expire", async || server.names().is_empty()).await;
    let waited = stopwatch.waited();
    assert!(waited < millis(30 + 3 * 50) + 2 * SECOND, "{waited:?}");
}
