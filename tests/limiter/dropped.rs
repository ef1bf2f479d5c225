//! Futures that are dropped, at whichever point: in the end nothing is kept, and nothing was above
//! the rate.

use crate::*;

const RATE: u64 = 14;
/// Longer than a busy machine takes to give something back: what has left by itself is not given
/// back any more.
const INTERVAL: u64 = 400;

/// One way to ask; true if permits were granted.
async fn ask(limiter: RateLimiter, way: u64, permits: u64) -> bool {
    let some = millis(INTERVAL);
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
    let mut rounds = Vec::new();
    for round in 0..5 {
        let (granted, kept) = drop_everywhere(round).await;
        // On a busy machine something leaves by itself before it is given back.
        if granted == kept {
            return;
        }
        rounds.push((granted, kept));
    }
    panic!("what was granted to nobody was not given back: {rounds:?}");
}

/// What was granted and not given back, and what callers have kept.
async fn drop_everywhere(round: u64) -> (u64, u64) {
    let server = kit::Redis::start();
    let limiter = limiter(&handle(&server.url).await, RATE, INTERVAL).await;
    let monitor = Monitor::start(&server.url);
    let tasks = (0..4).map(|seed| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut random = Random::new(4 * round + seed + 1);
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
    });
    let kept = futures_util::future::try_join_all(tasks).await;
    let kept: u64 = kept.expect("no panic").into_iter().sum();
    comes_to_rest(&limiter, &server).await;
    let granted = monitor.check(&server.url, "partner", RATE, millis(INTERVAL));
    // Nobody stands in the line any more.
    assert!(limiter.takes_within(RATE, PATIENT).await);
    (granted, kept)
}

/// Also that of somebody in the middle.
#[tokio::test(start_paused = true)]
async fn slots_in_the_middle_that_were_given_up_are_used() {
    let limiter = limiter(crate::in_memory(), 1, 100).await.fair();
    let until = Instant::now() + Duration::from_secs(100);
    let tasks = (0..10).map(|seed| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut random = Random::new(seed + 1);
            let mut granted = 0;
            while Instant::now() < until {
                let patience = match random.below(3) {
                    0 => millis(random.below(900)),
                    _ => Duration::from_secs(60),
                };
                granted += u64::from(timeout(patience, limiter.acquire(1)).await.is_ok());
            }
            granted
        })
    });
    let granted = futures_util::future::try_join_all(tasks).await;
    let granted: u64 = granted.expect("no panic").into_iter().sum();
    assert!(granted >= 950, "{granted} of 1000");
}

/// A caller that leaves while it is asked for: its call may be overtaken by what it gives back. When
/// the process has flushed, nothing is granted that no caller has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_flushed_is_not_granted_afterwards() {
    const PERMITS: u64 = 1_000_000;
    let server = kit::Redis::start();
    let redis = handle(&server.url).await;
    let limiter = limiter(&redis, PERMITS, 3_600_000).await;
    let mut granted = 0;
    for round in 0..1_000 {
        let mut leaves = Box::pin(limiter.acquire(1));
        // Another thread may have had the answer already.
        granted += u64::from(futures_util::poll!(&mut leaves).is_ready());
        drop(leaves);
        assert!(redis.flush(PATIENT).await, "round {round}");
        let left: Option<u64> = server.run("GET {partner}:value");
        let expected = PERMITS - granted;
        assert_eq!(left.unwrap_or(PERMITS), expected, "round {round}");
    }
}
