//! Servers that forget, stand still, or read another time, while requests run.

use kit::proxy::{Mode, Proxy};
use tidegate::test_util::ManualClock;

use super::*;

async fn hold(limits: &Limits, key: &str, number: usize) -> Vec<Admitted> {
    let mut all = Vec::new();
    let began = Instant::now();
    while all.len() < number {
        assert!(began.elapsed() < PATIENT, "{} held", all.len());
        match check(limits, key).await {
            Ok(admitted) => all.push(admitted),
            Err(_) => sleep(millis(20)).await,
        }
    }
    all
}

/// At most max more run, what runs has its permits again, and nothing more comes until fewer than
/// max run.
#[tokio::test]
async fn a_server_that_is_emptied_while_requests_run() {
    let server = Redis::start();
    let of = async |rule| limits(rule, store_at(&server.url, PATIENT).await);
    let one = of(leased(4, 3 * SECOND)).await;
    let two = of(leased(4, 3 * SECOND)).await;
    let mut first = hold(&one, "k", 4).await;
    run::<()>(&server, "FLUSHALL");
    let mut more = Vec::new();
    while let Ok(admitted) = check(&two, "k").await {
        more.push(admitted);
    }
    assert!(more.len() <= 4, "{} more", more.len());
    until_held(&server, 4 + more.len() as u64).await;
    for process in [&one, &two] {
        check(process, "k").await.expect_err("above max");
    }
    // Of those that run, four have to end before the next may come.
    while first.len() + more.len() > 4 {
        drop(first.pop().or_else(|| more.pop()));
        until_held(&server, (first.len() + more.len()) as u64).await;
        let more_than_max = first.len() + more.len() >= 4;
        assert_eq!(check(&two, "k").await.is_err(), more_than_max);
    }
    drop((first, more));
    until_held(&server, 0).await;
    until_free(&two, "k", 4).await;
}

/// Releases at every moment around a renewal that finds its permit gone.
#[tokio::test]
async fn no_renewal_brings_back_what_was_released() {
    const LEASE: Duration = Duration::from_secs(15);
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let limits = limits(leased(2, LEASE), store_at(&proxy.url, PATIENT).await);
    proxy.all(Mode::Delay {
        calls: millis(60),
        replies: millis(60),
    });
    let mut holders = Vec::new();
    for number in 0..100_u64 {
        let check = limits.check("p", format!("k{number}")).into_future();
        holders.push(tokio::spawn(async move {
            let admitted = check.await.expect("free");
            // The renewal comes after a third of the lease, and the next one later.
            sleep(LEASE / 3 - millis(600) + millis(14 * number)).await;
            drop(admitted);
        }));
    }
    until_held(&server, 100).await;
    sleep(LEASE / 3 - millis(900)).await;
    run::<()>(&server, "FLUSHALL");
    for holder in holders {
        holder.await.expect("no panic");
    }
    let began = Instant::now();
    while held(&server) > 0 {
        let waits = began.elapsed() < LEASE / 3;
        assert!(waits, "{} came back", held(&server));
        sleep(millis(20)).await;
    }
    for _ in 0..20 {
        sleep(millis(50)).await;
        assert_eq!(held(&server), 0, "brought back");
    }
}

/// It stands still, or is killed and comes back empty, for longer than a lease.
#[tokio::test]
async fn a_server_that_is_away_for_longer_than_a_lease() {
    for killed in [false, true] {
        let mut server = Redis::start();
        let store = store_at(&server.url, millis(300)).await;
        let limits = limits(leased(4, SECOND), store);
        let mut first = hold(&limits, "k", 4).await;
        match killed {
            true => server.kill(),
            false => server.signal("STOP"),
        }
        // One ends meanwhile: its permit must not come back by a renewal.
        drop(first.pop());
        sleep(millis(2_500)).await;
        match killed {
            true => server.restart(),
            false => server.signal("CONT"),
        }
        until_held(&server, 3).await;
        let mut others = hold(&limits, "k", 1).await;
        until_held(&server, 4).await;
        check(&limits, "k").await.expect_err("four run");
        first.append(&mut others);
        drop(first);
        until_held(&server, 0).await;
        until_free(&limits, "k", 4).await;
    }
}

/// Held for several leases, and never more than max; under several keys, from two processes.
#[tokio::test]
async fn what_runs_keeps_its_permits() {
    let server = Redis::start();
    let of = async || limits(leased(2, 3 * SECOND), store_at(&server.url, PATIENT).await);
    let (one, two) = (of().await, of().await);
    let held_by = async |limits: &Limits| {
        let mut all = Vec::new();
        for number in 0..50 {
            all.extend(hold(limits, &format!("k{number}"), 1).await);
        }
        all
    };
    let all = (held_by(&one).await, held_by(&two).await);
    let began = Instant::now();
    while began.elapsed() < 8 * SECOND {
        assert_eq!(held(&server), 100);
        let key = format!("k{}", began.elapsed().as_millis() % 50);
        check(&one, &key).await.expect_err("two run");
        sleep(millis(40)).await;
    }
    drop(all);
    until_held(&server, 0).await;
}

/// The clock steps, by less and by more than a lease: what runs gives back what it has, and in the
/// end all can be had.
#[tokio::test]
async fn a_clock_that_steps_while_requests_run() {
    let server = Redis::start();
    for (number, step) in [-3_600_i64, -5, 5, 3_600].into_iter().enumerate() {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_000);
        let store = store_at(&server.url, PATIENT).await.clock(clock.clone());
        let limits = limits(leased(3, 10 * SECOND), store);
        let key = format!("k{number}");
        let first = hold(&limits, &key, 3).await;
        let now = clock.now().checked_add_signed(step * 1_000_000);
        clock.set(now.expect("a time"));
        let later = match step < 0 {
            // They go on counting.
            true => {
                check(&limits, &key).await.expect_err("three run");
                Vec::new()
            }
            false => hold(&limits, &key, usize::from(step > 10)).await,
        };
        drop(first);
        until_held(&server, later.len() as u64).await;
        drop(later);
        until_held(&server, 0).await;
        until_free(&limits, &key, 3).await;
    }
}
