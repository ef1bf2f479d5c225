//! Waiting: in line, fair, in vain, and given up.

use std::time::Duration;

use futures_util::future::{join_all, select};
use tidegate::limiter::{LimiterBackend, MemoryLimiters, Rate, RateLimiter};
use tokio::time::{Instant, sleep};

use crate::{limiter, on_both};

on_both!(
    permits_come_when_they_are_announced,
    a_wait_in_vain_ends_at_once,
    a_time_out_of_zero_tries_once,
    fair_waiters_are_served_in_order,
    who_gives_up_a_fair_wait_returns_the_slot,
    a_future_that_is_dropped_takes_nothing,
);

async fn permits_come_when_they_are_announced(on: LimiterBackend) {
    let limiter = limiter(on, 2, 300).await;
    let began = Instant::now();
    for _ in 0..6 {
        limiter.acquire(1).await.expect("an answer");
    }
    let took = began.elapsed();
    assert!((600..=900).contains(&took.as_millis()), "{took:?}");
}

async fn a_wait_in_vain_ends_at_once(on: LimiterBackend) {
    let limiter = limiter(on, 2, 60_000).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let began = Instant::now();
    let ten = Duration::from_secs(10);
    assert!(!limiter.try_acquire_for(2, ten).await.expect("an answer"));
    let fair = limiter.clone().fair();
    assert!(!fair.try_acquire_for(2, ten).await.expect("an answer"));
    // Behind one that waits for longer, too.
    let patient = limiter.clone();
    let patient = tokio::spawn(async move { patient.acquire(2).await });
    sleep(Duration::from_millis(50)).await;
    assert!(!limiter.try_acquire_for(2, ten).await.expect("an answer"));
    assert!(began.elapsed() < Duration::from_secs(5));
    patient.abort();
    assert_eq!(limiter.available_permits().await.expect("an answer"), 1);
}

async fn a_time_out_of_zero_tries_once(on: LimiterBackend) {
    let limiter = limiter(on, 1, 60_000).await;
    let zero = Duration::ZERO;
    assert!(limiter.try_acquire_for(1, zero).await.expect("an answer"));
    assert!(!limiter.try_acquire_for(1, zero).await.expect("an answer"));
}

async fn fair_waiters_are_served_in_order(on: LimiterBackend) {
    let limiter = limiter(on, 2, 200).await.fair();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..8 {
        let (limiter, sender) = (limiter.clone(), sender.clone());
        tokio::spawn(async move {
            limiter.acquire(1).await.expect("an answer");
            sender.send((at, Instant::now())).expect("is awaited");
        });
        // Each reserves before the next one comes.
        sleep(Duration::from_millis(15)).await;
    }
    drop(sender);
    let mut served = Vec::new();
    while let Some(one) = receiver.recv().await {
        served.push(one);
    }
    let order: Vec<_> = served.iter().map(|(at, _)| *at).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    for pair in served.windows(3) {
        let apart = pair[2].1 - pair[0].1;
        assert!(apart >= Duration::from_millis(170), "{apart:?}");
    }
}

async fn who_gives_up_a_fair_wait_returns_the_slot(on: LimiterBackend) {
    let limiter = limiter(on, 1, 400).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let fair = limiter.clone().fair();
    let long = Duration::from_secs(60);
    let waits = join_all((0..20).map(|_| fair.try_acquire_for(1, long)));
    select(Box::pin(waits), Box::pin(sleep(Duration::from_millis(60)))).await;
    // Twenty slots of 400 ms are free again but for the one that counts.
    sleep(Duration::from_millis(400)).await;
    assert_eq!(limiter.available_permits().await.expect("an answer"), 1);
}

async fn a_future_that_is_dropped_takes_nothing(on: LimiterBackend) {
    let limiter = limiter(on, 1_000, 60_000).await;
    let mut taken = 0;
    for polls in 0..200 {
        let mut acquire = Box::pin(limiter.acquire(1));
        for _ in 0..polls % 5 {
            let poll = futures_util::poll!(acquire.as_mut());
            if poll.is_ready() {
                taken += 1;
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    for _ in 0..100 {
        if limiter.available_permits().await.expect("an answer") == 1_000 - taken {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "something was kept: {:?}",
        limiter.available_permits().await
    );
}

/// In paused time, so to the millisecond.
#[tokio::test(start_paused = true)]
async fn ten_permits_at_one_a_second_take_nine_seconds() {
    let limiter = limiter(crate::in_memory(), 1, 1_000).await;
    let began = Instant::now();
    for _ in 0..10 {
        limiter.acquire(1).await.expect("an answer");
    }
    let took = began.elapsed();
    assert!((9_000..=9_100).contains(&took.as_millis()), "{took:?}");
}

/// However many wait, they are served at the rate, and nobody for ever.
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_are_served_at_the_rate() {
    let limiter = limiter(crate::in_memory(), 1_000, 1_000).await;
    let began = Instant::now();
    let waits = (0..10_000).map(|_| limiter.acquire(1));
    for waited in join_all(waits).await {
        waited.expect("an answer");
    }
    let took = began.elapsed();
    assert!((9_000..=9_500).contains(&took.as_millis()), "{took:?}");
}

/// Ten thousand waiters of one process share their calls.
#[tokio::test]
async fn waiters_do_not_stampede() {
    let server = kit::Redis::start();
    let redis = crate::connect(&server).await;
    let limiter = limiter(&redis, 10, 100).await;
    let mut connection = server.connection();
    redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(&mut connection)
        .expect("resets");
    let long = Duration::from_secs(600);
    let waits = join_all((0..10_000).map(|_| limiter.try_acquire_for(1, long)));
    select(Box::pin(waits), Box::pin(sleep(Duration::from_secs(1)))).await;
    let stats: redis::InfoDict = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .expect("stats");
    let stat = stats.get::<String>("cmdstat_evalsha").expect("was called");
    let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="));
    let calls: u64 = calls.expect("a field").parse().expect("a number");
    // All ask once, 64 in a call: that is 157 calls, unless the machine is too busy for them in
    // this second. Then a few ask when permits come back, ten times.
    assert!((1..=400).contains(&calls), "{calls} calls");
}

/// Two backends of one name in memory have nothing in common, clones everything.
#[tokio::test(start_paused = true)]
async fn clones_share_in_memory() {
    let limiters = MemoryLimiters::default();
    let one = limiter(&limiters, 1, 1_000).await;
    let other = RateLimiter::new(&limiters, "partner");
    assert!(one.try_acquire(1).await.expect("an answer"));
    assert!(!other.try_acquire(1).await.expect("an answer"));
    let apart = RateLimiter::new(MemoryLimiters::default(), "partner");
    let set = apart.try_set_rate(Rate::overall(1, Duration::from_secs(1)).expect("valid"));
    assert!(set.await.expect("an answer"));
}
