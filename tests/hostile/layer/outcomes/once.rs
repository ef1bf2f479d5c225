//! Law 15: whoever comes first gives a charge back, once, and only the units that are its own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response};
use kit::Redis;
use tidegate::store::Charges;
use tidegate::{Algorithm, Limits, MemoryStore, Store};
use tower::{Layer, ServiceExt, service_fn};

use super::{ALGORITHMS, ask, counted, flushed, key, left_of, limits, of, request, send, wrap};
use kit::clocked::{Stores, assert_units, charge, take_of};
use kit::{HOUR, PATIENT, behind, connect, millis};

/// `refund`, `settle` and the outcome, of 64 requests at once, on a key that others are charged,
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_and_outcomes_race() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = of("a", 1_000, &["2xx"]).with_algorithm(algorithm);
            let rule = rule.with_cost(5);
            let limits = limits(rule, Arc::clone(&clocked.store));
            let service = wrap(&limits.layer("a"));
            let told = Arc::new(AtomicU64::new(0));
            let tasks = (0..64_u64).map(|at| {
                let (service, told) = (service.clone(), Arc::clone(&told));
                tokio::spawn(async move {
                    // Of 8: 2 stay charged, 2 handlers refund (and one fails), 2 settle at 3 (one
                    // fails), 2 are given back.
                    let how = ["", "refund", "settle", ""][at as usize % 4];
                    let status = if at % 8 < 4 { "200" } else { "500" };
                    let fields = [("x-how", how), ("x-status", status), ("x-used", "3")];
                    let answer = service.oneshot(request(&fields)).await;
                    let answer = answer.expect("an answer");
                    // Somebody asks again, by the response.
                    if at % 4 == 1 {
                        let charges = Charges::from_extensions(answer.extensions());
                        let units = charges.refund().await.expect("an answer");
                        told.fetch_add(units, Ordering::Relaxed);
                    }
                })
            });
            for task in join_all(tasks.collect::<Vec<_>>()).await {
                task.expect("no panic");
            }
            flushed(&limits).await;
            // Of 8: 4 x 5 units back, 2 x 2, and 2 stay.
            let left = left_of(&limits, "a", "x").await;
            assert_eq!(
                told.load(Ordering::Relaxed),
                0,
                "{case}: they were claimed before"
            );
            let (refunds, units, lost) = counted(&limits, "a");
            if algorithm == Algorithm::Gcra {
                // In another order than the takes it may give back less.
                assert!(left <= 1_000 - 8 * (2 * 5 + 2 * 3), "{case}: {left}");
                assert!(units <= 8 * 24 && lost == 0, "{case}: {units}");
            } else {
                assert_eq!(left, 1_000 - 8 * (2 * 5 + 2 * 3), "{case}");
                assert_eq!((refunds, units, lost), (48, 8 * 24, 0), "{case}");
            }
            clocked.advance(3 * HOUR);
        }
    }
}

/// 64 tasks and the outcome of the response race for one charge: its 7 units come back once, and
/// the neighbour's stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_race_for_one_charge() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let store: Arc<dyn Store> = Arc::new(connect(&proxy.url, PATIENT).await);
    for algorithm in ALGORITHMS {
        let rule = of("a", 100, &["2xx"])
            .with_algorithm(algorithm)
            .with_cost(7);
        let limits = limits(rule.clone(), Arc::clone(&store));
        let service = wrap(&limits.layer("a"));
        send(&service, 500).await;
        for round in 0..6 {
            let before = left_of(&limits, "a", "x").await;
            let neighbour = charge(&store, &take_of(&Arc::new(rule.clone()), &key("x"), 3)).await;
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let sender = Arc::new(Mutex::new(Some(sender)));
            let spy = service_fn(move |request: Request<Body>| {
                let charges = Charges::from_extensions(request.extensions());
                let sender = sender.lock().expect("no panic").take();
                sender.expect("one request").send(charges).ok();
                async { Ok::<_, io::Error>(Response::new(Body::empty())) }
            });
            let spied = limits.layer("a").layer(spy);
            let asked = tokio::spawn(spied.oneshot(request(&[])));
            let charges = Arc::new(receiver.await.expect("a request"));
            let tasks = (0..64_u64).map(|at| {
                let charges = Arc::clone(&charges);
                tokio::spawn(async move {
                    let charge = charges.first().expect("one charge");
                    match at % 3 {
                        0 => charge.refund().await.expect("an answer"),
                        1 => charge.settle(at % 9).await.expect("an answer").given_back,
                        _ => charges.of("a").refund().await.expect("an answer"),
                    }
                })
            });
            let tasks = join_all(tasks.collect::<Vec<_>>()).await;
            let units: Vec<u64> = tasks.into_iter().map(|it| it.expect("no panic")).collect();
            asked.await.expect("no panic").expect("an answer");
            flushed(&limits).await;
            let given = units.iter().sum::<u64>();
            assert!(units.iter().filter(|it| **it > 0).count() <= 1, "{units:?}");
            assert!(given <= 7);
            let after = left_of(&limits, "a", "x").await;
            let back = after + 7 + 3 - before;
            let drained = u64::from(algorithm == Algorithm::Gcra);
            let case = format!("{algorithm:?} {round}: {back} came back, {units:?}");
            match given {
                // The outcome, or a handler that used all.
                0 => assert!(back <= 7 + drained, "{case}"),
                given => assert!(back >= given && back <= given + drained, "{case}"),
            }
            let others = neighbour.refund().await.expect("an answer");
            assert_units(algorithm, others, 3);
        }
    }
}

