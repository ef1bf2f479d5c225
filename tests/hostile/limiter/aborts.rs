//! Law 9: a caller that leaves keeps no permit, no place, and nobody waiting.

use crate::*;

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// One permit, by one of the ways to get it, and whether it came in time.
async fn ask(limiter: &RateLimiter, way: u64, patience: Duration) -> bool {
    match way % 4 {
        0 => timeout(patience, limiter.acquire(1)).await.is_ok(),
        1 => timeout(patience, limiter.acquire_permit(1)).await.is_ok(),
        2 => {
            let asked = limiter.try_acquire_for(1, HOUR);
            timeout(patience, asked)
                .await
                .is_ok_and(|got| got.expect("an answer"))
        }
        _ => {
            let asked = limiter.try_acquire(1);
            timeout(patience, asked)
                .await
                .is_ok_and(|got| got.expect("an answer"))
        }
    }
}

/// Before the call is sent, while it is on its way, while the reply is: what was granted to
/// nobody is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_while_permits_are_free() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    for name in ["plain", "fair"] {
        let limiter = limiter(&redis, name, 1_000, HOUR)
            .await
            .fair_if(name == "fair");
        let callers = crowd(800, |at| {
            let limiter = limiter.clone();
            async move {
                sleep(micros(at * 200)).await;
                ask(&limiter, at, micros(at * 37 % 16_000)).await
            }
        });
        let granted = callers.await.into_iter().filter(|got| *got).count() as u64;
        assert!(granted < 800, "{granted} of 800 in time");
        becomes_available(&limiter, 1_000 - granted, 5 * SECOND).await;
    }
    check_expiries(&server, &["plain", "fair"]);
}

/// The same by tasks that are aborted from outside, many at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_are_aborted() {
    let (_server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "aborted", 100_000, HOUR).await;
    let mut granted = 0;
    for round in 0..40_u64 {
        let mut tasks = JoinSet::new();
        for at in 0..50 {
            let limiter = limiter.fair_if(at % 2 == 0);
            tasks.spawn(async move { limiter.acquire(2).await });
        }
        sleep(micros(round * 150)).await;
        tasks.abort_all();
        while let Some(ended) = tasks.join_next().await {
            if let Ok(answer) = ended {
                answer.expect("a grant");
                granted += 2;
            }
        }
    }
    becomes_available(&limiter, 100_000 - granted, 5 * SECOND).await;
}

/// Laws 13 and 14: fair callers that leave after half of the interval waste nothing, and who waits
/// behind them, plain or fair, is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_is_used_although_fair_callers_leave() {
    const INTERVAL: Duration = millis(100);
    let (server, proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "left", 10, INTERVAL).await;
    let monitor = Monitor::start(&server.url);
    let stalls = Stalls::watch(&[&proxy.url], millis(50)).await;
    let began = Instant::now();
    let mut hasty = JoinSet::new();
    for _ in 0..40 {
        let fair = limiter.clone().fair();
        hasty.spawn(async move {
            loop {
                let _ = timeout(millis(50), fair.acquire(1)).await;
            }
        });
    }
    sleep(millis(300)).await;
    for patient in [limiter.clone(), limiter.clone().fair()] {
        for _ in 0..5 {
            let served = timeout(5 * SECOND, patient.acquire(1)).await;
            served
                .expect("served beside hasty callers")
                .expect("a permit");
        }
    }
    while began.elapsed() < 3 * SECOND {
        sleep(millis(20)).await;
    }
    hasty.shutdown().await;
    let elapsed = began.elapsed();
    let used = monitor.check(&server.url, "left", 10, INTERVAL);
    let possible = elapsed.as_millis() as u64 / 10;
    println!("{used} of {possible}");
    // A machine that stands still asks too late for some.
    let least = if stalls.longest().is_some() { 4 } else { 2 };
    let is_right = used * least >= possible;
    assert!(is_right, "law 14: {used} of {possible} used");
    becomes_available(&limiter, 10, 3 * SECOND).await;
    check_expiries(&server, &["left"]);
}

/// Waiters of all kinds that leave at random moments, at a rate that is always used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_leave_at_every_moment() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    let monitor = Monitor::start(&server.url);
    let first = limiter(&handles[0], "mixed", 20, INTERVAL).await;
    crowd(900, |at| {
        let limiter = RateLimiter::new(&handles[at as usize % 2], "mixed").fair_if(at % 3 == 0);
        async move {
            sleep(micros(at * 2_200)).await;
            ask(&limiter, at / 7, micros(at * 7_919 % 250_000)).await
        }
    })
    .await;
    monitor.check(&server.url, "mixed", 20, INTERVAL);
    becomes_available(&first, 20, 3 * SECOND).await;
    let began = Instant::now();
    let fair = first.clone().fair();
    assert!((join_all((0..20).map(|_| fair.acquire(1))).await.iter()).all(Result::is_ok));
    let took = began.elapsed();
    assert!(took < SECOND, "law 14: {took:?}");
    check_expiries(&server, &["mixed"]);
}

/// Futures that were polled once and then forgotten hold up nobody, and are served when they
/// are looked at again.
async fn forget_futures_of(limiter: RateLimiter) {
    assert!(limiter.takes(1).await);
    let mut forgotten: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire(1))).collect();
    for future in &mut forgotten {
        assert!(futures_util::poll!(future).is_pending(), "nothing is free");
    }
    for place in 0..10 {
        let limiter = limiter.clone();
        let served = tokio::spawn(async move { limiter.acquire(1).await });
        let served = timeout(6 * SECOND, served).await;
        let served = served.unwrap_or_else(|_| panic!("caller {place} hangs"));
        served.expect("no panic").expect("a permit");
    }
    let late = timeout(PATIENT, join_all(forgotten)).await;
    let late = late.expect("all are served");
    assert!(late.iter().all(Result::is_ok), "{late:?}");
    sleep(millis(100)).await;
    assert_eq!(limiter.free().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_that_nobody_polls() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let cases = [false, true].map(async |is_fair| {
        let name = if is_fair { "fair" } else { "plain" };
        let on_redis = limiter(&redis, name, 1, millis(50)).await;
        let in_memory = RateLimiter::new(MemoryLimiters::default(), name);
        in_memory.sets(overall(1, millis(50))).await;
        let both = [on_redis, in_memory].map(|limiter| limiter.fair_if(is_fair));
        join_all(both.map(forget_futures_of)).await;
    });
    join_all(cases).await;
}

/// The same waiting in memory: whoever leaves wastes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_in_memory_that_leave() {
    let limiter = RateLimiter::new(MemoryLimiters::default(), "left");
    limiter.sets(overall(20, millis(100))).await;
    let began = Instant::now();
    let callers = (0..900_u64).map(|at| {
        let limiter = limiter.fair_if(at % 3 == 0);
        tokio::spawn(async move {
            sleep(micros(at * 2_200)).await;
            ask(&limiter, at / 7, micros(at * 7_919 % 250_000)).await
        })
    });
    let granted = join_all(callers).await.into_iter();
    let granted = granted
        .filter(|got| *got.as_ref().expect("no panic"))
        .count() as u128;
    let possible = (began.elapsed().as_millis() / 100 + 1) * 20;
    let is_right = granted <= possible && granted * 2 >= possible;
    assert!(is_right, "{granted} of {possible}");
    becomes_available(&limiter, 20, 2 * SECOND).await;
    limiter.fair().acquire(20).await.expect("nobody is before");
}
