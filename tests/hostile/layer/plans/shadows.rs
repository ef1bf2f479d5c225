//! Shadow rules with plans deny nothing; a candidate is asked for requests without a plan only.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::metrics::DecisionOutcome;
use tidegate::{Header, Limits, MemoryStore, Rules};

use super::{of_own, quotas, seen, send, status, with_plans, wrap};
use kit::HOUR;
use kit::stub::Stub;

/// A shadow rule: nobody is denied or given fields, and the counters say what each plan would do.
#[tokio::test]
async fn a_shadow_rule_with_plans() {
    let rule = with_plans(
        of_own("a", &[(2, HOUR)]),
        &[("none", &[(0, HOUR)]), ("pro", &[(9, HOUR)])],
    );
    let limits = Limits::new([rule.into_shadow()]);
    let service = wrap(limits.layer("a"));
    for at in 0..40 {
        let plan = [None, Some("none"), Some("pro"), Some("unknown")][at % 4];
        let answer = seen(send(&service, "x", plan).await).await;
        assert_eq!(answer, "200 [] b\"\"", "{plan:?}");
        assert!(limits.check("a", "x").plan("none").await.is_ok());
    }
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("a").expect("used");
    println!("{rule:?}");
    let outcomes = DecisionOutcome::ALL.map(|it| rule.decisions(it));
    let [allowed, denied, busy, held, never, shadow] = outcomes;
    assert_eq!((denied, busy, held, never), (0, 0, 0, 0));
    assert_eq!(allowed + shadow, 80);
    assert_eq!(allowed, 9, "as if it was enforced");
    assert_eq!(rule.unknown_plans, 10);
}

/// The candidate: asked as often as there are requests without a plan, and with an unknown one.
#[tokio::test]
async fn a_candidate_is_for_requests_without_a_plan() {
    let listening = Stub::listening(MemoryStore::new());
    let rule = with_plans(of_own("a", &[(1_000, HOUR)]), &[("pro", &[(1_000, HOUR)])]);
    let rule = rule
        .with_shadow(of_own("a", &[(3, HOUR)]))
        .with_key(Header::new("x-key"));
    let limits = Limits::new([rule]).store(listening.clone());
    let plain = wrap(limits.layer("a"));
    let table = wrap(limits.layer("a").quotas(|_| None));
    let asked = || listening.asked(|take| take.rule().is_shadow());
    for (service, key, plan, expected) in [
        (&plain, "x", None, 10),
        (&plain, "x", Some("pro"), 0),
        (&plain, "x", Some("unknown"), 10),
        (&table, "x", None, 10),
        (&table, "x", Some("pro"), 0),
    ] {
        let before = asked();
        for _ in 0..10 {
            assert_eq!(status(service, key, plan).await, 200);
        }
        assert_eq!(asked() - before, expected, "{key} {plan:?}");
    }
    let before = asked();
    assert!(limits.check("a", "x").plan("pro").await.is_ok());
    assert!(limits.check("a", "x").await.is_ok());
    assert_eq!(asked() - before, 1);
    let snapshot = limits.snapshot();
    let denied: u64 = snapshot
        .rule("a")
        .expect("used")
        .shadow_denials
        .iter()
        .map(|it| it.1)
        .sum();
    assert_eq!(denied, 31 - 3);
}

/// Nor is it asked about quotas that are not the rule's own.
#[tokio::test]
async fn a_candidate_is_not_for_quotas_from_code() {
    let listening = Stub::listening(MemoryStore::new());
    let rule = of_own("a", &[(1_000, HOUR)]).with_shadow(of_own("a", &[(3, HOUR)]));
    let limits = Limits::new([rule]).store(listening.clone());
    let table = Arc::new(quotas(&[(2_000, HOUR)]));
    let service = wrap(limits.layer("a").quotas(move |_| Some(Arc::clone(&table))));
    for _ in 0..10 {
        assert_eq!(status(&service, "x", None).await, 200);
    }
    assert_eq!(listening.asked(|take| take.rule().is_shadow()), 0);
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
    let shadow = || of_own("a", &[(1, Duration::from_secs(60))]);
    let rule = |rule| with_plans(rule, &[("pro", &[(3, HOUR)])]);
    let limits = Limits::new([rule(shadow()).into_shadow()]);
    let service = wrap(limits.layer("a"));
    for _ in 0..9 {
        assert_eq!(status(&service, "x", Some("pro")).await, 200);
    }
    limits.rules().replace(Rules::from_iter([rule(shadow())]));
    let mut allowed = 0;
    for _ in 0..9 {
        allowed += u64::from(status(&service, "x", Some("pro")).await == 200);
    }
    assert_eq!(allowed, 3);
}
