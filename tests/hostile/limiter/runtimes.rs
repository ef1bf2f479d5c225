//! Handles that are used from several runtimes, and runtimes that end while callers wait.

use crate::*;

fn of_kind(limiter: &RateLimiter, at: u64) -> RateLimiter {
    let limiter = limiter.clone();
    if at.is_multiple_of(2) {
        limiter.fair()
    } else {
        limiter
    }
}

/// Runtimes end with callers on their way and asleep; what is left of them is free again.
#[test]
fn permits_of_runtimes_that_end() {
    let (home, server) = (runtime(), Server::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let redis = home.block_on(handle(&proxy.url));
    let limiter = home.block_on(limiter(&redis, "free", 100_000, HOUR));
    let granted = Arc::<AtomicU64>::default();
    for round in 0..12 {
        let guest = runtime();
        for at in 0..60 {
            let (limiter, granted) = (of_kind(&limiter, at), Arc::clone(&granted));
            guest.spawn(async move {
                limiter.waits(1).await;
                granted.fetch_add(1, Ordering::Relaxed);
            });
        }
        std::thread::sleep(Duration::from_micros(round * 700));
        drop(guest);
    }
    let left = 100_000 - granted.load(Ordering::Relaxed);
    home.block_on(becomes_available(&limiter, left, 4 * SECOND));
    check_expiries(&server, &["free"]);
}

/// Law 13: callers of the home runtime are served, whatever guests were waiting when they ended.
fn guests_end(is_fair: bool) {
    let (home, server) = (runtime(), Server::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let redis = home.block_on(handle(&proxy.url));
    let limiter = home.block_on(limiter(&redis, "busy", 2, millis(100)));
    let limiter = limiter.fair_if(is_fair);
    for round in 0..8 {
        let guest = runtime();
        for _ in 0..60 {
            let limiter = limiter.clone();
            guest.spawn(async move { limiter.acquire(1).await });
        }
        std::thread::sleep(millis(round * 2));
        let waiting = (0..4).map(|_| {
            let limiter = limiter.clone();
            home.spawn(async move { limiter.acquire(1).await })
        });
        let waiting: Vec<_> = waiting.collect();
        drop(guest);
        home.block_on(async {
            for waiting in waiting {
                let served = timeout(3 * SECOND, waiting).await;
                let served = served.unwrap_or_else(|_| panic!("law 13, in round {round}"));
                served.expect("no panic").expect("a permit");
            }
        });
    }
    check_expiries(&server, &["busy"]);
}

#[test]
fn guests_end_beside_plain_callers() {
    guests_end(false);
}

#[test]
fn guests_end_beside_fair_callers() {
    guests_end(true);
}

/// The runtime that connected ends: callers of another one get an answer or an error, in time.
#[test]
fn the_home_runtime_ends() {
    let (home, guest, server) = (runtime(), runtime(), Server::start());
    let redis = home.block_on(handle(&server.url)).timeout(millis(200));
    let busy = home.block_on(limiter(&redis, "busy", 2, millis(100)));
    let sleepers: Vec<_> = (0..20)
        .map(|at| {
            let busy = of_kind(&busy, at);
            guest.spawn(async move { busy.acquire(1).await })
        })
        .collect();
    std::thread::sleep(millis(150));
    drop(home);
    guest.block_on(async {
        let asked = Instant::now();
        let answer = timeout(5 * SECOND, busy.try_acquire(1)).await;
        println!("{answer:?} after {:?}", asked.elapsed());
        let took = asked.elapsed();
        assert!(took < millis(700), "law 6: {took:?}");
        let mut served = 0;
        for sleeper in sleepers {
            let ended = timeout(5 * SECOND, sleeper).await;
            served += u32::from(ended.expect("law 6").expect("no panic").is_ok());
        }
        println!("{served} of 20 are served");
    });
}

/// Law 9: places of a runtime that has ended do not hold up another process for long.
#[test]
fn another_process_after_a_runtime_has_ended() {
    let (home, server) = (runtime(), Server::start());
    let redis = home.block_on(handle(&server.url));
    let ours = home.block_on(limiter(&redis, "ended", 1, millis(100)));
    let dead = runtime();
    let theirs = dead.block_on(handle(&server.url));
    let theirs = RateLimiter::new(&theirs, "ended").fair();
    for _ in 0..50 {
        let theirs = theirs.clone();
        dead.spawn(async move { theirs.acquire(1).await });
    }
    std::thread::sleep(millis(250));
    drop(dead);
    drop(theirs);
    let asked = Instant::now();
    let fair = ours.clone().fair();
    let served = home.block_on(async { timeout(9 * SECOND, fair.acquire(1)).await });
    served
        .expect("5 s after the process ended")
        .expect("a permit");
    println!("served after {:?}", asked.elapsed());
    let next = home.block_on(async { timeout(2 * SECOND, fair.acquire(1)).await });
    next.expect("nobody is before").expect("a permit");
    check_expiries(&server, &["ended"]);
}

/// The same when the clock of the server goes back an hour meanwhile, as by a failover to a server
/// with another clock.
#[test]
fn places_of_the_dead_and_a_clock_that_goes_back() {
    const START: u64 = 1_700_000_000_000_000;
    let (home, server) = (runtime(), Server::start());
    let clock = ManualClock::default();
    clock.set(START);
    let began = Instant::now();
    let ticks = clock.clone();
    home.spawn(async move {
        loop {
            let elapsed = began.elapsed().as_micros() as u64;
            // An hour back after 300 ms.
            let back = if elapsed > 300_000 { 3_600_000_000 } else { 0 };
            ticks.set(START + elapsed - back);
            sleep(millis(1)).await;
        }
    });
    let redis = home.block_on(handle(&server.url));
    let ours = RateLimiter::new(
        LimiterBackend::redis_with_clock(&redis, clock.clone()),
        "back",
    );
    home.block_on(ours.sets(overall(1, millis(100))));
    let dead = runtime();
    let theirs = dead.block_on(handle(&server.url));
    let theirs = RateLimiter::new(LimiterBackend::redis_with_clock(&theirs, clock), "back").fair();
    for _ in 0..20 {
        let theirs = theirs.clone();
        dead.spawn(async move { theirs.acquire(1).await });
    }
    std::thread::sleep(millis(250));
    drop(dead);
    drop(theirs);
    std::thread::sleep(millis(150));
    let fair = ours.fair();
    for _ in 0..2 {
        let served = home.block_on(async { timeout(9 * SECOND, fair.acquire(1)).await });
        served
            .expect("5 s after the process ended")
            .expect("a permit");
    }
}
