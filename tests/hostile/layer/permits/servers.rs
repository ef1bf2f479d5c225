//! Servers that forget, stand still, or read another time, while requests run.

use super::*;

/// At most max more run, what runs has its permits again, and nothing more comes until fewer than
/// max run.
#[tokio::test]
async fn a_server_that_is_emptied_while_requests_run() {
    let server = Redis::start();
    let process = async || {
        let store = store_at(&server.url, PATIENT).await;
        limits(leased(4, 3 * SECOND), store)
    };
    let (one, two) = (process().await, process().await);
    let mut running = hold(&one, "k", 4).await;
    run(&server, "FLUSHALL");
    let emptied = Instant::now();
    while let Ok(admitted) = check(&two, "k").await {
        running.push(admitted);
    }
    assert!(running.len() <= 8, "{} more", running.len() - 4);
    until_held(&server, running.len() as u64).await;
    // A third of the lease, and what a busy machine takes.
    let took = emptied.elapsed();
    assert!(took < 2 * SECOND, "{took:?}");
    for process in [&one, &two] {
        check(process, "k").await.expect_err("above max");
    }
    // Of those that run, four have to end before the next may come.
    while running.len() > 4 {
        running.remove(0);
        until_held(&server, running.len() as u64).await;
        assert_eq!(check(&two, "k").await.is_err(), running.len() >= 4);
    }
    drop(running);
    until_held(&server, 0).await;
    until_free(&two, "k", 4).await;
}

/// It stands still, or is killed and comes back empty, for longer than a lease.
#[tokio::test]
async fn a_server_that_is_away_for_longer_than_a_lease() {
    for killed in [false, true] {
        let mut server = Redis::start();
        let store = store_at(&server.url, millis(300)).await;
        let limits = limits(leased(4, SECOND), store);
        let mut running = hold(&limits, "k", 4).await;
        server.go_away(killed);
        // One ends meanwhile: its permit must not come back by a renewal.
        drop(running.pop());
        sleep(millis(2_500)).await;
        server.come_back(killed);
        until_held(&server, 3).await;
        running.append(&mut hold(&limits, "k", 1).await);
        until_held(&server, 4).await;
        check(&limits, "k").await.expect_err("four run");
        drop(running);
        until_held(&server, 0).await;
        until_free(&limits, "k", 4).await;
    }
}

/// The clock steps, by less and by more than a lease: what runs gives back what it has, and in the
/// end all can be had.
#[tokio::test]
async fn a_clock_that_steps_while_requests_run() {
    let server = Redis::start();
    for step in [-3_600_i64, -5, 5, 3_600] {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_000);
        let store = store_at(&server.url, PATIENT).await.clock(clock.clone());
        let limits = limits(leased(3, 10 * SECOND), store);
        let key = format!("k{step}");
        let first = hold(&limits, &key, 3).await;
        let now = clock.now().checked_add_signed(step * 1_000_000);
        clock.set(now.expect("a time"));
        if step < 0 {
            let refused = check(&limits, &key).await;
            refused.expect_err("they go on counting");
        }
        let later = hold(&limits, &key, usize::from(step > 10)).await;
        drop(first);
        until_held(&server, later.len() as u64).await;
        drop(later);
        until_held(&server, 0).await;
        until_free(&limits, &key, 3).await;
    }
}
