//! Requests that wait behind a debt, and debts that arise while they wait.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Algorithm, Limits, MemoryStore, Quota, Rule};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::{COUNTING, charge, secs};
use kit::millis;

fn of(algorithm: Algorithm, max: u64, window: Duration) -> Rule {
    let quota = Quota::new(window, max).expect("a valid quota");
    let rule = Rule::new("p", [quota]).expect("a valid rule");
    rule.with_algorithm(algorithm).with_owe_at_most(1_000)
}

fn limits(rule: &Rule) -> Limits {
    let store = Arc::new(MemoryStore::new().tokio_clock());
    Limits::new([rule.clone()]).store(store)
}

/// Whoever waits behind a debt is granted when it has left, and not before; whoever cannot wait for
/// so long is denied at once, with a time that is true.
#[tokio::test(start_paused = true)]
async fn behind_a_debt() {
    for (algorithm, used) in [
        (Algorithm::SlidingLog, 25),
        (Algorithm::SlidingWindow, 25),
        (Algorithm::FixedWindow, 25),
        // Each unit drains in a second: 35 are above max with the next one.
        (Algorithm::Gcra, 44),
    ] {
        let rule = of(algorithm, 10, secs(10));
        let limits = limits(&rule);
        let one = charge(&limits, "p", "x", 1).await;
        assert_eq!(one.settle(used).await.expect("an answer").charged, used - 1);
        let began = Instant::now();
        let refused = limits.check("p", "x").await.expect_err("it owes");
        let after = refused.retry_after().expect("some time");
        let impatient = limits.check("p", "x").wait(after / 2).await;
        impatient.expect_err("it is not there by then");
        assert!(began.elapsed() <= after / 2 + millis(1), "{algorithm:?}");
        let waits = (0..3).map(|_| {
            let limits = limits.clone();
            tokio::spawn(async move {
                let admitted = limits.check("p", "x").wait(secs(200)).await;
                admitted.map(|_| Instant::now())
            })
        });
        for wait in waits.collect::<Vec<_>>() {
            let granted = wait.await.expect("no panic").expect("in time") - began;
            assert!(granted >= after, "{algorithm:?}: {granted:?} of {after:?}");
            // GCRA: the third one comes two units later.
            let late = after + secs(2) + millis(1_100);
            assert!(
                granted <= late,
                "law 14: {algorithm:?}: {granted:?} of {after:?}"
            );
        }
    }
}

/// A debt arises while requests wait: they are admitted when it has left, none of them earlier.
#[tokio::test(start_paused = true)]
async fn a_debt_that_arises_while_they_wait() {
    for algorithm in COUNTING {
        let rule = of(algorithm, 10, secs(4));
        let limits = limits(&rule);
        let mut charges = Vec::new();
        for _ in 0..10 {
            charges.push(charge(&limits, "p", "x", 1).await);
        }
        let tasks = (0..5).map(|_| {
            let limits = limits.clone();
            tokio::spawn(async move {
                let admitted = limits.check("p", "x").wait(secs(60)).await;
                admitted.map(|_| Instant::now())
            })
        });
        let tasks: Vec<_> = tasks.collect();
        sleep(millis(1_500)).await;
        let settling = Instant::now();
        let settled = charges[0].settle(31).await.expect("an answer");
        assert_eq!(settled.charged, 30, "{algorithm:?}");
        let refused = limits.check("p", "x").await.expect_err("it owes");
        let after = refused.retry_after().expect("some time");
        for task in tasks {
            let granted = task.await.expect("no panic").expect("in time") - settling;
            assert!(
                granted >= after,
                "law 1: {algorithm:?}: {granted:?} of {after:?}"
            );
            let late = after + millis(1_100);
            assert!(
                granted <= late,
                "law 14: {algorithm:?}: {granted:?} of {after:?}"
            );
        }
    }
}

/// A request hopes for what an open charge may give back; it is settled beyond instead: the request
/// is denied then, not after all its patience, and the next one is told a time that is true.
#[tokio::test(start_paused = true)]
async fn hopes_that_end_in_a_debt() {
    for algorithm in COUNTING {
        let rule = of(algorithm, 10, secs(600));
        let limits = limits(&rule);
        let open = charge(&limits, "p", "x", 10).await;
        let meter = open.meter();
        let began = Instant::now();
        let waits = tokio::spawn({
            let limits = limits.clone();
            async move { limits.check("p", "x").wait(secs(100)).await.map(|_| ()) }
        });
        sleep(secs(3)).await;
        assert!(!waits.is_finished(), "{algorithm:?}: it hopes");
        meter.add(47);
        drop((meter, open));
        waits.await.expect("no panic").expect_err("it owes");
        let waited = began.elapsed();
        assert!(
            waited <= secs(5),
            "{algorithm:?}: no hope is left: {waited:?}"
        );
        let refused = limits.check("p", "x").await.expect_err("it owes");
        let after = refused.retry_after().expect("some time");
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
        let rule = of(algorithm, 10, secs(600));
        let limits = limits(&rule);
        let [owing, open] = [
            charge(&limits, "p", "x", 4).await,
            charge(&limits, "p", "x", 6).await,
        ];
        let waits = tokio::spawn({
            let limits = limits.clone();
            async move {
                limits
                    .check("p", "x")
                    .cost(3)
                    .wait(secs(30))
                    .await
                    .map(|_| ())
            }
        });
        sleep(secs(1)).await;
        // 15 are used, and 9 when the other one is given back.
        assert_eq!(owing.settle(9).await.expect("an answer").charged, 5);
        sleep(secs(1)).await;
        assert_eq!(open.settle(0).await.expect("an answer").given_back, 6);
        let left = limits
            .peek("p", "x")
            .await
            .expect("an answer")
            .expect("a rule");
        assert_eq!(left.remaining(), 1, "{algorithm:?}");
        waits.await.expect("no panic").expect_err("1 of 3 is free");
        limits.check("p", "x").await.expect("law 14: one is free");
    }
}

/// What clients are told: the fields of a denial behind a debt are true, in whole seconds.
#[tokio::test(start_paused = true)]
async fn fields_behind_a_debt() {
    for algorithm in [COUNTING[0], COUNTING[1], COUNTING[2], Algorithm::Gcra] {
        let rule = of(algorithm, 10, secs(10)).with_key(|_: &http::request::Parts| Ok("x".into()));
        let limits = limits(&rule);
        let app = kit::app(limits.layer("p"));
        let send = async || {
            let request = http::Request::get("/").body(axum::body::Body::empty());
            let response = app.clone().oneshot(request.expect("valid")).await;
            let response = response.expect("axum does not fail");
            let field = response.headers().get("retry-after").cloned();
            let after = field.map(|it| it.to_str().expect("text").parse::<u64>());
            (
                response.status().as_u16(),
                after.map(|it| it.expect("a number")),
            )
        };
        let one = charge(&limits, "p", "x", 4).await;
        sleep(millis(300)).await;
        assert!(one.settle(90).await.expect("an answer").charged >= 85);
        let (status, after) = send().await;
        let after = after.expect("a time");
        assert_eq!(status, 429, "{algorithm:?}");
        sleep(secs(after) - millis(1_001)).await;
        assert_eq!(send().await.0, 429, "{algorithm:?}: {after} s");
        sleep(millis(1_001)).await;
        assert_eq!(send().await, (200, None), "{algorithm:?}: law 3: {after} s");
    }
}
