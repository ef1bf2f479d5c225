//! After real requests, the numbers are those of the requests.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use http::{HeaderName, Request, StatusCode};
use tidegate::rule::{OnError, Policy, Share};
use tidegate::store::Charges;
use tidegate::{Header, MemoryStore, Quota, Resilient, Rule};

use super::{app, limits, per_hour, published, redis_store, send, send_many};

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
    let decisions = |outcome, source| {
        let labels = [("rule", "search"), ("outcome", outcome), ("source", source)];
        text.get("tidegate_decisions_total", &labels)
    };
    assert_eq!(decisions("allowed", "local"), Some(3.0));
    assert_eq!(decisions("denied", "local"), Some(2.0));
    assert_eq!(decisions("allowed", "redis"), Some(0.0));
    let search = [("rule", "search")];
    assert_eq!(text.sum("tidegate_decisions_total", &search), 5.0);

    let denials = |quota| {
        let labels = [("rule", "search"), ("quota", quota)];
        text.get("tidegate_denials_total", &labels)
    };
    assert_eq!((denials("quick"), denials("daily")), (Some(2.0), Some(0.0)));
    assert_eq!(text.get("tidegate_units_total", &search), Some(3.0));
    // The third request leaves nothing of three.
    assert_eq!(text.get("tidegate_near_limit_total", &search), Some(1.0));
    assert_eq!(text.get("tidegate_waiting_requests", &search), Some(0.0));
}

#[tokio::test]
async fn units_are_counted_by_cost_and_refunds_by_what_they_gave_back() {
    let limits = limits([per_hour("export", 100).with_cost(4)]);
    let refund = |charges: Charges| async move {
        charges
            .refund()
            .await
            .expect("the store answers")
            .to_string()
    };
    let app = axum::Router::new().route("/", get(refund).layer(limits.layer("export")));
    assert_eq!(send_many(&app, 2).await, 2);

    let text = published(&limits);
    let export = [("rule", "export")];
    assert_eq!(text.get("tidegate_units_total", &export), Some(8.0));
    assert_eq!(text.get("tidegate_refunds_total", &export), Some(2.0));
    assert_eq!(
        text.get("tidegate_refunded_units_total", &export),
        Some(8.0)
    );
    assert_eq!(text.get("tidegate_refunds_lost_total", &export), Some(0.0));
}

#[tokio::test]
async fn what_shadow_rules_would_deny_stands_apart() {
    let stricter = Policy::new("stricter", Quota::per_hour(1));
    let stricter = Rule::with_policies("login", [stricter]).expect("valid");
    let limits = limits([per_hour("login", 4).with_shadow(stricter)]);
    assert_eq!(send_many(&app(limits.layer("login")), 5).await, 4);

    let text = published(&limits);
    let outcomes = ["allowed", "denied", "never", "shadow_denied"].map(|outcome| {
        let labels = [("rule", "login"), ("outcome", outcome)];
        text.sum("tidegate_decisions_total", &labels)
    });
    assert_eq!(outcomes, [4.0, 1.0, 0.0, 4.0]);
    let of_quota = |name, quota| text.get(name, &[("rule", "login"), ("quota", quota)]);
    assert_eq!(of_quota("tidegate_denials_total", "login"), Some(1.0));
    assert_eq!(
        of_quota("tidegate_shadow_denials_total", "stricter"),
        Some(4.0)
    );
    assert_eq!(of_quota("tidegate_denials_total", "stricter"), None);
}

#[tokio::test]
async fn errors_of_shadow_rules_stand_apart() {
    let full = Arc::new(MemoryStore::with_max_keys(0));
    let limits = limits([per_hour("tried", 1).into_shadow()]).store(full);
    assert_eq!(send_many(&app(limits.layer("tried")), 3).await, 3);
    let text = published(&limits);
    let tried = [("rule", "tried")];
    assert_eq!(text.get("tidegate_shadow_errors_total", &tried), Some(3.0));
    assert_eq!(text.sum("tidegate_errors_total", &tried), 0.0);
}

