//! How long somebody waits: until as many permits as they want have left, and no longer.

use std::time::Duration;

use redis::cmd;
use tokio::time::{Instant, sleep};

use crate::{connect, limiter};
use kit::limiter_monitor::Monitor;
use kit::random::Random;

const RATE: u64 = 12;
const INTERVAL: u64 = 1_500;

fn calls(connection: &mut redis::Connection) -> u64 {
    let stats: redis::InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .expect("stats");
    let stat = stats.get::<String>("cmdstat_evalsha").expect("was called");
    let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="));
    calls.expect("a field").parse().expect("a number")
}

/// Random grants, and then one who waits: asked once, told when to come back, and granted when it
/// does.
#[tokio::test]
async fn who_waits_asks_twice_and_is_served_when_it_can_be() {
    let mut random = Random::new(3);
    for round in 0..3 {
        let server = kit::Redis::start();
        let redis = connect(&server).await;
        let mut connection = server.connection();
        let limiter = limiter(&redis, RATE, INTERVAL).await;
        let monitor = Monitor::start(&server.url);
        let (mut left, mut grants) = (RATE, 0);
        while left > 0 {
            let permits = 1 + random.below(left.min(4));
            assert!(limiter.try_acquire(permits).await.expect("an answer"));
            (left, grants) = (left - permits, grants + 1);
            sleep(Duration::from_micros(random.below(20_000))).await;
        }
        let wanted = 1 + random.below(RATE);
        let began = Instant::now();
        // The first of them came less than 500 ms ago, so in vain.
        let short = Duration::from_millis(INTERVAL / 2);
        assert!(
            !limiter
                .try_acquire_for(RATE, short)
                .await
                .expect("an answer")
        );
        let fair = limiter.clone().fair();
        assert!(!fair.try_acquire_for(RATE, short).await.expect("an answer"));
        assert!(began.elapsed() < short / 2, "{:?}", began.elapsed());

        // A fair caller that was refused leaves its place.
        sleep(Duration::from_millis(50)).await;
        let before = calls(&mut connection);
        let is_fair = round % 3 == 0;
        match is_fair {
            true => fair.acquire(wanted).await.expect("an answer"),
            false => limiter.acquire(wanted).await.expect("an answer"),
        }
        // Nobody sleeps for longer than a second.
        let asked = calls(&mut connection) - before;
        assert!((2..=3).contains(&asked), "{asked} calls for {wanted}");

        let all = &monitor.grants(&server.url)["{partner}:permits"].all;
        assert_eq!(all.len(), grants + 1);
        let mut leaving = 0;
        let free = all.iter().find(|grant| {
            leaving += grant.permits;
            leaving >= wanted
        });
        let free = free.expect("all of them are enough").stamp + INTERVAL * 1_000;
        let late = all[grants].stamp - free;
        // Up to 5 ms so that processes do not come at the same time, and what a busy machine adds.
        assert!(late <= 400_000, "{late} us late");
    }
}

/// A fair caller stands behind those that came before, also if it wants less.
#[tokio::test]
async fn a_small_fair_caller_stays_behind_a_large_one() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 2, 60_000).await;
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    let fair = limiter.clone().fair();
    let large = tokio::spawn(async move { fair.acquire(2).await });
    sleep(Duration::from_millis(50)).await;
    let fair = limiter.clone().fair();
    let small = tokio::spawn(async move { fair.acquire(1).await });
    sleep(Duration::from_millis(50)).await;
    assert_eq!(limiter.release(1).await.expect("an answer"), 1);
    sleep(Duration::from_millis(100)).await;
    assert!(!small.is_finished(), "one is free, and kept for the first");
    assert_eq!(limiter.release(1).await.expect("an answer"), 1);
    large.await.expect("no panic").expect("an answer");
    assert_eq!(limiter.release(2).await.expect("an answer"), 2);
    small.await.expect("no panic").expect("an answer");
}
