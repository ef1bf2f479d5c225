//! What is free is granted, and only a client's own permits come back.

use std::time::Duration;

use kit::limiter_monitor::Monitor;
use kit::proxy::{Mode, Proxy};
use tidegate::Redis;
use tidegate::limiter::{LimiterBackend, LimiterErrorKind, Rate, RateLimiter};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::{connect, limiter, on_both, replace_rate};

const SECOND: Duration = Duration::from_secs(1);

on_both!(
    callers_that_give_up_waste_nothing,
    sleepers_hear_of_changes,
    too_many_permits_are_told_while_waiting,
    a_permit_comes_back_once,
    a_permit_of_an_earlier_rate_does_not_come_back,
    a_future_that_nobody_polls_is_in_nobodys_way,
    a_refusal_says_when_to_come_back,
    how_it_is_kept_can_be_seen,
);

/// Fair callers with less patience than the interval use the rate, and so do others beside them.
async fn callers_that_give_up_waste_nothing(on: LimiterBackend) {
    // So long an interval that it matters little by how much a busy machine is late.
    let limiter = limiter(on, 50, 500).await;
    let until = Instant::now() + 3 * SECOND;
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let fair = limiter.clone().fair();
        tasks.spawn(async move {
            let mut granted = 0;
            while Instant::now() < until {
                let patience = Duration::from_millis(250);
                granted += u64::from(timeout(patience, fair.acquire(1)).await.is_ok());
            }
            granted
        });
    }
    let granted: u64 = tasks.join_all().await.into_iter().sum();
    println!("{granted} of 300");
    // 300 and those of the first interval.
    assert!((150..=350).contains(&granted), "{granted} of 300");
    while !limiter.try_acquire(1).await.expect("an answer") {
        assert!(Instant::now() < until + 2 * SECOND, "nothing is left");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn sleepers_hear_of_changes(on: LimiterBackend) {
    for change in 0..3 {
        let limiter = RateLimiter::new(LimiterBackend::clone(&on), format!("limiter {change}"));
        let slow = Rate::overall(1, 60 * SECOND).expect("valid");
        assert!(limiter.try_set_rate(slow).await.expect("an answer"));
        limiter.acquire(1).await.expect("an answer");
        let sleepers: Vec<_> = [limiter.clone(), limiter.clone().fair()]
            .into_iter()
            .map(|limiter| tokio::spawn(async move { limiter.acquire(1).await }))
            .collect();
        sleep(Duration::from_millis(50)).await;
        let fast = Rate::overall(1_000, SECOND).expect("valid");
        match change {
            0 => limiter.set_rate(fast).await.expect("an answer"),
            1 => assert!(replace_rate(&limiter, fast).await.expect("an answer")),
            _ => {
                let wider = Rate::overall(3, 60 * SECOND).expect("valid");
                assert!(replace_rate(&limiter, wider).await.expect("an answer"));
                assert_eq!(limiter.release(1).await.expect("an answer"), 1);
            }
        }
        let began = Instant::now();
        limiter.acquire(1).await.expect("an answer");
        for sleeper in sleepers {
            sleeper.await.expect("no panic").expect("an answer");
        }
        assert!(began.elapsed() < SECOND, "{change}: {:?}", began.elapsed());
    }
}

/// Another process changes the rate.
#[tokio::test]
async fn sleepers_hear_of_others_changes_within_a_second() {
    let server = kit::Redis::start();
    let (ours, others) = (connect(&server).await, connect(&server).await);
    let limiter = limiter(&ours, 1, 60_000).await;
    limiter.acquire(1).await.expect("an answer");
    let sleeper = limiter.clone();
    let sleeper = tokio::spawn(async move { sleeper.acquire(1).await });
    sleep(Duration::from_millis(100)).await;
    let other = RateLimiter::new(&others, "partner");
    let set = other.set_rate(Rate::overall(100, SECOND).expect("valid"));
    set.await.expect("an answer");
    let woken = timeout(2 * SECOND, sleeper).await.expect("it heard of it");
    woken.expect("no panic").expect("an answer");
}

async fn too_many_permits_are_told_while_waiting(on: LimiterBackend) {
    let limiter = limiter(on, 8, 60_000).await;
    assert!(limiter.try_acquire(8).await.expect("an answer"));
    let waiting: Vec<_> = [limiter.clone(), limiter.clone().fair()]
        .into_iter()
        .map(|limiter| tokio::spawn(async move { limiter.acquire(8).await }))
        .collect();
    sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let set = limiter.set_rate(Rate::overall(5, 60 * SECOND).expect("valid"));
    set.await.expect("an answer");
    for waiting in waiting {
        let error = waiting.await.expect("no panic").expect_err("more than 5");
        assert_eq!(error.kind(), LimiterErrorKind::AboveRate);
    }
    // And nobody stands behind those that have failed.
    limiter.fair().acquire(5).await.expect("an answer");
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

async fn a_permit_comes_back_once(on: LimiterBackend) {
    let limiter = limiter(on, 5, 60_000).await;
    let permit = limiter.acquire_permit(3).await.expect("an answer");
    assert_eq!(permit.permits(), 3);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 2);
    assert_eq!(permit.release().await.expect("an answer"), 3);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 5);
    drop(limiter.acquire_permit(3).await.expect("an answer"));
    assert_eq!(limiter.available_permits().await.expect("an answer"), 2);
}

