//! Requests that wait behind a debt, and debts that arise while they wait.

use super::*;

/// Limits of the rule `p`, in memory and by tokio's clock.
fn of(algorithm: Algorithm, max: u64, window: Duration) -> Limits {
    let rule = kit::owned_rule("p", max, window).with_algorithm(algorithm);
    let store = MemoryStore::new().tokio_clock();
    limits([rule.with_owe_at_most(1_000).with_settling(true)], store)
}

/// After which time there is a unit, as a denial says.
async fn retry_after(limits: &Limits) -> Duration {
    let refused = limits.check("p", "x").await.expect_err("it owes");
    refused.retry_after().expect("some time")
}

/// Checks that wait, and when they are admitted.
fn waits(number: usize, limits: &Limits, cost: u64, up_to: Duration) -> impl Iterator<Item = Wait> {
    let check = move |limits: Limits| async move {
        let admitted = limits.check("p", "x").cost(cost).wait(up_to).await;
        admitted.map(|_| Instant::now())
    };
    let waits = (0..number).map(|_| tokio::spawn(check(limits.clone())));
    waits.collect::<Vec<_>>().into_iter()
}

type Wait = tokio::task::JoinHandle<Result<Instant, Refused>>;

/// Law 1 and law 14: they are granted when the debt has left, and not much later.
async fn check_granted(waits: impl Iterator<Item = Wait>, at: Instant, slack: Duration) {
    for granted in done(waits).await {
        let granted = granted.expect("in time");
        let is_right = granted >= at && granted <= at + slack;
        assert!(is_right, "{granted:?} of {at:?}");
    }
}

/// Whoever waits behind a debt is granted when it has left, and not before; whoever cannot wait for
/// so long is denied at once, with a time that is true.
#[tokio::test(start_paused = true)]
async fn behind_a_debt() {
    for algorithm in Algorithm::ALL {
        // Each unit of GCRA drains in a second: 35 are above max with the next one.
        let used = if algorithm == Algorithm::Gcra { 44 } else { 25 };
        let limits = of(algorithm, 10, secs(10));
        let one = charge(&limits, "p", "x", 1).await;
        assert_eq!(settle(&one, used).await.1, used - 1);
        let began = Instant::now();
        let after = retry_after(&limits).await;
        let impatient = limits.check("p", "x").wait(after / 2).await;
        impatient.expect_err("it is not there by then");
        assert!(began.elapsed() <= after / 2 + millis(1), "{algorithm:?}");
        // GCRA: the third one comes two units later.
        let slack = secs(2) + millis(1_100);
        check_granted(waits(3, &limits, 1, secs(200)), began + after, slack).await;
    }
}

/// A request waits for what an open charge may give back; it is settled beyond instead: the request
/// is denied when its patience is over, and the next one is told a time that is true.
#[tokio::test(start_paused = true)]
async fn hopes_that_end_in_a_debt() {
    for algorithm in COUNTING {
        let limits = of(algorithm, 10, secs(600));
        let open = charge(&limits, "p", "x", 10).await;
        let meter = open.meter();
        let waits = waits(1, &limits, 1, secs(100)).next().expect("one");
        sleep(secs(3)).await;
        assert!(!waits.is_finished(), "{algorithm:?}: it hopes");
        meter.add(47);
        drop((meter, open));
        waits.await.expect("no panic").expect_err("it owes");
        let after = retry_after(&limits).await;
        sleep(after - millis(2)).await;
        limits.check("p", "x").await.expect_err("law 3");
        sleep(millis(2)).await;
        limits.check("p", "x").await.expect("law 3");
    }
}

/// A settlement that gives back wakes who waits; beside a debt of others it frees nothing, and
/// nobody is admitted for it.
#[tokio::test(start_paused = true)]
async fn what_comes_back_beside_a_debt() {
    for algorithm in COUNTING {
        let limits = of(algorithm, 10, secs(600));
        let owing = charge(&limits, "p", "x", 4).await;
        let open = charge(&limits, "p", "x", 6).await;
        let waits = waits(1, &limits, 3, secs(30)).next().expect("one");
        sleep(secs(1)).await;
        // 15 are used, and 9 when the other one is given back.
        assert_eq!(settle(&owing, 9).await, (0, 5, 0));
        sleep(secs(1)).await;
        assert_eq!(settle(&open, 0).await, (6, 0, 0));
        assert_eq!(kit::left(&limits, "p", "x").await, 1, "{algorithm:?}");
        waits.await.expect("no panic").expect_err("1 of 3 is free");
        limits.check("p", "x").await.expect("law 14: one is free");
    }
}
