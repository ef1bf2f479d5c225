//! Settings, numbers and a clock at their ends.

use crate::*;

const HARDLY: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_micros(1),
];

/// Callers of one clone of the handle, who never stop, until this is dropped.
fn besiege(redis: &Redis, name: &'static str, time_out: Duration) -> JoinSet<()> {
    let redis = redis.clone().timeout(time_out);
    let mut hostile = JoinSet::new();
    for at in 0..4 {
        let limiter = RateLimiter::new(&redis, name).fair_if(at % 2 == 0);
        hostile.spawn(async move {
            loop {
                let _ = limiter.try_acquire(1).await;
                let _ = limiter.available_permits().await;
                let _ = limiter.release(1).await;
                let _ = timeout(millis(3), limiter.acquire(1)).await;
                sleep(millis(1)).await;
            }
        });
    }
    hostile
}

/// Law 13: each clone of a handle has its own time-out, whoever shares its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_time_outs() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let ours = limiter(&redis, "ours", 100_000, HOUR).await;
    limiter(&redis, "aside", 100_000, HOUR).await;
    let fair = ours.clone().fair();
    let endless = [Duration::MAX, Duration::from_secs(u64::MAX / 2)];
    for time_out in HARDLY.into_iter().chain(endless) {
        let mut hostile = ["aside", "ours"].map(|theirs| besiege(&redis, theirs, time_out));
        for _ in 0..60 {
            let calls =
                async { tokio::join!(ours.try_acquire(1), ours.acquire(1), fair.acquire(1)) };
            let calls = timeout(2 * SECOND, calls).await.expect("law 13");
            let is_well = matches!(calls, (Ok(true), Ok(()), Ok(())));
            assert!(is_well, "law 13: beside {time_out:?}: {calls:?}");
        }
        join_all(hostile.iter_mut().map(JoinSet::shutdown)).await;
    }
    check_expiries(&server, &["ours", "aside"]);
}

/// Law 6: a caller of the same name who waits without an end does not make others wait so long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_out_without_end_is_nobody_elses() {
    let server = Server::start();
    let redis = handle(&server.url).await.timeout(millis(200));
    let ours = limiter(&redis, "ours", 100_000, HOUR).await;
    let mut hostile = besiege(&redis, "ours", Duration::MAX);
    sleep(millis(50)).await;
    server.signal("STOP");
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < millis(1_500) {
        let asked = Instant::now();
        let fair = ours.clone().fair();
        let calls = async {
            tokio::join!(
                ours.try_acquire(1),
                ours.try_acquire_for(1, millis(1)),
                fair.try_acquire_for(1, millis(1))
            )
        };
        let calls = timeout(5 * SECOND, calls).await;
        longest = longest.max(asked.elapsed());
        if calls.is_err() {
            break;
        }
    }
    server.signal("CONT");
    hostile.shutdown().await;
    let is_right = longest < millis(600);
    assert!(is_right, "law 6: {longest:?} at a time-out of 200 ms");
}

/// Whatever is asked with a time-out of nothing is answered at once, and holds nothing then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_held_by_who_had_no_time() {
    let (_server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "held", 10_000, HOUR).await;
    let mut granted = 0;
    for hardly in HARDLY.into_iter().chain([millis(1), millis(2), millis(3)]) {
        let hasty = RateLimiter::new(redis.clone().timeout(hardly), "held");
        let fair = hasty.clone().fair();
        let began = Instant::now();
        for _ in 0..20 {
            let calls = async { tokio::join!(hasty.try_acquire(1), fair.try_acquire(1)) };
            let (plain, fair) = calls.await;
            granted += u64::from(plain.unwrap_or(false)) + u64::from(fair.unwrap_or(false));
        }
        let took = began.elapsed();
        assert!(took < 2 * SECOND, "{took:?}");
    }
    super::becomes_available(&limiter, 10_000 - granted, 5 * SECOND).await;
}