async fn a_permit_of_an_earlier_rate_does_not_come_back(on: LimiterBackend) {
    let limiter = limiter(on, 5, 60_000).await;
    let before = limiter.acquire_permit(3).await.expect("an answer");
    let set = limiter.set_rate(Rate::overall(5, 60 * SECOND).expect("valid"));
    set.await.expect("an answer");
    assert!(limiter.try_acquire(5).await.expect("an answer"));
    assert_eq!(before.release().await.expect("an answer"), 0);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 0);
}

async fn a_future_that_nobody_polls_is_in_nobodys_way(on: LimiterBackend) {
    let limiter = limiter(on, 1, 100).await;
    limiter.acquire(1).await.expect("an answer");
    let mut pinned = Box::pin(limiter.acquire(1));
    assert!(futures_util::poll!(pinned.as_mut()).is_pending());
    for _ in 0..3 {
        let acquired = timeout(5 * SECOND, limiter.acquire(1)).await;
        acquired.expect("in time").expect("an answer");
    }
}

async fn a_refusal_says_when_to_come_back(on: LimiterBackend) {
    let limiter = limiter(on, 1, 60_000).await;
    let granted = limiter.try_acquire_permit(1).await.expect("an answer");
    assert!(granted.is_ok());
    let refused = limiter.try_acquire_permit(1).await.expect("an answer");
    let wait = refused.expect_err("one is not enough for two");
    assert!((50 * SECOND..=61 * SECOND).contains(&wait), "{wait:?}");
}

/// A holds 4, B 6 of 10: A gives back 4 at most.
#[tokio::test]
async fn nobody_gives_back_what_others_hold() {
    let server = kit::Redis::start();
    let (a, b) = (connect(&server).await, connect(&server).await);
    let a = limiter(&a, 10, 60_000).await;
    let b = RateLimiter::new(&b, "partner");
    assert!(a.try_acquire(4).await.expect("an answer"));
    assert!(b.try_acquire(6).await.expect("an answer"));
    assert_eq!(a.release(10).await.expect("an answer"), 4);
    assert_eq!(a.release(10).await.expect("an answer"), 0);
    assert_eq!(b.release(5).await.expect("an answer"), 5);
    assert_eq!(b.available_permits().await.expect("an answer"), 9);
}

/// A value above what the set says: as a release of Redisson's leaves it.
#[tokio::test]
async fn what_redisson_released_is_not_granted_twice() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 2, 60_000).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let mut connection = server.connection();
    let value = redis::cmd("INCRBY")
        .arg("{partner}:value")
        .arg(2)
        .to_owned();
    value.exec(&mut connection).expect("is counted");
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
}

/// While rates change, no interval holds more than the rate that was set when it began.
#[tokio::test]
async fn a_new_rate_forgets_nobody_who_waits() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 2, 200).await;
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let fair = limiter.clone().fair();
            tokio::spawn(async move { fair.acquire(1).await })
        })
        .collect();
    sleep(Duration::from_millis(100)).await;
    let set = limiter.set_rate(Rate::overall(2, Duration::from_millis(300)).expect("valid"));
    set.await.expect("an answer");
    let monitor = Monitor::start(&server.url);
    for waiting in waiting {
        waiting.await.expect("no panic").expect("an answer");
    }
    let fullest = monitor.grants(&server.url)["{partner}:permits"].fullest(300_000);
    assert!(fullest <= 2, "{fullest} of 2");
}

