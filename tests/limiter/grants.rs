//! What is free is granted, and only a client's own permits come back.

use kit::Redis;

use crate::*;

on_both!(
    callers_that_give_up_waste_nothing,
    too_many_permits_are_told_while_waiting,
    a_refusal_says_when_to_come_back,
    how_it_is_kept_can_be_seen,
);

/// Fair callers with less patience than the interval use the rate, and so do others beside them.
async fn callers_that_give_up_waste_nothing(on: &Home) {
    // So long an interval that it matters little by how much a busy machine is late.
    let limiter = limiter(on, 50, 400).await;
    let (until, watch) = (Instant::now() + 2 * SECOND, on.watch());
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let fair = limiter.clone().fair();
        tasks.spawn(async move {
            let mut granted = 0;
            while Instant::now() < until {
                let acquired = timeout(millis(200), fair.acquire(1)).await;
                granted += u64::from(acquired.is_ok());
            }
            granted
        });
    }
    let granted: u64 = tasks.join_all().await.into_iter().sum();
    // 250 and those of the first interval; half of what the machine had the time for.
    let (least, most) = (
        watch.waited().as_millis() / 16,
        watch.elapsed().as_millis() / 8 + 50,
    );
    println!("{granted} of {most}");
    let is_right = (least..=most).contains(&u128::from(granted));
    assert!(is_right, "{granted} of {least} to {most}");
    limiter.waits(1).await;
}

async fn too_many_permits_are_told_while_waiting(on: &Home) {
    let limiter = limiter(on, 8, 60_000).await;
    assert!(limiter.takes(8).await);
    let waiting = [false, true].map(|is_fair| {
        let limiter = limiter.fair_if(is_fair);
        tokio::spawn(async move { kind(limiter.acquire(8).await) })
    });
    sleep(millis(50)).await;
    let watch = on.watch();
    limiter.sets(overall(5, MINUTE)).await;
    for waiting in waiting {
        let told = waiting.await.expect("no panic");
        assert_eq!(told, Some(LimiterErrorKind::AboveRate), "more than 5");
    }
    // And nobody stands behind those that have failed.
    limiter.fair().waits(5).await;
    assert!(watch.waited() < SECOND, "{:?}", watch.waited());
}

/// Futures that were polled once and then forgotten hold up nobody, and are served when they are
/// looked at again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_that_nobody_polls() {
    let homes = [Home::in_memory(), Home::on_redis().await];
    let cases = homes.iter().flat_map(|on| [(on, "plain"), (on, "fair")]);
    let cases = cases.map(async |(on, name)| {
        let limiter = RateLimiter::new(on, name).fair_if(name == "fair");
        limiter.sets(overall(1, millis(50))).await;
        assert!(limiter.takes(1).await);
        let mut forgotten: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire(1))).collect();
        for future in &mut forgotten {
            let polled = futures_util::poll!(future);
            assert!(polled.is_pending(), "{name}: nothing is free");
        }
        for place in 0..10 {
            let served = timeout(6 * SECOND, waiting(&limiter, 1)).await;
            let served = served.unwrap_or_else(|_| panic!("{name}: caller {place} hangs"));
            served.expect("no panic");
        }
        let late = timeout(PATIENT, join_all(forgotten)).await;
        let late = late.unwrap_or_else(|_| panic!("{name}: not all are served"));
        assert!(late.iter().all(Result::is_ok), "{name}: {late:?}");
        sleep(millis(100)).await;
        assert_eq!(limiter.free().await, 1, "{name}");
    });
    join_all(cases).await;
}

async fn a_refusal_says_when_to_come_back(on: &Home) {
    let limiter = limiter(on, 1, 3_600_000).await;
    let granted = limiter.try_acquire_permit(1).await.expect("an answer");
    assert!(granted.is_ok());
    let refused = limiter.try_acquire_permit(1).await.expect("an answer");
    let wait = refused.expect_err("one is not enough for two");
    assert!((HOUR - MINUTE..=HOUR + SECOND).contains(&wait), "{wait:?}");
}

