//! How the denials of a busy rule are counted and logged, and what is no mistake of its set-up.

use crate::*;

#[tokio::test]
async fn a_busy_rule_has_an_outcome_of_its_own() {
    let log = Log::start();
    let rule = Rule::new("export", [Quota::per_minute(1_000)]).expect("valid");
    let limits = Limits::new([rule.with_max_concurrent(1).expect("valid")]);
    let app = app(limits.layer("export"));
    let held = send(&app, "/").await;
    for _ in 0..3 {
        assert_eq!(status(&app, "/").await, 429);
    }
    drop(held);
    let counted = counted(&limits, "export");
    let outcomes = DecisionOutcome::ALL.map(|it| (it.name(), counted.decisions(it)));
    let expected = [
        ("allowed", 1),
        ("denied", 0),
        ("busy", 3),
        ("on_hold", 0),
        ("locked_out", 0),
        ("never", 0),
        ("shadow_denied", 0),
    ];
    assert_eq!(outcomes, expected);
    let denials = counted.denials.iter().map(|(name, it)| (&**name, *it));
    assert!(denials.eq([("export", 0), ("export-concurrent", 3)]));
    // That the only permit is held is no quota near its limit.
    assert_eq!(counted.near_limit, 0);
    let lines = log.lines_with_debug();
    let busy = "outcome=\"busy\" retry_after_seconds=1.0 quotas=\"export-concurrent\"";
    for (line, parts) in [
        (": denied ", busy),
        ("requests were denied", "denied=1 allowed=1"),
    ] {
        let found = lines.iter().find(|it| it.contains(line)).expect(line);
        assert!(words(parts).iter().all(|it| found.contains(it)), "{found}");
    }
}

/// Neither its number nor its window, which it does not have, is that of a quota.
#[tokio::test]
async fn no_warning_about_a_quota_is_about_permits() {
    let many = Rule::with_policies("export", [Policy::concurrent(20_000)]).expect("valid");
    let limits = Limits::new([many]).key(Everyone);
    send(&app(limits.layer("export")), "/").await;
    assert_eq!(limits.warnings(), []);

    // However much it costs, a request holds one permit: it is the quota that is too small.
    let costly = [Policy::concurrent(1), Quota::per_minute(40).into()];
    let costly = Rule::with_policies("export", costly).expect("valid");
    let limits = Limits::new([costly]);
    let held = limits.check("export", "alice").cost(30).await;
    let denied = limits.check("export", "alice").cost(50).await;
    assert!(held.is_ok() && denied.is_err());
    let [warning] = &*limits.warnings() else {
        panic!("{:?}", limits.warnings());
    };
    assert_eq!(warning.name.as_deref(), Some("export-1m"));

    let none = Rule::with_policies("export", [Policy::concurrent(0)]).expect("valid");
    let limits = Limits::new([none.with_cost(5)]).key(Everyone);
    send(&app(limits.layer("export")), "/").await;
    assert_eq!(limits.warnings(), []);
}
