//! A client as the Java one, on the same limiter.

use kit::redisson::Java;
use tokio::time::Instant;

use crate::*;

/// Both ask at random, waiting as they are told to: together never more than the rate, and neither
/// of them starves.
#[tokio::test]
async fn together_never_more_than_the_rate() {
    for (rate, interval) in [(1, 60), (5, 50), (10, 200), (50, 300)] {
        let server = kit::Redis::start();
        let redis = handle(&server.url).await;
        let limiter = limiter(&redis, "partner", rate, millis(interval)).await;
        let monitor = Monitor::start(&server.url);
        let until = Instant::now() + 2 * SECOND;
        // A reservation comes before all that ask later: only without any does everybody have a
        // chance.
        let fair_until = Instant::now() + SECOND;
        let most = u64::min(rate, 4);
        let ours = (0..3).map(|seed| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut random = Random::new(seed + 10);
                let mut granted = 0;
                while Instant::now() < until {
                    let permits = 1 + random.below(most);
                    let short = millis(interval + random.below(interval));
                    let asked = match random.below(4) {
                        0 | 1 => limiter.try_acquire(permits).await,
                        2 if Instant::now() < fair_until => {
                            let fair = limiter.clone().fair();
                            fair.try_acquire_for(permits, short).await
                        }
                        _ => limiter.try_acquire_for(permits, short).await,
                    };
                    granted += u64::from(asked.expect("an answer"));
                    sleep(millis(random.below(interval / 2))).await;
                }
                granted
            })
        });
        let ours: Vec<_> = ours.collect();
        let mut theirs = Vec::new();
        for seed in 0..3 {
            let mut java = Java::connect(&server).await;
            theirs.push(tokio::spawn(async move {
                let mut random = Random::new(seed + 20);
                let mut granted = 0;
                while Instant::now() < until {
                    let permits = 1 + random.below(most);
                    match java.acquire(permits, &mut random).await {
                        Ok(()) => {
                            granted += 1;
                            sleep(millis(random.below(interval / 2))).await;
                        }
                        Err(wait) => sleep(millis(wait)).await,
                    }
                }
                granted
            }));
        }
        let (mut by_us, mut by_them) = (0, 0);
        for task in ours {
            by_us += task.await.expect("no panic");
        }
        for task in theirs {
            by_them += task.await.expect("no panic");
        }
        let grants = monitor.grants_of(&server.url, "partner");
        grants.assert_stamps(false);
        let fullest = grants.fullest(interval * 1_000);
        println!("{rate}/{interval}: {by_us} and {by_them}, at most {fullest}");
        assert!(fullest <= rate, "{fullest} of {rate} in {interval} ms");
        // Of a single permit, who asks first gets it, and they come back 3 ms later than told.
        let is_shared = by_them > 0 || rate == 1;
        assert!(by_us > 0 && is_shared, "{by_us} and {by_them}");
    }
}

/// A value that is too low for what is granted, as such a loss leaves it, is mended by us when all
/// has left.
#[tokio::test]
async fn a_value_that_is_too_low_is_mended() {
    let server = kit::Redis::start();
    let redis = handle(&server.url).await;
    let limiter = limiter(&redis, "partner", 10, millis(500)).await;
    assert!(limiter.takes(1).await);
    run(&server, "SET {partner}:value 0");
    // Who asks for one at a time, now and then, is never denied, and still it is seen.
    for _ in 0..4 {
        sleep(millis(600)).await;
        assert!(limiter.takes(1).await);
    }
    assert_eq!(limiter.free().await, 9);
}
