//! Quotas that depend on who asks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, Request, StatusCode};
use tidegate::metrics::DecisionOutcome;
use tidegate::rule::{Plan, Quotas};
use tidegate::warning::WarningKind;
use tidegate::{Algorithm, Limits, MemoryStore, Quota, RateLimitLayer, Rule};
use tower::ServiceExt;

use crate::{Stores, WINDOW, send};
use kit::app;

const FILE: &str = r#"
    [rules.api]
    max-count = 2
    window = "1m"
    key = "header:x-user"

    [rules.api.plans.pro]
    max-count = 5
    window = "1m"

    [rules.api.plans.unlimited-days]
    quotas = [{ max-count = 3, window = "1m" }, { max-count = 4, window = "1d", name = "daily" }]
"#;

/// A request of a user, whose plan stands in a field that is as good as authentication here.
fn request(user: &str, plan: Option<&str>) -> Request<Body> {
    let request = Request::get("/").header("x-user", user);
    let request = match plan {
        Some(plan) => request.header("x-plan", plan),
        None => request,
    };
    request.body(Body::empty()).expect("valid")
}

fn plan_of(head: &http::request::Parts) -> Option<&str> {
    head.headers.get("x-plan")?.to_str().ok()
}

async fn answer(app: &Router, request: Request<Body>) -> (StatusCode, HeaderMap) {
    let response = app.clone().oneshot(request).await.expect("infallible");
    (response.status(), response.headers().clone())
}

/// How many of ten requests are admitted.
async fn admitted(app: &Router, user: &str, plan: Option<&str>) -> usize {
    let mut admitted = 0;
    for _ in 0..10 {
        let (status, _) = answer(app, request(user, plan)).await;
        admitted += usize::from(status.is_success());
    }
    admitted
}

#[tokio::test]
async fn an_upgrade_keeps_what_was_used() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let limits = Limits::from_toml(FILE).expect("valid").plan(plan_of);
        let app = app(limits.store(Arc::clone(store)).layer("api"));
        assert_eq!(admitted(&app, "alice", None).await, 2);
        assert_eq!(admitted(&app, "alice", Some("pro")).await, 3);
        assert_eq!(admitted(&app, "alice", None).await, 0, "a downgrade");
        assert_eq!(admitted(&app, "alice", Some("pro")).await, 0);
        assert_eq!(admitted(&app, "bob", Some("unlimited-days")).await, 3);
        assert_eq!(admitted(&app, "bob", Some("pro")).await, 2);
        assert_eq!(admitted(&app, "carol", Some("pro")).await, 5);
        assert_eq!(admitted(&app, "carol", Some("unlimited-days")).await, 0);
    }
}

#[tokio::test]
async fn the_fields_show_the_plans_quotas() {
    let limits = Limits::from_toml(FILE).expect("valid").plan(plan_of);
    let app = app(limits.layer("api"));
    let (_, fields) = answer(&app, request("alice", Some("unlimited-days"))).await;
    let policy = "\"api-1m\";q=3;w=60,\"daily\";q=4;w=86400";
    assert_eq!(fields["ratelimit-policy"], policy);
    let (_, fields) = answer(&app, request("alice", None)).await;
    assert_eq!(fields["ratelimit-policy"], "\"api\";q=2;w=60");
    assert_eq!(fields["ratelimit"], "\"api\";r=0;t=60");
}

#[tokio::test]
async fn the_layers_closure_comes_before_that_of_limits_and_that_before_the_extension() {
    let of_extension = |user: &str, plan: &str| {
        let mut request = request(user, None);
        request.extensions_mut().insert(Plan::new(plan));
        request
    };
    let remaining = |fields: &HeaderMap| fields["ratelimit"].to_str().map(str::to_owned);
    let limits = || Limits::from_toml(FILE).expect("valid");
    let by_extension = app(limits().layer("api"));
    let (_, fields) = answer(&by_extension, of_extension("a", "pro")).await;
    assert_eq!(remaining(&fields).expect("text"), "\"api\";r=4;t=60");
    let by_limits = limits().plan(|_| Some("pro"));
    let (_, fields) = answer(
        &app(by_limits.layer("api")),
        of_extension("a", "unlimited-days"),
    )
    .await;
    assert_eq!(remaining(&fields).expect("text"), "\"api\";r=4;t=60");
    let by_layer = by_limits.layer("api").plan(|_| None);
    let (_, fields) = answer(&app(by_layer), of_extension("b", "pro")).await;
    assert_eq!(remaining(&fields).expect("text"), "\"api\";r=1;t=60");
}

