//! Rules that change between a charge and its outcome: the rule of the take says what becomes of
//! it.

use super::histories::Holding;
use super::*;

/// Each change that a reload may bring, between the charge and a good head: the units come back
/// where they were charged, and nothing is taken from what was charged under the new rule.
#[tokio::test]
async fn changes_between_charge_and_outcome() {
    for (_, clocked, algorithm) in Stores::start().await.cases() {
        let rule = |max, outcome| of("a", max, outcome).with_algorithm(algorithm);
        let before = || rule(10, &["2xx"]);
        let longer = of_window("a", 10, HOUR * 2, &["2xx"]).with_algorithm(algorithm);
        let other = match algorithm {
            Algorithm::Gcra => Algorithm::SlidingLog,
            _ => Algorithm::Gcra,
        };
        for (what, after) in [
            ("quotas", Some(rule(4, &["2xx"]))),
            ("more quotas", Some(rule(90, &["2xx"]))),
            ("window", Some(longer)),
            ("algorithm", Some(before().with_algorithm(other))),
            ("gone", None),
            ("no outcomes", Some(rule(10, &[]))),
            ("others", Some(rule(10, &["5xx"]))),
            ("shadow", Some(before().into_shadow())),
        ] {
            let case = format!("{} {algorithm:?} {what}", clocked.name);
            let limits = limits(before(), Arc::clone(&clocked.store));
            let mut layer = Holding::new(&limits, "a");
            let (good, bad) = (layer.begin("x", 3).await, layer.begin("x", 2).await);
            assert_eq!(left(&limits, "a").await, 5, "{case}");
            replace(&limits, after);
            let newer = layer.begin("x", 1).await;
            good.expect("allowed").end(200).await;
            bad.expect("allowed").end(500).await;
            flushed(&limits).await;
            let left = left_in(&*clocked.store, &before()).await;
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
            replace(&limits, [before(), of("b", 1, &[])]);
            reset(&limits, "a").await;
            clocked.advance(HOUR * 5);
        }
    }
}

/// The rule of the take says which outcomes: one that is charged under `5xx` and ends after a
/// reload to `2xx` is judged by `5xx`.
#[tokio::test]
async fn outcomes_are_those_of_the_take() {
    let limits = Limits::new([of("a", 10, &["5xx"])]);
    let mut layer = Holding::new(&limits, "a");
    let mut open = Vec::new();
    for outcome in ["2xx", "3xx"] {
        for _ in 0..2 {
            open.push(layer.begin("x", 1).await.expect("allowed"));
        }
        replace(&limits, [of("a", 10, &[outcome])]);
    }
    for (request, (status, expected)) in
        open.into_iter()
            .zip([(200, 6), (500, 7), (500, 7), (200, 8)])
    {
        request.end(status).await;
        assert_eq!(left(&limits, "a").await, expected);
    }
}

/// Reloads all the time, with outcomes and quotas that change: the count is what failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load() {
    let (_server, store) = kit::near().await;
    let (limits, service) = world(of("a", 100_000, &["2xx"]), store);
    let is_over = AtomicBool::new(false);
    let reloads = async {
        for round in 0.. {
            let outcomes: &[&str] = [&["2xx"][..], &["2xx", "3xx"]][round % 2];
            replace(&limits, [of("a", 100_000 + round as u64 % 3, outcomes)]);
            sleep(millis(2)).await;
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    let requests = async {
        in_tasks((0..8).map(|_| {
            let service = service.clone();
            async move {
                for at in 0..100 {
                    pass(&service, [200, 200, 500, 204][at % 4], 1).await;
                }
            }
        }))
        .await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(requests, reloads);
    flushed(&limits).await;
    replace(&limits, [of("a", 100_000, &["2xx"])]);
    assert_eq!(100_000 - left(&limits, "a").await, 200);
    assert_eq!(counted(&limits, "a"), (600, 600, 0));
}