#[tokio::test]
async fn errors_are_counted_by_kind_and_admissions_without_a_decision_apart() {
    let full = Arc::new(MemoryStore::with_max_keys(0));
    let admitted = per_hour("admitted", 1).with_on_error(OnError::Proceed);
    let limits = limits([per_hour("answered", 1), admitted, per_hour("keyed", 1)]).store(full);
    assert_eq!(send_many(&app(limits.layer("answered")), 3).await, 0);
    assert_eq!(send_many(&app(limits.layer("admitted")), 2).await, 2);
    let keyed = app(limits.layer("keyed").key(Header::new(TENANT)));
    assert_eq!(send_many(&keyed, 1).await, 0);

    let text = published(&limits);
    let errors = |rule, kind| {
        let labels = [("rule", rule), ("kind", kind)];
        text.get("tidegate_errors_total", &labels)
    };
    assert_eq!(errors("answered", "full"), Some(3.0));
    assert_eq!(errors("answered", "timeout"), Some(0.0));
    assert_eq!(errors("keyed", "key_absent"), Some(1.0));
    let without = |rule| {
        let labels = [("rule", rule)];
        text.get("tidegate_admitted_without_decision_total", &labels)
    };
    assert_eq!(
        (without("answered"), without("admitted")),
        (Some(0.0), Some(2.0))
    );
}

#[tokio::test]
async fn a_fallback_decides_with_a_source_of_its_own() {
    let (store, mut server) = redis_store().await;
    let store = Resilient::new(store).fallback(Share::of_processes(2));
    let limits = limits([per_hour("getId", 100)]).store(store.build());
    let app = app(limits.layer("getId"));
    assert_eq!(send_many(&app, 2).await, 2);
    server.kill();
    assert_eq!(send_many(&app, 3).await, 3);

    let text = published(&limits);
    let allowed = |source| {
        let labels = [
            ("rule", "getId"),
            ("outcome", "allowed"),
            ("source", source),
        ];
        text.get("tidegate_decisions_total", &labels)
    };
    assert_eq!(
        (allowed("redis"), allowed("fallback")),
        (Some(2.0), Some(3.0))
    );
    assert_eq!(text.sum("tidegate_errors_total", &[("rule", "getId")]), 3.0);
}

#[tokio::test]
async fn waiting_requests_are_a_gauge() {
    let rule = Rule::new(
        "paced",
        [Quota::new(Duration::from_millis(500), 1).expect("valid")],
    );
    let limits = limits([rule.expect("valid")]);
    let app = app(limits.layer("paced").wait(Duration::from_secs(30)));
    assert_eq!(send_many(&app, 1).await, 1);
    let waiting = {
        let app = app.clone();
        tokio::spawn(async move { send_many(&app, 1).await })
    };
    let paced = [("rule", "paced")];
    while published(&limits).get("tidegate_waiting_requests", &paced) != Some(1.0) {
        assert!(!waiting.is_finished(), "it never waited");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(waiting.await.expect("no panic"), 1);
    let text = published(&limits);
    assert_eq!(text.get("tidegate_waiting_requests", &paced), Some(0.0));
    assert_eq!(
        text.get("tidegate_waited_requests_total", &paced),
        Some(1.0)
    );
}

#[tokio::test]
async fn requests_without_a_rule_are_counted_together() {
    let limits = limits([]);
    assert_eq!(send_many(&app(limits.layer("a")), 2).await, 2);
    assert_eq!(send_many(&app(limits.layer("b")), 1).await, 1);
    let text = published(&limits);
    assert_eq!(
        text.get("tidegate_unmatched_requests_total", &[]),
        Some(3.0)
    );
    assert_eq!(text.series_with("rule", "a"), 0);
}

#[tokio::test]
async fn labels_have_no_keys_and_no_uris() {
    let limits = limits([per_hour("api", 2).with_key(Header::new(TENANT))]);
    let app = axum::Router::new()
        .route("/{secret}", get(|| async { "1" }))
        .layer(limits.layer("api"));
    for (number, tenant) in ["tenant-7", "tenant-8", "tenant-7"].into_iter().enumerate() {
        let request = Request::get(format!("/path-{number}?query-{number}"));
        let request = request.header(TENANT, tenant).body(Body::empty());
        assert_eq!(send(&app, request.expect("valid")).await, StatusCode::OK);
    }
    let text = published(&limits);
    assert_eq!(
        text.sum("tidegate_decisions_total", &[("rule", "api")]),
        3.0
    );
    for secret in ["tenant", "path-", "query-"] {
        assert!(!text.text.contains(secret), "{secret}: {}", text.text);
    }
}