/// While rates change, no interval holds more than the rate that was set when it began.
#[tokio::test]
async fn a_new_rate_forgets_nobody_who_waits() {
    let server = Redis::start();
    let limiter = limiter(&handle(&server.url).await, 2, 200).await;
    let fair = limiter.clone().fair();
    let all: Vec<_> = (0..10).map(|_| waiting(&fair, 1)).collect();
    sleep(millis(100)).await;
    limiter.sets(overall(2, millis(300))).await;
    let monitor = Monitor::start(&server.url);
    for one in all {
        one.await.expect("no panic");
    }
    monitor.check(&server.url, "partner", 2, millis(300));
}

/// With a round trip of 2 ms, callers do not wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn free_permits_are_granted_as_fast_by_waiting_as_by_trying() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    let limiter = limiter(&handle(&proxy.url).await, 1_000_000, 60_000).await;
    let count = async |waits: bool| {
        let until = Instant::now() + SECOND;
        let mut tasks = JoinSet::new();
        for _ in 0..200 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut granted = 0_u64;
                while Instant::now() < until {
                    match waits {
                        true => limiter.waits(1).await,
                        false => assert!(limiter.takes(1).await),
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
    let tries = (0..100).map(|_| limiter.takes_within(1, PATIENT));
    let is_right = join_all(tries).await.iter().all(|got| *got);
    assert!(is_right, "permits are free");
}

/// Nobody fails, though the time-out is shorter than the wait, and calls are shared.
/// `TIDEGATE_PERMITS` sets how many of the ten thousand are served in 100 ms.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waiters_cost_a_handful_of_calls() {
    let permits = std::env::var("TIDEGATE_PERMITS").ok();
    let permits = permits.map_or(1_000, |permits| permits.parse().expect("a number"));
    let refills = 10_000 / permits;
    for is_fair in [false, true] {
        let server = Redis::start();
        let redis = handle(&server.url).await.timeout(SECOND);
        let limiter = limiter(&redis, permits, 100).await.fair_if(is_fair);
        let mut tasks = JoinSet::new();
        for _ in 0..10_000 {
            let limiter = limiter.clone();
            tasks.spawn(async move { limiter.waits(1).await });
        }
        tasks.join_all().await;
        let calls = server.script_calls();
        println!("fair: {is_fair}: {calls} calls, {refills} refills");
        // 157 first calls, and full ones at each refill, with room for a busy machine.
        let full = permits / 64 + 24;
        assert!(calls <= 157 + refills * full, "{calls} calls");
    }
}

const COUNTS: [&str; 2] = ["{partner}:value", "{partner}:permits"];

/// Clients of Redisson that begin to count here find keys without an expiry.
#[tokio::test]
async fn sharing_begins_with_an_existing_rate() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    assert!(limiter(&redis, 5, 60_000).await.takes(1).await);
    assert!(server.life(COUNTS[0]) > 0);
    let shared = RateLimiter::new(&redis, "partner").shared_with_redisson();
    assert!(!shared.sets_first(overall(5, MINUTE)).await, "there is one");
    assert!(shared.takes(1).await);
    assert_eq!(COUNTS.map(|key| server.life(key)), [-1, -1]);
}

async fn how_it_is_kept_can_be_seen(on: &Home) {
    let limiter = RateLimiter::new(on, "partner");
    let is_shared = async || limiter.is_shared().await.expect("an answer");
    let remaining = async || limiter.remaining().await.expect("an answer");
    assert_eq!((is_shared().await, remaining().await), (None, None));
    let rate = overall(5, SECOND);
    assert!(limiter.sets_first(rate).await);
    assert_eq!((is_shared().await, remaining().await), (Some(false), None));
    let kept = rate.with_keep_alive(HOUR).expect("valid");
    limiter.sets(kept).await;
    let life = remaining().await.expect("it has a keep-alive time");
    assert!((HOUR - MINUTE..=HOUR).contains(&life), "{life:?}");
    assert_eq!(limiter.stored_rate().await.expect("an answer"), Some(kept));
}

