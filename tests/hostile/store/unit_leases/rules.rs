//! Rules with leases: values at their ends, and the order of setters.

use crate::prelude::*;

fn of(windows: &[Duration]) -> Rule {
    let quotas = windows.iter().map(|window| kit::quota(10, *window));
    Rule::new("rule", quotas).expect("valid")
}

/// The lease in effect is min(lease, shortest window / 50) in whole milliseconds, at every end.
#[test]
fn leases_at_their_ends() {
    let cases = [
        (Duration::ZERO, HOUR, None),
        (Duration::from_nanos(1), HOUR, None),
        (Duration::from_micros(999), HOUR, None),
        (Duration::from_micros(1_999), HOUR, Some(millis(1))),
        (millis(50), HOUR, Some(millis(50))),
        (Duration::MAX, HOUR, Some(HOUR / 50)),
        (Duration::MAX, millis(49), None),
        (Duration::MAX, millis(50), Some(millis(1))),
        (millis(20), SECOND, Some(millis(20))),
        (millis(21), SECOND, Some(millis(20))),
    ];
    for (lease, window, effective) in cases {
        for algorithm in LEASED {
            let rule = of(&[window, 7 * window]).with_algorithm(algorithm);
            let rule = rule.with_lease(lease).expect("leases");
            assert_eq!(rule.lease(), effective, "{lease:?} of {window:?}");
            for (at, window) in [window, 7 * window].into_iter().enumerate() {
                assert_eq!(rule.policies()[at].quota().window(), window);
                assert_eq!(rule.quotas()[at].window(), window);
                assert_eq!(rule.quotas()[at].max(), 10);
            }
        }
    }
}

/// The last setting counts, once; another algorithm ends leases, and GCRA has none.
#[test]
fn settings_that_follow_each_other() {
    let rule = || of(&[10 * SECOND]);
    let leasing = |rule: Rule, lease| rule.with_lease(lease).expect("leases");
    let twice = leasing(leasing(rule(), HOUR), millis(30));
    assert_eq!(twice.lease(), Some(millis(30)));
    let off = leasing(twice, Duration::ZERO);
    assert_eq!((off.lease(), off.quotas()[0].window()), (None, 10 * SECOND));
    for algorithm in Algorithm::ALL {
        let other = leasing(rule(), millis(30)).with_algorithm(algorithm);
        assert_eq!(other.lease(), None, "{algorithm:?}");
        assert_eq!(other.quotas()[0].window(), 10 * SECOND, "{algorithm:?}");
    }
    let gcra = rule().with_algorithm(Algorithm::Gcra);
    let error = gcra.with_lease(millis(30)).expect_err("no leases");
    assert_eq!(error, RuleError::NoLeases("gcra"));
    assert!(error.to_string().contains("gcra"));
    let all = leasing(rule(), millis(30)).with_prefix("other:");
    let all = all.with_cost(3).with_shadow(leasing(rule(), millis(20)));
    let all = all.into_shadow();
    assert_eq!(all.lease(), Some(millis(30)));
    assert_eq!(all.quotas()[0].window(), 10 * SECOND);
    // A copy of the rule is the same rule.
    assert_eq!(all.clone().lease(), Some(millis(30)));
}