#[tokio::test]
async fn an_unknown_plan_counts_as_none_and_is_counted() {
    let limits = Limits::from_toml(FILE).expect("valid").plan(plan_of);
    let app = app(limits.layer("api"));
    assert_eq!(admitted(&app, "alice", Some("enterprise")).await, 2);
    assert_eq!(admitted(&app, "alice", Some("pro")).await, 3);
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("a layer uses it");
    assert_eq!(rule.unknown_plans, 10);
    let plans = rule.plans.iter();
    let plans: Vec<_> = plans
        .map(|plan| (&*plan.name, plan.allowed, plan.denied))
        .collect();
    assert_eq!(plans, [("pro", 3, 7), ("unlimited-days", 0, 0)]);
    assert_eq!(rule.decisions(DecisionOutcome::Allowed), 5);
    let names: Vec<_> = rule.denials.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["api", "api-1m", "daily"]);
}

#[tokio::test]
async fn checks_and_peeks_name_a_plan() {
    let limits = Limits::from_toml(FILE).expect("valid");
    let left = async |plan: &str| {
        let peek = limits.peek("api", "alice").plan(plan).await;
        let decision = peek.expect("memory answers").expect("there is a rule");
        decision.remaining()
    };
    assert!(limits.check("api", "alice").plan("pro").await.is_ok());
    assert!(limits.check("api", "alice").await.is_ok());
    assert!(limits.check("api", "alice").await.is_err());
    let refused = limits.check("api", "alice").plan("nobody's").await;
    assert_eq!(refused.expect_err("as without").rule().plan(), None);
    assert_eq!((left("pro").await, left("nobody's").await), (3, 0));
    assert!(limits.reset("api", "alice").await.expect("memory answers"));
    assert_eq!(left("pro").await, 5);
}

#[tokio::test]
async fn quotas_come_from_a_table_that_changes() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let quotas = |max| {
            Some(Arc::new(
                Quotas::new([Quota::per_minute(max)]).expect("valid"),
            ))
        };
        let table = Arc::new(Mutex::new(quotas(3)));
        let known = Arc::clone(&table);
        let rule = Rule::new("tenants", [Quota::per_minute(1)]).expect("valid");
        let layer = RateLimitLayer::from_rule(rule)
            .store(Arc::clone(store))
            .quotas(move |_| known.lock().expect("no panic").clone());
        let app = app(layer);
        assert_eq!(admitted(&app, "x", None).await, 3);
        *table.lock().expect("no panic") = quotas(7);
        assert_eq!(admitted(&app, "x", None).await, 4);
        *table.lock().expect("no panic") = None;
        assert_eq!(admitted(&app, "x", None).await, 0);
    }
}

