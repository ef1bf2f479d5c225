//! Rules that change between a charge and its outcome: the rule of the take says what becomes of
//! it.

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
            let service = wrap(&limits.layer("a"));
            let gates = [(); 2].map(|()| Gate::new());
            let start = |gate: usize, status| gates[gate].start(&service, status);
            let (good, bad) = (start(0, 200), start(1, 500));
            until_left(&limits, "a", 8).await;
            replace(&limits, after);
            let newer = limits.check("a", key("x")).await;
            for (gate, task, status) in [(0, good, 200), (1, bad, 500)] {
                gates[gate].open();
                assert_eq!(task.await.expect("no panic"), status, "{case}");
            }
            flushed(&limits).await;
            let left = left_in(&*clocked.store, &before()).await;
            // What was begun after the change counts in the same place, if it is the same.
            let has_window = algorithm == Algorithm::SlidingLog || what != "window";
            let is_same = has_window && !matches!(what, "algorithm" | "gone" | "shadow");
            let used = 1 + u64::from(is_same && newer.is_ok());
            match algorithm {
                Algorithm::Gcra => assert!(left < 10, "{case}: {left}"),
                _ => assert_eq!(left, 10 - used, "{case}"),
            }
            replace(&limits, [before(), of("b", 1, &[])]);
            reset(&limits, "a").await;
            clocked.advance(HOUR * 5);
        }
    }
}
