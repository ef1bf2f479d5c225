//! Mistakes in the plans of a file: each is an error that names the key and the line.

use super::*;

/// In code: no name, one name twice, a window that a lease makes too long.
#[test]
fn mistakes_in_code() {
    let rule = || of_own("p", &[(1, HOUR)]);
    let with = |rule: Rule, name, window| rule.with_plan(name, quotas(&[(1, window)]));
    let unnamed = with(rule(), "", HOUR);
    assert!(matches!(unnamed, Err(RuleError::EmptyPlan)));
    let twice = with(with(rule(), "pro", HOUR).expect("valid"), "pro", HOUR);
    assert!(matches!(twice, Err(RuleError::SamePlan(_))));
    let leased = |rule: Rule| rule.with_lease(millis(50));
    let after = with(leased(rule()).expect("valid"), "pro", Quota::MAX_WINDOW);
    assert!(matches!(after, Err(RuleError::LeaseTooLong)), "{after:?}");
    let before = leased(with(rule(), "pro", Quota::MAX_WINDOW).expect("valid"));
    assert!(matches!(before, Err(RuleError::LeaseTooLong)), "{before:?}");
}
