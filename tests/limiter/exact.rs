//! How long somebody waits: until as many permits as they want have left, and no longer.

use crate::*;

const RATE: u64 = 12;
const INTERVAL: u64 = 800;

/// Random grants, and then one who waits: asked once, told when to come back, and granted when it
/// does.
#[tokio::test]
async fn who_waits_asks_twice_and_is_served_when_it_can_be() {
    let mut random = Random::new(3);
    for round in 0..3 {
        let server = kit::Redis::start();
        let redis = handle(&server.url).await;
        let limiter = limiter(&redis, RATE, INTERVAL).await;
        let monitor = Monitor::start(&server.url);
        let stopwatch = server.stopwatch();
        let (mut left, mut grants) = (RATE, 0);
        while left > 0 {
            let permits = 1 + random.below(left.min(4));
            assert!(limiter.takes(permits).await);
            (left, grants) = (left - permits, grants + 1);
            sleep(std::time::Duration::from_micros(random.below(10_000))).await;
        }
        let wanted = 1 + random.below(RATE);
        // The first of them came less than 300 ms ago, so in vain.
        let (short, in_vain) = (millis(INTERVAL / 2), server.stopwatch());
        assert!(!limiter.takes_within(RATE, short).await);
        let fair = limiter.clone().fair();
        assert!(!fair.takes_within(RATE, short).await);
        let waited = in_vain.waited();
        assert!(waited < short / 2, "{waited:?}");

        // A fair caller that was refused leaves its place.
        sleep(millis(50)).await;
        let before = server.script_calls();
        limiter.fair_if(round % 3 == 0).waits(wanted).await;
        // Nobody sleeps for longer than a second.
        let asked = server.script_calls() - before;
        assert!((2..=3).contains(&asked), "{asked} calls for {wanted}");

        let busy = stopwatch.busy().as_micros() as u64;
        let all = monitor.grants_of(&server.url, "partner").all;
        assert_eq!(all.len(), grants + 1);
        let mut leaving = 0;
        let free = all.iter().find(|grant| {
            leaving += grant.permits;
            leaving >= wanted
        });
        let free = free.expect("all of them are enough").stamp + INTERVAL * 1_000;
        let late = all[grants].stamp - free;
        // Up to 5 ms so that processes do not come at the same time, and what a busy machine adds.
        assert!(late <= 400_000 + busy, "{late} us late");
    }
}

/// A fair caller stands behind those that came before, also if it wants less.
#[tokio::test]
async fn a_small_fair_caller_stays_behind_a_large_one() {
    let server = kit::Redis::start();
    let limiter = limiter(&handle(&server.url).await, 2, 60_000).await;
    assert!(limiter.takes(2).await);
    let fair = limiter.clone().fair();
    let large = waiting(&fair, 2);
    sleep(millis(50)).await;
    let small = waiting(&fair, 1);
    sleep(millis(50)).await;
    assert_eq!(limiter.gives_back(1).await, 1);
    sleep(millis(100)).await;
    assert!(!small.is_finished(), "one is free, and kept for the first");
    assert_eq!(limiter.gives_back(1).await, 1);
    large.await.expect("no panic");
    assert_eq!(limiter.gives_back(2).await, 2);
    small.await.expect("no panic");
}
