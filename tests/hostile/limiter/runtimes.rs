//! Handles that are used from several runtimes, and runtimes that end while callers wait.

use crate::*;

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
            let (limiter, granted) = (limiter.fair_if(at % 2 == 0), Arc::clone(&granted));
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
