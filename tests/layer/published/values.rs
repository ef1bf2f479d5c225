//! After real requests, the numbers are those of the requests.

use axum::routing::get;

use super::{exporter, limits, published, published_to, redis_store, send_many};
use crate::*;

const TENANT: HeaderName = HeaderName::from_static("x-tenant");

#[tokio::test]
async fn decisions_are_counted_by_outcome_and_source_and_denials_by_quota() {
    let quick = Policy::new("quick", Quota::per_minute(3));
    let daily = Policy::new("daily", Quota::per_day(100));
    let rule = Rule::with_policies("search", [quick, daily]).expect("valid");
    let limits = limits([rule]);
    let app = app(limits.layer("search"));
    assert_eq!(send_many(&app, 5).await, 3);

    let text = published(&limits);
    let of = |name, labels: &[(&str, &str)]| text.of("search", name, labels);
    let decisions = |outcome, source| {
        let labels = [("outcome", outcome), ("source", source)];
        of("decisions_total", &labels)
    };
    assert_eq!(decisions("allowed", "local"), Some(3.0));
    assert_eq!(decisions("denied", "local"), Some(2.0));
    assert_eq!(decisions("allowed", "redis"), None);
    assert_eq!(text.decisions("search"), 5.0);
    for (quota, denials) in [("quick", 2.0), ("daily", 0.0)] {
        assert_eq!(of("denials_total", &[("quota", quota)]), Some(denials));
    }
    assert_eq!(of("units_total", &[]), Some(3.0));
    // The third request leaves nothing of three.
    assert_eq!(of("near_limit_total", &[]), Some(1.0));
    assert_eq!(of("waiting_requests", &[]), Some(0.0));
}

#[tokio::test]
async fn units_are_counted_by_cost_and_refunds_by_what_they_gave_back() {
    let limits = limits([per_hour("export", 100).with_cost(4)]);
    let refund = async |charges: Charges| {
        let refunded = charges.refund().await;
        refunded.expect("the store answers").to_string()
    };
    let app = Router::new().route("/", get(refund).layer(limits.layer("export")));
    assert_eq!(send_many(&app, 2).await, 2);

    let text = published(&limits);
    for (name, expected) in [
        ("units_total", 8.0),
        ("refunds_total", 2.0),
        ("refunded_units_total", 8.0),
        ("refunds_lost_total", 0.0),
    ] {
        assert_eq!(text.of("export", name, &[]), Some(expected), "{name}");
    }
}

#[tokio::test]
async fn what_shadow_rules_would_deny_stands_apart() {
    let stricter = Policy::new("stricter", Quota::per_hour(1));
    let stricter = Rule::with_policies("next", [stricter]).expect("valid");
    let limits = limits([per_hour("login", 4), stricter.into_shadow()]);
    let app = app(limits.layer("login")).layer(limits.layer("next"));
    assert_eq!(send_many(&app, 5).await, 4);

    let text = published(&limits);
    let outcomes = ["allowed", "denied", "never", "shadow_denied"].map(|outcome| {
        ["login", "next"].map(|rule| {
            let labels = [("rule", rule), ("outcome", outcome)];
            text.sum("tidegate_decisions_total", &labels)
        })
    });
    assert_eq!(outcomes, [[4.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 4.0]]);
    for (rule, name, quota, expected) in [
        ("login", "denials_total", "login", Some(1.0)),
        ("next", "shadow_denials_total", "stricter", Some(4.0)),
        ("login", "denials_total", "stricter", None),
    ] {
        assert_eq!(text.of(rule, name, &[("quota", quota)]), expected);
    }
}

#[tokio::test]
async fn errors_of_shadow_rules_stand_apart() {
    let limits = limits([per_hour("tried", 1).into_shadow()]).store(no_store());
    assert_eq!(send_many(&app(limits.layer("tried")), 3).await, 3);
    let text = published(&limits);
    assert_eq!(text.of("tried", "shadow_errors_total", &[]), Some(3.0));
    assert_eq!(text.sum("tidegate_errors_total", &[("rule", "tried")]), 0.0);
}