/// With a round trip of 2 ms, callers do not wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn free_permits_are_granted_as_fast_by_waiting_as_by_trying() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = Redis::connect(&proxy.url).await.expect("a running server");
    let redis = redis.timeout(20 * SECOND);
    let limiter = limiter(&redis, 1_000_000, 60_000).await;
    let half = Duration::from_millis(1);
    proxy.all(Mode::Delay {
        calls: half,
        replies: half,
    });
    let count = async |waits: bool| {
        let until = Instant::now() + SECOND;
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut granted = 0_u64;
                while Instant::now() < until {
                    match waits {
                        true => limiter.acquire(1).await.expect("an answer"),
                        false => assert!(limiter.try_acquire(1).await.expect("an answer")),
                    }
                    granted += 1;
                }
                granted
            });
        }
        tasks.join_all().await.into_iter().sum::<u64>()
    };
    let (tried, waited) = (count(false).await, count(true).await);
    println!("{waited} by waiting, {tried} by trying");
    // One after another it would be one of two hundred.
    assert!(8 * waited > tried, "{waited} by waiting, {tried} by trying");
    let short = Duration::from_millis(500);
    for acquired in
        futures_util::future::join_all((0..100).map(|_| limiter.try_acquire_for(1, short))).await
    {
        assert!(acquired.expect("an answer"), "permits are free");
    }
}

/// Nobody fails, though the time-out is shorter than the wait, and calls are shared.
/// `TIDEGATE_PERMITS` sets how many of the ten thousand are served in 100 ms.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiters_cost_a_handful_of_calls() {
    let permits = std::env::var("TIDEGATE_PERMITS").ok();
    let permits = permits.map_or(1_000, |permits| permits.parse().expect("a number"));
    let refills = 10_000 / permits;
    for is_fair in [false, true] {
        let server = kit::Redis::start();
        let redis = Redis::connect(&server.url).await.expect("a running server");
        let redis = redis.timeout(SECOND);
        let mut limiter = limiter(&redis, permits, 100).await;
        if is_fair {
            limiter = limiter.fair();
        }
        let mut tasks = JoinSet::new();
        for _ in 0..10_000 {
            let limiter = limiter.clone();
            tasks.spawn(async move { limiter.acquire(1).await });
        }
        for served in tasks.join_all().await {
            served.expect("an answer");
        }
        let mut connection = server.connection();
        let stats: redis::InfoDict = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut connection)
            .expect("stats");
        let stat = stats.get::<String>("cmdstat_evalsha").expect("was called");
        let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="));
        let calls: u64 = calls.expect("a field").parse().expect("a number");
        println!("fair: {is_fair}: {calls} calls, {refills} refills, {stat}");
        // 157 first calls, and full ones at each refill, with room for a busy machine.
        let full = permits / 64 + 24;
        assert!(calls <= 157 + refills * full, "{calls} calls");
    }
}

/// Clients of Redisson that begin to count here find keys without an expiry.
#[tokio::test]
async fn sharing_begins_with_an_existing_rate() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let alone = limiter(&redis, 5, 60_000).await;
    assert!(alone.try_acquire(1).await.expect("an answer"));
    let mut connection = server.connection();
    let mut life = |key: &str| -> i64 {
        let life = redis::cmd("PTTL").arg(key).query(&mut connection);
        life.expect("a time to live")
    };
    assert!(life("{partner}:value") > 0);
    let shared = RateLimiter::new(&redis, "partner").shared_with_redisson();
    let set = shared.try_set_rate(Rate::overall(5, 60 * SECOND).expect("valid"));
    assert!(!set.await.expect("an answer"), "there is one");
    assert!(shared.try_acquire(1).await.expect("an answer"));
    assert_eq!(life("{partner}:value"), -1);
    assert_eq!(life("{partner}:permits"), -1);
}

async fn how_it_is_kept_can_be_seen(on: LimiterBackend) {
    let limiter = RateLimiter::new(on, "partner");
    assert_eq!(limiter.is_shared().await.expect("an answer"), None);
    assert_eq!(limiter.remaining().await.expect("an answer"), None);
    let rate = Rate::overall(5, SECOND).expect("valid");
    assert!(limiter.try_set_rate(rate).await.expect("an answer"));
    assert_eq!(limiter.is_shared().await.expect("an answer"), Some(false));
    assert_eq!(limiter.remaining().await.expect("an answer"), None);
    let kept = rate.with_keep_alive(60 * SECOND).expect("valid");
    limiter.set_rate(kept).await.expect("an answer");
    let life = limiter.remaining().await.expect("an answer");
    let life = life.expect("it has a keep-alive time");
    assert!((50 * SECOND..=60 * SECOND).contains(&life), "{life:?}");
    assert_eq!(limiter.stored_rate().await.expect("an answer"), Some(kept));
}

