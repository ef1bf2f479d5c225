//! Futures that are dropped, at whichever point: in the end nothing is kept, and nothing was above
//! the rate.

use std::time::Duration;

use kit::limiter_monitor::Monitor;
use kit::random::Random;
use tidegate::limiter::RateLimiter;
use tokio::time::{Instant, sleep};

use crate::{assert_comes_to_rest, connect, limiter};

const RATE: u64 = 7;
/// Longer than a busy machine takes to give something back: what has left by itself is not given
/// back any more.
const INTERVAL: u64 = 400;

/// One way to ask; true if permits were granted.
async fn ask(limiter: RateLimiter, way: u64, permits: u64) -> bool {
    let some = Duration::from_millis(INTERVAL);
    let answer = match way {
        0 => limiter.try_acquire(permits).await,
        1 => limiter.try_acquire_for(permits, some).await,
        2 => limiter.acquire(permits).await.map(|()| true),
        3 => limiter.fair().acquire(permits).await.map(|()| true),
        _ => limiter.fair().try_acquire_for(permits, some).await,
    };
    answer.expect("an answer")
}

/// Polls so often, and then drops; how many permits were granted.
async fn drop_after(polls: u64, limiter: RateLimiter, way: u64, permits: u64, pause: u64) -> u64 {
    let mut asked = Box::pin(ask(limiter, way, permits));
    for _ in 0..polls {
        if let std::task::Poll::Ready(granted) = futures_util::poll!(asked.as_mut()) {
            return if granted { permits } else { 0 };
        }
        match pause {
            0 => tokio::task::yield_now().await,
            pause => sleep(Duration::from_micros(pause)).await,
        }
    }
    0
}

#[tokio::test]
async fn whatever_is_dropped_leaves_nothing() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, RATE, INTERVAL).await;
    let monitor = Monitor::start(&server.url);
    let tasks: Vec<_> = (0..4)
        .map(|seed| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut random = Random::new(seed + 1);
                let mut kept = 0;
                for polls in 0..=20 {
                    for way in 0..5 {
                        let permits = 1 + random.below(4);
                        let pause = random.below(3) * random.below(2_000);
                        kept += drop_after(polls, limiter.clone(), way, permits, pause).await;
                    }
                }
                kept
            })
        })
        .collect();
    let mut kept = 0;
    for task in tasks {
        kept += task.await.expect("no panic");
    }
    let within = Duration::from_millis(INTERVAL + 600);
    assert_comes_to_rest(&limiter, &server, within).await;
    let grants = &monitor.grants(&server.url)["{partner}:permits"];
    assert!(grants.fullest(INTERVAL * 1_000) <= RATE);
    assert_eq!(
        grants.kept(),
        kept,
        "what was granted to nobody was given back"
    );
    // Nobody stands in the line any more.
    assert!(
        limiter
            .try_acquire_for(RATE, within)
            .await
            .expect("an answer")
    );
}

/// The slot of the last one who waits is the next one's.
#[tokio::test]
async fn a_slot_that_was_given_up_is_used() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 1, 2_000).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let fair = limiter.clone().fair();
    let soon = Duration::from_millis(2_100);
    for _ in 0..20 {
        let given_up = tokio::time::timeout(Duration::from_millis(5), fair.acquire(1)).await;
        assert!(given_up.is_err());
        // It is told in the background.
        sleep(Duration::from_millis(2)).await;
    }
    sleep(Duration::from_millis(20)).await;
    assert!(fair.try_acquire_for(1, soon).await.expect("an answer"));
}

/// Also that of somebody in the middle.
#[tokio::test(start_paused = true)]
async fn slots_in_the_middle_that_were_given_up_are_used() {
    let limiter = limiter(crate::in_memory(), 1, 100).await.fair();
    let until = Instant::now() + Duration::from_secs(100);
    let tasks: Vec<_> = (0..10)
        .map(|seed| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut random = Random::new(seed + 1);
                let mut granted = 0;
                while Instant::now() < until {
                    let patience = match random.below(3) {
                        0 => Duration::from_millis(random.below(900)),
                        _ => Duration::from_secs(60),
                    };
                    let waited = tokio::time::timeout(patience, limiter.acquire(1)).await;
                    granted += u64::from(waited.is_ok());
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += task.await.expect("no panic");
    }
    assert!(granted >= 950, "{granted} of 1000");
}