/// A settlement and what came before and after it, in the handler and by the outcome.
#[tokio::test]
async fn settlements() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let case = format!("{} {algorithm:?}", clocked.name);
            let limits = limits(
                of("a", 10, &[]).with_algorithm(algorithm),
                Arc::clone(&clocked.store),
            );
            // Reserved, used, given back.
            for (reserved, used, back) in [
                (10, 0, 10),
                (10, 3, 7),
                (10, 10, 0),
                (10, 11, 0),
                (10, u64::MAX, 0),
                (1, 0, 1),
            ] {
                let admitted = limits.check("a", key("x")).cost(reserved).await;
                let charge = admitted.expect("it is allowed").charge.expect("charged");
                assert_eq!(
                    charge.settle(used).await.expect("an answer").given_back,
                    back,
                    "{case} {used}"
                );
                assert_eq!(
                    left_of(&limits, "a", "x").await,
                    10 - reserved + back,
                    "{case}"
                );
                for again in [0, used, 5] {
                    assert_eq!(
                        charge.settle(again).await.expect("an answer").given_back,
                        0,
                        "{case}"
                    );
                }
                assert_eq!(
                    charge.clone().refund().await.expect("an answer"),
                    0,
                    "{case}"
                );
                assert_eq!(
                    left_of(&limits, "a", "x").await,
                    10 - reserved + back,
                    "{case}"
                );
                limits.reset("a", key("x")).await.expect("an answer");
                clocked.advance(2 * HOUR);
            }
            // Nothing was charged, so there is nothing to settle.
            let free = limits.check("a", key("x")).cost(0).await.expect("allowed");
            assert!(free.charge.is_none(), "{case}");
        }
    }
}

/// A handler that settles at all it reserved has said the last word: a good outcome gives nothing.
#[tokio::test]
async fn a_settlement_stands_against_the_outcome() {
    let limits = Limits::new([of("a", 100, &["2xx", "5xx"]).with_cost(10)]);
    let service = wrap(&limits.layer("a"));
    for (used, left) in [("10", 90), ("4", 86), ("0", 86), ("40", 46)] {
        let settle = [("x-how", "settle"), ("x-used", used)];
        assert_eq!(ask(&service, request(&settle)).await, 200);
        assert_eq!(left_of(&limits, "a", "x").await, left, "{used}");
    }
    // A cost of 0 has no charge, and gives nobody's back.
    let layer = limits.layer("a").cost(|_| 0);
    let free = wrap(&layer);
    for how in ["", "refund", "settle"] {
        assert_eq!(ask(&free, request(&[("x-how", how)])).await, 200);
        assert_eq!(left_of(&limits, "a", "x").await, 46);
    }
}

/// Charges that no longer count are refunded by their outcome: nothing comes back, and nothing of
/// who came later.
#[tokio::test]
async fn an_outcome_after_the_window() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = of("late", 5, &["2xx"]).with_algorithm(algorithm);
            let limits = limits(rule, Arc::clone(&clocked.store));
            let service = wrap(&limits.layer("late"));
            let slow = tokio::spawn({
                let service = service.clone();
                async move { ask(&service, request(&[("x-sleep", "150")])).await }
            });
            super::until(4, async || left_of(&limits, "late", "x").await).await;
            clocked.advance(2 * HOUR);
            for _ in 0..5 {
                assert_eq!(send(&service, 500).await, 500, "{case}");
            }
            assert_eq!(slow.await.expect("no panic"), 200);
            flushed(&limits).await;
            assert_eq!(left_of(&limits, "late", "x").await, 0, "{case}");
            assert_eq!(counted(&limits, "late").1, 0, "{case}");
            clocked.advance(2 * HOUR);
        }
    }
}

/// A reset between the charge and its outcome: what is charged afterwards stays.
#[tokio::test]
async fn a_reset_before_the_outcome() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = of("reset", 5, &["2xx"]).with_algorithm(algorithm);
            let limits = limits(rule, Arc::clone(&clocked.store));
            let service = wrap(&limits.layer("reset"));
            let slow = tokio::spawn({
                let service = service.clone();
                async move { ask(&service, request(&[("x-sleep", "100")])).await }
            });
            super::until(4, async || left_of(&limits, "reset", "x").await).await;
            assert!(limits.reset("reset", key("x")).await.expect("an answer"));
            for _ in 0..5 {
                assert_eq!(send(&service, 500).await, 500, "{case}");
            }
            assert_eq!(slow.await.expect("no panic"), 200);
            flushed(&limits).await;
            assert_eq!(left_of(&limits, "reset", "x").await, 0, "{case}");
            clocked.advance(2 * HOUR);
        }
    }
}

/// The default store, whose refunds need no queue, under many threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_in_memory() {
    for algorithm in ALGORITHMS {
        let rule = of("a", 100_000, &["2xx"]).with_algorithm(algorithm);
        let limits = limits(rule, MemoryStore::new());
        let service = wrap(&limits.layer("a"));
        let tasks = (0..16_u16).map(|task| {
            let service = service.clone();
            tokio::spawn(async move {
                for at in 0..300 {
                    let status = if (at + task) % 3 == 0 { 500 } else { 200 };
                    assert_eq!(send(&service, status).await, status);
                }
            })
        });
        for task in join_all(tasks.collect::<Vec<_>>()).await {
            task.expect("no panic");
        }
        let used = 100_000 - left_of(&limits, "a", "x").await;
        match algorithm {
            // It drains at 28 a second, and gives back what has not begun to.
            Algorithm::Gcra => assert!(used <= 4_800, "{used}"),
            _ => assert_eq!(used, 1_600, "{algorithm:?}"),
        }
    }
}