#[tokio::test]
async fn a_panic_is_a_500_for_this_request_alone() {
    let limits = Limits::from_toml(FILE).expect("valid");
    let plan = limits.layer("api").plan(|head| match plan_of(head) {
        Some("broken") => panic!("a plan that panics"),
        plan => plan,
    });
    let quotas = limits.layer("api").quotas(|head| match plan_of(head) {
        Some("broken") => panic!("quotas that panic"),
        _ => None,
    });
    for layer in [plan, quotas] {
        let app = app(layer);
        let (status, _) = answer(&app, request("x", Some("broken"))).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let (status, _) = answer(&app, request("x", None)).await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_candidate_is_asked_for_requests_without_a_plan() {
    let file = format!("{FILE}\n[rules.api.shadow]\nmax-count = 0\nwindow = \"1m\"");
    let limits = Limits::from_toml(&file).expect("valid").plan(plan_of);
    let app = app(limits.layer("api"));
    assert_eq!(admitted(&app, "a", Some("pro")).await, 5);
    answer(&app, request("b", None)).await;
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("a layer uses it");
    assert_eq!(rule.decisions(DecisionOutcome::ShadowDenied), 1);
}

#[test]
fn mistakes_in_plans() {
    let said = |plan: &str| {
        let text = format!("[rules.api]\nmax-count = 2\nwindow = \"1m\"\n{plan}");
        let error = Limits::from_toml(&text).expect_err("a mistake");
        error.to_string()
    };
    insta::assert_snapshot!(said("plans = 5"), @"line 4: rules.api.plans: found 5, expected a table of plans");
    insta::assert_snapshot!(said("[rules.api.plans]\npro = 5"), @"line 5: rules.api.plans.pro: found 5, expected a table with quotas");
    insta::assert_snapshot!(said("[rules.api.plans.pro]"), @"line 4: rules.api.plans.pro: no quota, expected max-count and window, quotas, or max-concurrent");
    insta::assert_snapshot!(said("[rules.api.plans.pro]\nalgorithm = \"gcra\""), @"line 5: rules.api.plans.pro.algorithm: unknown field `algorithm`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `quotas`");
    insta::assert_snapshot!(said("[rules.api.plans.\"\"]\nmax-count = 2\nwindow = \"1m\""), @"line 4: rules.api.plans.\"\": the plan has no name");
    insta::assert_snapshot!(said("cost = 2\n[rules.api.plans.pro]\nmax-count = 1\nwindow = \"1m\""), @"line 4: rules.api.cost: more than max-count (or burst), so that no request would ever be allowed");
    insta::assert_snapshot!(said("[rules.api.plans.pro]\nmax-count = 1\nwindow = \"1m\"\nburst = 2"), @"line 7: rules.api.plans.pro.burst: only algorithm = \"gcra\" has a burst");
    insta::assert_snapshot!(
        said("[rules.api.plans.pro]\nquotas = [{ max-count = 1, window = \"1m\" }, { max-count = 2, window = \"60s\" }]"),
        @"line 4: rules.api.plans.pro: two quotas are named \"api-1m\", expected a name of its own for each"
    );
}

/// A charge under quotas from code counts under the rule's own as well, whatever is left out of the
/// rule: algorithm, plans, lease.
#[tokio::test(start_paused = true)]
async fn quotas_from_code_count_for_the_rules_own() {
    let rule = Rule::new("api", [Quota::per_hour(3)]).expect("valid");
    let fast = Arc::new(Quotas::new([Quota::per_second(9)]).expect("valid"));
    let layer = RateLimitLayer::from_rule(rule)
        .store(MemoryStore::new().tokio_clock())
        .quotas(move |head| plan_of(head).map(|_| Arc::clone(&fast)));
    let app = app(layer);
    assert_eq!(admitted(&app, "alice", Some("fast")).await, 9);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(admitted(&app, "alice", None).await, 0);
}

/// A rule with as many quotas as there may be counts for the longer window of a plan, too.
#[tokio::test(start_paused = true)]
async fn sixteen_quotas_count_for_a_plan() {
    for algorithm in Algorithm::ALL {
        let seconds = |number| Quota::new(Duration::from_secs(number), 90).expect("valid");
        let rule = Rule::new("api", (1..=16).map(seconds)).expect("valid");
        let long = Quotas::new([Quota::per_day(9)]).expect("valid");
        let rule = rule.with_algorithm(algorithm).with_plan("long", long);
        let layer = RateLimitLayer::from_rule(rule.expect("valid"));
        let layer = layer.store(MemoryStore::new().tokio_clock()).plan(plan_of);
        let app = app(layer);
        assert_eq!(admitted(&app, "alice", None).await, 10);
        tokio::time::advance(Duration::from_secs(20)).await;
        let admitted = admitted(&app, "alice", Some("long")).await;
        assert_eq!(admitted, 0, "{algorithm:?}");
    }
}

/// Quotas from a table apply to checks and looks, too, and count together with those of layers.
#[tokio::test]
async fn checks_and_looks_have_quotas_from_code() {
    for store in &Stores::start().await.all {
        let rule = Rule::new("p", [Quota::new(WINDOW, 2).expect("valid")]).expect("valid");
        let limits = Limits::new([rule]).store(Arc::clone(store));
        let large = Arc::new(Quotas::new([Quota::new(WINDOW, 10).expect("valid")]).expect("valid"));
        let check = || limits.check("p", "acme").quotas(Arc::clone(&large));
        for left in (0..10).rev() {
            let decision = check().await.expect("a unit").decision;
            assert_eq!(decision.map(|it| it.remaining()), Some(left));
        }
        let refused = check().await.expect_err("ten are used");
        assert!(refused.retry_after().is_some());
        let left = limits.peek("p", "acme").quotas(Arc::clone(&large)).await;
        assert_eq!(left.expect("an answer").map(|it| it.remaining()), Some(0));
        let left = limits
            .peek("p", "other")
            .quotas(large.clone())
            .plan("x")
            .await;
        assert_eq!(left.expect("an answer").map(|it| it.remaining()), Some(10));
        let left = limits.peek("p", "other").quotas(None).await;
        assert_eq!(left.expect("an answer").map(|it| it.remaining()), Some(2));
    }
}

/// As in a file, a cost above a quota is a mistake that is told; a quota of 0 is none.
#[tokio::test]
async fn a_cost_above_a_quota_from_code_is_a_warning() {
    let quota = |max| Quotas::new([Quota::new(WINDOW, max).expect("valid")]);
    for (max, expected) in [
        (0, vec![]),
        (10, vec![]),
        (4, vec![WarningKind::CostAboveQuota]),
    ] {
        let rule = Rule::new("p", [Quota::new(WINDOW, 50).expect("valid")]).expect("valid");
        let limits = Limits::new([rule.with_cost(5)]);
        let quotas = Arc::new(quota(max).expect("valid"));
        let layer = limits.layer("p").quotas(move |_| Some(Arc::clone(&quotas)));
        let app = Router::new().route("/", get(|| async { "1" }).layer(layer));
        for _ in 0..3 {
            let response = send(&app, "/").await;
            let is_denied = response.status() == StatusCode::TOO_MANY_REQUESTS;
            assert!(is_denied || max == 10);
        }
        let found: Vec<_> = limits.warnings().iter().map(|it| it.kind).collect();
        assert_eq!(found, expected, "{max}");
    }
}
