//! `RateLimitLayer::plan_value`: quotas of thousands of customers, beside plans, other layers and
//! checks.

use super::*;

/// The plan from the table, then the one with a name, then the rule's own quotas, also through a
/// layer without a table, and through `check`. A window that is new to a key counts from then on, and
/// what was charged before as far as windows that are no longer carry it.
#[tokio::test]
async fn the_table_then_the_plan_then_the_rule() {
    for algorithm in ALGORITHMS {
        let (clock, store) = clocked();
        let rule = of_own("api", &[(1_000, SECOND)]).with_algorithm(algorithm);
        let rule = with_plans(rule, &[("pro", &[(2_000, 2 * SECOND)])]);
        let limits = Limits::new([rule.with_key(Header::new("x-key"))]).store(store);
        let day = Plan::from(quotas(&[(10, DAY)]));
        let is_on = Arc::new(AtomicBool::new(true));
        let switch = Arc::clone(&is_on);
        let table = wrap(limits.layer("api").plan_value(move |_| {
            let is_on = switch.load(Ordering::Relaxed);
            is_on.then(|| day.clone())
        }));
        let plain = wrap(limits.layer("api"));
        for name in ["a", "b", "c", "d"] {
            is_on.store(false, Ordering::Relaxed);
            for _ in 0..3 {
                match name {
                    "a" => assert_eq!(status(&table, name, None).await, 200),
                    "b" => assert_eq!(status(&table, name, Some("pro")).await, 200),
                    "c" => assert_eq!(status(&plain, name, Some("pro")).await, 200),
                    _ => assert!(limits.check("api", key(name)).await.is_ok()),
                }
            }
            clock.set(clock.now() + 500_000);
            is_on.store(true, Ordering::Relaxed);
            let answer = see(&table, name, Some("pro")).await;
            assert!(answer.contains("q=10;w=86400"), "{answer}");
            // A log counts what other windows were charged; else the day begins empty.
            let left = if algorithm == Algorithm::SlidingLog {
                6
            } else {
                9
            };
            let is_left = answer.contains(&format!(";r={left};"));
            assert!(is_left, "{algorithm:?}, {name}: {answer}");
        }
    }
}

/// Thousands of quotas with names from a table: clients see the names, metrics have none of them.
#[tokio::test]
async fn names_from_a_table_are_no_labels() {
    let limits = Limits::new([hourly("api", 3, &[("pro", 20)])]).store(clocked().1);
    let layer = limits.layer("api").plan_value(|head| {
        let policy = Policy::new(field(head, "x-key")?, Quota::per_hour(1));
        Plan::of([policy]).ok()
    });
    let service = wrap(layer);
    let before = published(&limits).lines().count();
    for at in 0..1_500 {
        let name = format!("tenant{at}");
        let answer = see(&service, &name, Some("pro")).await;
        let policy = format!(r#"\"{name}\";q=1;w=3600"#);
        assert!(answer.contains(&policy), "{answer}");
        let denied = see(&service, &name, None).await;
        let problem = format!(r#"\"violated-policies\":[\"{name}\"]"#);
        assert!(denied.contains(&problem), "{denied}");
    }
    let text = published(&limits);
    assert!(!text.contains("tenant"), "{text}");
    let lines = text.lines().count();
    assert!(lines < before + 20, "{before} lines, then {text}");
    let rule = counters(&limits, "api");
    let decided = [DecisionOutcome::Allowed, DecisionOutcome::Denied];
    assert_eq!(decided.map(|it| rule.decisions(it)), [1_500; 2]);
    assert!(rule.denials.len() < 10, "{:?}", rule.denials);
}
