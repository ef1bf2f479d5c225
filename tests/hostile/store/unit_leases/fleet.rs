//! Law 1 with leases over a real server, beside takers that have none.

use super::*;

/// Takers whose rule has no lease count leased units until the lease and the window are over: one
/// that asks when the window of a charge is over, and that of its use is not, is not told that the
/// unit is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takers_without_a_lease() {
    const WINDOW: Duration = Duration::from_secs(5);
    const MAX: u64 = 1_000;
    let (server, plain) = near().await;
    let leasing = Resilient::bare(connect(&server.url, PATIENT).await);
    let with = leased_log("mixed", MAX, WINDOW, millis(100));
    let without = take(&rule("mixed", MAX, WINDOW), "x");
    let mut connection = server.connection();
    let mut time = || -> u64 {
        let time = redis::cmd("TIME").query(&mut connection);
        let (seconds, micros): (u64, u64) = time.expect("the time");
        seconds * 1_000_000 + micros
    };
    // Used at this time of the server or later, and charged then.
    let late = |(used, charged): &(u64, u64)| used.saturating_sub(*charged);
    let mut used: Vec<(u64, u64)> = Vec::new();
    let began = Instant::now();
    // A busy machine needs longer until it leases.
    let latest = loop {
        let latest = used.iter().max_by_key(|one| late(one)).copied();
        let latest = latest.filter(|one| late(one) > 20_000);
        if let Some(latest) = latest.filter(|_| used.len() >= 150) {
            break latest;
        }
        assert!(began.elapsed() < PATIENT, "no unit was used late");
        let before = time();
        let decision = decide(&leasing, &with).await;
        used.push((before, decision.receipt().expect("charged").stamp()));
        sleep(millis(2)).await;
    };
    let window = WINDOW.as_micros() as u64;
    while time() <= latest.1 + window + 1_000 {
        sleep(millis(1)).await;
    }
    let free = remaining(&plain, &without).await;
    let now = time();
    let inside = used.iter().filter(|(at, _)| at + window > now).count() as u64;
    assert!(free + inside <= MAX, "law 1: {free} free, {inside} used");
}