#[tokio::test]
async fn errors_are_counted_by_kind_and_admissions_without_a_decision_apart() {
    let rules = ["answered", "admitted", "keyed"].map(|path| per_hour(path, 1));
    let limits = limits(rules).store(no_store());
    assert_eq!(send_many(&app(limits.layer("answered")), 3).await, 0);
    let admitted = app(limits.layer("admitted").on_error(FailOpen));
    assert_eq!(send_many(&admitted, 2).await, 2);
    let keyed = app(limits.layer("keyed").key(Header::new(TENANT)));
    assert_eq!(send_many(&keyed, 1).await, 0);

    let text = published(&limits);
    for (rule, kind, expected) in [
        ("answered", "full", 3.0),
        ("answered", "timeout", 0.0),
        ("keyed", "key_absent", 1.0),
    ] {
        let errors = text.of(rule, "errors_total", &[("kind", kind)]);
        assert_eq!(errors, Some(expected), "{rule}: {kind}");
    }
    for (rule, expected) in [("answered", 0.0), ("admitted", 2.0)] {
        let admitted = text.of(rule, "admitted_without_decision_total", &[]);
        assert_eq!(admitted, Some(expected), "{rule}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_a_gauge() {
    let limits = limits([owned_rule("paced", 1, millis(500))]).store(paused());
    let app = app(limits.layer("paced").wait(PATIENT));
    assert_eq!(send_many(&app, 1).await, 1);
    let waits = spawn(&app, "/");
    sleep(millis(100)).await;
    let recorder = exporter().build_recorder();
    let shown = |name| published_to(&recorder, &limits).of("paced", name, &[]);
    assert_eq!(shown("waiting_requests"), Some(1.0));
    assert_eq!(waits.await.expect("no panic"), OK);
    assert_eq!(shown("waiting_requests"), Some(0.0));
    assert_eq!(shown("waited_requests_total"), Some(1.0));
}

/// Not every exporter can set a counter to a number: `tests/exporters` has some.
#[tokio::test]
async fn counters_of_two_limits_add_up_in_a_recorder_that_comes_late() {
    let (store, _server) = redis_store().await;
    let both = [3, 4].map(|max| limits([per_hour("api", max)]).store(store.clone()));
    for (number, limits) in both.iter().enumerate() {
        let layer = limits
            .layer("api")
            .key_by(move |_| Ok(Key::from(number as u64)));
        let app = app(layer);
        send_many(&app, 5).await;
        limits.publish_metrics();
    }
    let recorder = exporter().build_recorder();
    for limits in both.iter().cycle().take(4) {
        published_to(&recorder, limits);
    }
    let text = published_to(&recorder, &both[0]);
    for (outcome, expected) in [("allowed", 7.0), ("denied", 3.0)] {
        let labels = [("outcome", outcome), ("source", "redis")];
        let decisions = text.of("api", "decisions_total", &labels);
        assert_eq!(decisions, Some(expected), "{outcome}");
    }
    let denials = text.of("api", "denials_total", &[("quota", "api")]);
    assert_eq!(denials, Some(3.0));
    assert_eq!(
        text.of("api", "store_duration_seconds_count", &[]),
        Some(10.0)
    );
}

#[tokio::test]
async fn requests_without_a_rule_are_counted_together() {
    let limits = limits([]);
    assert_eq!(send_many(&app(limits.layer("a")), 2).await, 2);
    assert_eq!(send_many(&app(limits.layer("b")), 1).await, 1);
    let text = published(&limits);
    assert_eq!(text.unmatched(), Some(3.0));
    assert_eq!(text.series_with("rule", "a"), 0);
}

#[tokio::test]
async fn labels_have_no_keys_and_no_uris() {
    let limits = limits([per_hour("api", 2).with_key(Header::new(TENANT))]);
    let app = Router::new()
        .route("/{secret}", get(|| async { "1" }))
        .layer(limits.layer("api"));
    for (number, tenant) in ["tenant-7", "tenant-8", "tenant-7"].into_iter().enumerate() {
        let path = format!("/path-{number}?query-{number}");
        let statuses = statuses(&app, &path, &format!("x-tenant: {tenant}"), 1).await;
        assert_eq!(statuses, [200]);
    }
    let text = published(&limits);
    assert_eq!(text.decisions("api"), 3.0);
    for secret in ["tenant", "path-", "query-"] {
        assert!(!text.text.contains(secret), "{secret}: {}", text.text);
    }
}