/// Numbers at their ends, on Redis and in memory alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_at_their_ends() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let memory = RateLimiter::new(MemoryLimiters::default(), "ends");
    for limiter in [RateLimiter::new(&redis, "ends"), memory] {
        let largest = overall(Rate::MAX_PERMITS, Rate::MAX_INTERVAL);
        limiter.sets(largest).await;
        assert_eq!(limiter.free().await, Rate::MAX_PERMITS);
        assert!(limiter.takes(Rate::MAX_PERMITS - 1).await);
        assert_eq!(limiter.free().await, 1);
        let wait = limiter.try_acquire_permit(2).await.expect("an answer");
        let wait = wait.expect_err("one is free");
        let is_right = wait > Rate::MAX_INTERVAL - HOUR && wait <= Rate::MAX_INTERVAL + millis(1);
        assert!(is_right, "{wait:?}");
        let refused = timeout(2 * SECOND, limiter.try_acquire_for(2, HOUR)).await;
        assert!(!refused.expect("known to be in vain").expect("an answer"));
        let fair = limiter.clone().fair();
        for endless in [Duration::MAX, Rate::MAX_INTERVAL * 2] {
            let waits = timeout(millis(50), limiter.try_acquire_for(2, endless)).await;
            assert!(waits.is_err(), "it waits: {waits:?}");
            let waits = timeout(millis(50), fair.try_acquire_for(2, endless));
            assert!(waits.await.is_err(), "it waits");
        }
        assert!(limiter.try_acquire(1).await.expect("law 14"), "one is free");
        assert_eq!(limiter.release(0).await.expect("does nothing"), 0);
        assert_eq!(limiter.gives_back(u64::MAX).await, Rate::MAX_PERMITS);
        assert_eq!(limiter.free().await, Rate::MAX_PERMITS);
        let above = limiter.try_acquire(Rate::MAX_PERMITS + 1).await;
        assert_eq!(kind(above), Some(LimiterErrorKind::AboveRate));
        assert!(limiter.expire(Duration::MAX).await.expect("an answer"));
        assert!(limiter.is_there().await);
        assert!(
            limiter
                .expire(Duration::from_nanos(1))
                .await
                .expect("an answer")
        );
        sleep(millis(20)).await;
        assert!(!limiter.is_there().await);
        // The shortest there is.
        limiter.sets(per_client(1, Duration::from_nanos(1))).await;
        for _ in 0..20 {
            limiter.clone().fair().waits(1).await;
        }
        assert!(limiter.expire(Duration::ZERO).await.expect("an answer"));
        sleep(millis(20)).await;
        assert!(!limiter.is_there().await);
    }
    sleep(millis(1_200)).await;
    check_expiries(&server, &[]);
}

/// A clock that is years ahead for a moment: what was granted then counts for one interval of the
/// time that goes on, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_years_ahead() {
    const START: u64 = 1_700_000_000_000_000;
    const YEARS: u64 = 10 * 365 * 24 * 3_600_000_000;
    let server = Server::start();
    let redis = handle(&server.url).await;
    for is_fair in [false, true] {
        let clock = ManualClock::default();
        clock.set(START);
        let on = LimiterBackend::redis_with_clock(&redis, clock.clone());
        let limiter = RateLimiter::new(on, format!("ahead-{is_fair}"));
        let limiter = limiter.fair_if(is_fair);
        limiter.sets(overall(4, millis(100))).await;
        assert!(limiter.takes(1).await);
        clock.set(START + YEARS);
        assert!(limiter.takes(3).await);
        clock.set(START + 50_000);
        let free = limiter.free().await;
        assert!(free <= 1, "law 1: {free} beside three of the same interval");
        let _ = limiter.takes(1).await;
        // Counted from when somebody was refused because of them, for one interval.
        clock.set(START + 60_000);
        let wait = limiter.try_acquire_permit(2).await.expect("an answer");
        let wait = wait.expect_err("not yet").as_micros() as u64;
        assert!(wait <= 101_000, "{wait}");
        clock.set(START + 60_000 + wait);
        assert!(limiter.takes(2).await, "law 3");
        clock.set(START + 300_000);
        assert_eq!(limiter.free().await, 4);
    }
}