/// As Redisson's `setRate` does: it knows nothing of our field. From then on the limiter counts as
/// that client expects, without expiries. Older clients, which write no keep-alive time, look like
/// counts that were evicted.
#[tokio::test]
async fn a_rate_that_redisson_sets_is_shared() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for (permits, keep_alive) in [(7, ""), (7, "keepAliveTime 0"), (5, "keepAliveTime 0")] {
        let limiter = limiter(&redis, 5, 3_600_000).await;
        assert!(limiter.takes(3).await);
        assert_eq!(limiter.is_shared().await.expect("an answer"), Some(false));
        let set = format!("HSET partner rate {permits} interval 3600000 type 0 {keep_alive}");
        run(&server, &set);
        run(&server, "DEL {partner}:value {partner}:permits");
        assert_eq!(limiter.is_shared().await.expect("an answer"), Some(true));
        assert!(limiter.takes(permits).await);
        assert!(!limiter.takes(1).await);
        let seen = COUNTS.map(|key| server.life(key));
        assert_eq!(seen, [-1, -1], "Redisson would lose it");
        assert!(limiter.delete().await.expect("an answer"));
        check_expiries(&server, &[]);
    }
}

/// No other client counts under a client's own keys, so they end by themselves.
#[tokio::test]
async fn a_clients_own_keys_expire() {
    let server = Redis::start();
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner").shared_with_redisson();
    assert!(limiter.sets_first(per_client(5, MINUTE)).await);
    assert!(limiter.takes(2).await);
    let names: Vec<String> = server.run("KEYS {partner}:*");
    assert!(names.len() >= 2, "{names:?}");
    check_expiries(&server, &["partner"]);
}

/// A process that has ended keeps no place: here one with more callers than a call looks at.
#[tokio::test]
async fn places_of_the_dead_are_dropped() {
    let server = Redis::start();
    let limiter = limiter(&handle(&server.url).await, 5, 60_000).await;
    let mut dead = redis::pipe();
    for number in 0..2_000_u64 {
        let identity = [*b"deadbeef", number.to_be_bytes()].concat();
        let member = [&[16][..], &identity, &1_u32.to_le_bytes()].concat();
        dead.zadd("{partner}:waiting", member, number);
    }
    dead.exec(&mut server.connection()).expect("is written");
    let acquired = timeout(PATIENT, limiter.fair().waits(5)).await;
    acquired.expect("in time");
    assert_eq!(server.run::<u64>("ZCARD {partner}:waiting"), 0);
}

/// Whoever gives up in a runtime that has ended, fair or not, is in nobody's way.
#[test]
fn a_runtime_that_ends_leaves_no_place_behind() {
    let server = Redis::start();
    let staying = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = staying.block_on(handle(&server.url));
    let limiter = staying.block_on(limiter(&redis, 2, 100));
    for round in 0..12 {
        let ending = tokio::runtime::Runtime::new().expect("a runtime");
        for at in 0..20 {
            let limiter = limiter.fair_if(at % 2 == 0);
            ending.spawn(async move { limiter.acquire(1 + at % 2).await });
        }
        std::thread::sleep(millis(3 * round));
        ending.shutdown_background();
        // Places whose callers left without a runtime are given up by the next caller's.
        for is_fair in [true, false] {
            let limiter = limiter.fair_if(is_fair);
            let granted = staying.block_on(async { timeout(PATIENT, limiter.waits(1)).await });
            granted.expect("in time");
        }
    }
}

/// Where each client has a budget of its own, its fair callers wait behind their own client's
/// alone, and a place from before the type of the rate changed blocks nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_callers_of_a_client_wait_behind_its_own() {
    let server = Redis::start();
    let of = async || RateLimiter::new(&handle(&server.url).await, "each").fair();
    let [first, second] = [of().await, of().await];
    assert!(first.sets_first(per_client(1, HOUR)).await);
    assert!(first.takes(1).await);
    let all: Vec<_> = (0..20).map(|_| waiting(&first, 1)).collect();
    sleep(millis(300)).await;
    timeout(PATIENT, second.waits(1))
        .await
        .expect("nobody is before it");
    first.sets(overall(100, HOUR)).await;
    for one in all {
        timeout(PATIENT, one)
            .await
            .expect("all are free")
            .expect("no panic");
    }
    first.sets(per_client(1, HOUR)).await;
    for limiter in [&first, &second] {
        timeout(PATIENT, limiter.waits(1))
            .await
            .expect("no place is left");
    }
}