/// As Redisson's `setRate` does: it knows nothing of our field.
#[tokio::test]
async fn a_rate_that_redisson_sets_is_shared() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 5, 60_000).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let mut connection = server.connection();
    redis::pipe()
        .cmd("HSET")
        .arg(&["partner", "rate", "7", "interval", "60000", "type", "0"])
        .cmd("DEL")
        .arg(&["{partner}:value", "{partner}:permits"])
        .exec(&mut connection)
        .expect("is set");
    assert_eq!(limiter.is_shared().await.expect("an answer"), Some(true));
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    for key in ["{partner}:value", "{partner}:permits"] {
        let life = redis::cmd("PTTL").arg(key).query::<i64>(&mut connection);
        assert_eq!(life.expect("a time to live"), -1, "{key}");
    }
}

/// No other client counts under a client's own keys, so they end by themselves.
#[tokio::test]
async fn a_clients_own_keys_expire() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = RateLimiter::new(&redis, "partner").shared_with_redisson();
    let rate = Rate::per_client(5, 60 * SECOND).expect("valid");
    assert!(limiter.try_set_rate(rate).await.expect("an answer"));
    assert!(limiter.try_acquire(2).await.expect("an answer"));
    let mut connection = server.connection();
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("{partner}:*")
        .query(&mut connection)
        .expect("names");
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let life = redis::cmd("PTTL").arg(&name).query::<i64>(&mut connection);
        assert!(life.expect("a time to live") > 0, "{name}");
    }
}

/// A process that has ended keeps no place: here one with more callers than a call looks at.
#[tokio::test]
async fn places_of_the_dead_are_dropped() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let limiter = limiter(&redis, 5, 60_000).await;
    let mut connection = server.connection();
    let mut dead = redis::pipe();
    for number in 0..2_000_u64 {
        let identity = [*b"deadbeef", number.to_be_bytes()].concat();
        let member = [&[16][..], &identity, &1_u32.to_le_bytes()].concat();
        dead.zadd("{partner}:waiting", member, number);
    }
    dead.exec(&mut connection).expect("is written");
    let fair = limiter.fair();
    let acquired = timeout(5 * SECOND, fair.acquire(5)).await;
    acquired.expect("in time").expect("an answer");
    let left: u64 = redis::cmd("ZCARD")
        .arg("{partner}:waiting")
        .query(&mut connection)
        .expect("a number");
    assert_eq!(left, 0);
}

/// Whoever gives up in a runtime that has ended is in nobody's way.
#[test]
fn a_runtime_that_ends_leaves_no_place_behind() {
    let server = kit::Redis::start();
    let staying = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = staying.block_on(connect(&server));
    let limiter = staying.block_on(limiter(&redis, 1, 100));
    for _ in 0..20 {
        let ending = tokio::runtime::Runtime::new().expect("a runtime");
        for _ in 0..20 {
            let fair = limiter.clone().fair();
            ending.spawn(async move { fair.acquire(1).await });
        }
        std::thread::sleep(Duration::from_millis(3));
        ending.shutdown_background();
        staying.block_on(async {
            // Places whose callers left without a runtime are given up by the next caller's.
            let fair = limiter.clone().fair();
            let granted = timeout(20 * SECOND, fair.acquire(1)).await;
            granted.expect("in time").expect("an answer");
        });
    }
}

/// Where each client has a budget of its own, its fair callers wait behind their own client's
/// alone, and a place from before the type of the rate changed blocks nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_callers_of_a_client_wait_behind_its_own() {
    let server = kit::Redis::start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    let limiters = [&one, &other].map(|redis| RateLimiter::new(redis, "each").fair());
    let [first, second] = &limiters;
    let hour = 3_600 * SECOND;
    let set = first
        .try_set_rate(Rate::per_client(1, hour).expect("valid"))
        .await;
    assert!(set.expect("an answer"));
    assert!(first.try_acquire(1).await.expect("an answer"));
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let first = first.clone();
            tokio::spawn(async move { first.acquire(1).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let granted = timeout(5 * SECOND, second.acquire(1)).await;
    granted.expect("nobody is before it").expect("an answer");

    let set = first
        .set_rate(Rate::overall(100, hour).expect("valid"))
        .await;
    set.expect("an answer");
    for waiting in waiting {
        let granted = timeout(5 * SECOND, waiting).await.expect("all are free");
        granted.expect("no panic").expect("an answer");
    }
    let set = first
        .set_rate(Rate::per_client(1, hour).expect("valid"))
        .await;
    set.expect("an answer");
    for limiter in &limiters {
        let granted = timeout(5 * SECOND, limiter.acquire(1)).await;
        granted.expect("no place is left").expect("an answer");
    }
}
