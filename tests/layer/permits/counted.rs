//! How the denials of a busy rule are counted and logged, and what is no mistake of its set-up.

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
use tidegate::rule::Policy;
use tidegate::{Limits, Quota, Rule};

use crate::send;

fn app(limits: &Limits) -> Router {
    Router::new().route("/", get("1").layer(limits.layer("export")))
}

fn export(max: u64) -> Rule {
    let rule = Rule::new("export", [Quota::per_minute(1_000)]).expect("valid");
    rule.with_max_concurrent(max).expect("valid")
}

fn counted(limits: &Limits) -> RuleSnapshot {
    let snapshot = limits.snapshot();
    snapshot.rule("export").expect("a layer uses it").clone()
}

#[tokio::test]
async fn a_busy_rule_has_an_outcome_of_its_own() {
    let limits = Limits::new([export(1)]);
    let app = app(&limits);
    let held = send(&app, "/").await;
    for _ in 0..3 {
        let denied = send(&app, "/").await.status();
        assert_eq!(denied, StatusCode::TOO_MANY_REQUESTS);
    }
    drop(held);
    let counted = counted(&limits);
    let outcomes = DecisionOutcome::ALL.map(|it| (it.name(), counted.decisions(it)));
    let expected = [
        ("allowed", 1),
        ("denied", 0),
        ("busy", 3),
        ("on_hold", 0),
        ("never", 0),
        ("shadow_denied", 0),
    ];
    assert_eq!(outcomes, expected);
    let expected = [("export", 0), ("export-concurrent", 3)];
    assert_eq!(
        counted.denials,
        expected.map(|(name, it)| (name.to_owned(), it))
    );
    // That the only permit is held is no quota near its limit.
    assert_eq!(counted.near_limit, 0);
}

/// Neither its number nor its window, which it does not have, is that of a quota.
#[tokio::test]
async fn no_warning_about_a_quota_is_about_permits() {
    let many = Rule::with_policies("export", [Policy::concurrent(20_000)]).expect("valid");
    let limits = Limits::new([many]);
    send(&app(&limits), "/").await;
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
    let limits = Limits::new([none.with_cost(5)]);
    send(&app(&limits), "/").await;
    assert_eq!(limits.warnings(), []);
}

#[tokio::test]
async fn the_log_says_that_it_was_busy() {
    let log = kit::log::Log::start();
    let limits = Limits::new([export(1)]);
    let app = app(&limits);
    let held = send(&app, "/").await;
    send(&app, "/").await;
    drop(held);
    let lines = log.lines_with_debug();
    let line = |part: &str| {
        let mut found = lines.iter().filter(|line| line.contains(part));
        found
            .next()
            .unwrap_or_else(|| panic!("{part} in {lines:?}"))
    };
    let denied = line(": denied ");
    for part in [
        "quotas=\"export-concurrent\"",
        "outcome=\"busy\"",
        "retry_after_seconds=1.0",
    ] {
        assert!(denied.contains(part), "{part} in {denied}");
    }
    let summary = line("requests were denied");
    assert!(summary.contains("denied=1 allowed=1"), "{summary}");
}
