//! Rules that change between a charge and its outcome: the rule of the take says what becomes of
//! it.

use std::sync::Arc;

use tidegate::{Algorithm, Limits, Rule, Rules};

use super::histories::Holding;
use super::{ALGORITHMS, flushed, key, left_in, left_of, limits, of, send, wrap};
use kit::clocked::Stores;
use kit::{HOUR, millis};

fn replace(limits: &Limits, rules: impl IntoIterator<Item = Rule>) {
    limits.rules().replace(Rules::from_iter(rules));
}

/// Each change that a reload may bring, between the charge and a good head: the units come back
/// where they were charged, and nothing is taken from what was charged under the new rule.
#[tokio::test]
async fn changes_between_charge_and_outcome() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let before = || of("a", 10, &["2xx"]).with_algorithm(algorithm);
            let other = match algorithm {
                Algorithm::Gcra => Algorithm::SlidingLog,
                _ => Algorithm::Gcra,
            };
            let changes: [(&str, Vec<Rule>); 8] = [
                (
                    "quotas",
                    vec![of("a", 4, &["2xx"]).with_algorithm(algorithm)],
                ),
                (
                    "more quotas",
                    vec![of("a", 90, &["2xx"]).with_algorithm(algorithm)],
                ),
                (
                    "window",
                    vec![super::of_window("a", 10, HOUR * 2, &["2xx"]).with_algorithm(algorithm)],
                ),
                (
                    "algorithm",
                    vec![of("a", 10, &["2xx"]).with_algorithm(other)],
                ),
                ("gone", vec![]),
                (
                    "no outcomes",
                    vec![of("a", 10, &[]).with_algorithm(algorithm)],
                ),
                (
                    "others",
                    vec![of("a", 10, &["5xx"]).with_algorithm(algorithm)],
                ),
                ("shadow", vec![before().into_shadow()]),
            ];
            for (what, rules) in changes {
                let case = format!("{} {algorithm:?} {what}", clocked.name);
                let limits = limits(before(), Arc::clone(&clocked.store));
                let mut layer = Holding::new(&limits, "a");
                let (good, bad) = (layer.begin("x", 3).await, layer.begin("x", 2).await);
                assert_eq!(left_of(&limits, "a", "x").await, 5, "{case}");
                replace(&limits, rules);
                let newer = layer.begin("x", 1).await;
                good.expect("allowed").end(200).await;
                bad.expect("allowed").end(500).await;
                flushed(&limits).await;
                let left = left_in(&*clocked.store, &before(), "x").await;
                // What was begun after the change counts in the same place, if it is the same.
                let is_same = !matches!(what, "algorithm" | "gone" | "shadow");
                let used = 2 + u64::from(is_same && newer.is_some());
                match algorithm {
                    Algorithm::Gcra => assert!(left <= 10 - 2, "{case}: {left}"),
                    _ => assert_eq!(left, 10 - used, "{case}"),
                }
                if let Some(newer) = newer {
                    newer.end(500).await;
                }
                flushed(&limits).await;
                limits
                    .rules()
                    .replace(Rules::from_iter([before(), of("b", 1, &[])]));
                limits.reset("a", key("x")).await.expect("an answer");
                clocked.advance(HOUR * 5);
            }
        }
    }
}

/// The rule of the take says which outcomes: one that is charged under `5xx` and ends after a
/// reload to `2xx` is judged by `5xx`.
#[tokio::test]
async fn outcomes_are_those_of_the_take() {
    let limits = Limits::new([of("a", 10, &["5xx"])]);
    let mut layer = Holding::new(&limits, "a");
    let first = [layer.begin("x", 1).await, layer.begin("x", 1).await];
    replace(&limits, [of("a", 10, &["2xx"])]);
    let second = [layer.begin("x", 1).await, layer.begin("x", 1).await];
    let [good, bad] = first.map(|it| it.expect("allowed"));
    good.end(200).await;
    assert_eq!(left_of(&limits, "a", "x").await, 6);
    bad.end(500).await;
    assert_eq!(left_of(&limits, "a", "x").await, 7);
    let [good, bad] = second.map(|it| it.expect("allowed"));
    bad.end(500).await;
    assert_eq!(left_of(&limits, "a", "x").await, 7);
    good.end(200).await;
    assert_eq!(left_of(&limits, "a", "x").await, 8);
}

/// Reloads all the time, from 2xx to none and back, with quotas that change: the count is what
/// failed or began while nothing was given back, and never less than what failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load() {
    use kit::Redis;
    use std::sync::atomic::{AtomicBool, Ordering};
    let server = Redis::start();
    let store = kit::connect(&server.url, kit::PATIENT).await;
    let limits = Arc::new(limits(of("a", 100_000, &["2xx"]), store));
    let service = wrap(&limits.layer("a"));
    let is_over = Arc::new(AtomicBool::new(false));
    let reloads = tokio::spawn({
        let (limits, is_over) = (Arc::clone(&limits), Arc::clone(&is_over));
        async move {
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                round += 1;
                let outcomes: &[&str] = [&["2xx"][..], &["2xx", "3xx"]][round % 2];
                replace(&limits, [of("a", 100_000 + round as u64 % 3, outcomes)]);
                tokio::time::sleep(millis(2)).await;
            }
        }
    });
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                for at in 0..100 {
                    let status = [200, 200, 500, 204][at % 4];
                    assert_eq!(send(&service, status).await, status);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    is_over.store(true, Ordering::Relaxed);
    reloads.await.expect("no panic");
    flushed(&limits).await;
    replace(&limits, [of("a", 100_000, &["2xx"])]);
    assert_eq!(100_000 - left_of(&limits, "a", "x").await, 200);
    assert_eq!(super::counted(&limits, "a"), (600, 600, 0));
}
