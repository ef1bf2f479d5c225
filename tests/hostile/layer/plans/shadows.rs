//! Shadow rules with plans deny nothing; a candidate is asked for requests without a plan only.

use super::*;

/// A shadow rule: nobody is denied or given fields, and the counters say what each plan would do.
#[tokio::test]
async fn a_shadow_rule_with_plans() {
    let plans: [(&str, Pairs<'_>); 2] = [("none", &[(0, HOUR)]), ("pro", &[(9, HOUR)])];
    let rule = with_plans(of_own("a", &[(2, HOUR)]), &plans);
    let limits = Limits::new([rule.into_shadow()]);
    let service = wrap(limits.layer("a"));
    for at in 0..40 {
        let plan = [None, Some("none"), Some("pro"), Some("unknown")][at % 4];
        let answer = see(&service, "x", plan).await;
        assert_eq!(answer, "200 [] b\"\"", "{plan:?}");
        assert!(limits.check("a", "x").plan("none").await.is_ok());
    }
    let rule = counters(&limits, "a");
    let outcomes = DecisionOutcome::ALL.map(|it| rule.decisions(it));
    // Allowed as if it was enforced, and the last one is what would have been denied.
    assert_eq!(outcomes, [9, 0, 0, 0, 0, 71]);
    assert_eq!(rule.unknown_plans, 10);
}

/// The candidate: asked as often as there are requests without a plan, and with an unknown one; not
/// about quotas that are not the rule's own.
#[tokio::test]
async fn a_candidate_is_for_requests_without_a_plan() {
    let listening = Stub::listening(MemoryStore::new());
    let rule = hourly("a", 1_000, &[("pro", 1_000)]).with_shadow(of_own("a", &[(3, HOUR)]));
    let limits = Limits::new([rule]).store(listening.clone());
    let plain = wrap(limits.layer("a"));
    let empty_table = wrap(limits.layer("a").plan_value(|_| None));
    let plan = Plan::from(quotas(&[(2_000, HOUR)]));
    let table = wrap(limits.layer("a").plan_value(move |_| Some(plan.clone())));
    let asked = || listening.asked(|take| take.rule().is_shadow());
    for (service, plan, expected) in [
        (&plain, None, 10),
        (&plain, Some("pro"), 0),
        (&plain, Some("unknown"), 10),
        (&empty_table, None, 10),
        (&empty_table, Some("pro"), 0),
        (&table, None, 0),
    ] {
        let before = asked();
        assert_eq!(admitted(service, "x", plan, 10).await, 10);
        assert_eq!(asked() - before, expected, "{plan:?}");
    }
    let before = asked();
    assert!(limits.check("a", "x").plan("pro").await.is_ok());
    assert!(limits.check("a", "x").await.is_ok());
    assert_eq!(asked() - before, 1);
    let denied = counters(&limits, "a").shadow_denials;
    assert_eq!(denied.iter().map(|it| it.1).sum::<u64>(), 31 - 3);
}

/// A whole file in shadow, and switched off, with plans in it.
#[tokio::test]
async fn a_file_in_shadow_and_switched_off() {
    let plans = "[rules.a]\nmax-count = 0\nwindow = \"1m\"\n\
                 [rules.a.plans.pro]\nmax-count = 0\nwindow = \"1h\"\n";
    for head in ["shadow = true\n", "enabled = false\n"] {
        let limits = Limits::from_toml(&format!("{head}{plans}")).expect("valid");
        let service = wrap(limits.layer("a"));
        let asked = [None, Some("pro"), Some("x")].map(|plan| status(&service, "x", plan));
        assert_eq!(join_all(asked).await, [200; 3], "{head}");
        assert!(limits.check("a", "x").plan("pro").await.is_ok());
    }
    // A rule in shadow that becomes enforced counts anew, under each plan.
    let rule = || with_plans(of_own("a", &[(1, MINUTE)]), &[("pro", &[(3, HOUR)])]);
    let limits = Limits::new([rule().into_shadow()]);
    let service = wrap(limits.layer("a"));
    assert_eq!(admitted(&service, "x", Some("pro"), 9).await, 9);
    replace(&limits, rule());
    assert_eq!(admitted(&service, "x", Some("pro"), 9).await, 3);
}
