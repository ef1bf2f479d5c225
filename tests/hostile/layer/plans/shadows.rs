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
