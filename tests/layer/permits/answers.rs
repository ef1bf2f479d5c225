//! What the client of a busy rule is told.

use axum::routing::post as on_post;

use crate::*;

fn app_of(rule: Rule, headers: Headers) -> Router {
    let path = rule.path().to_owned();
    let store = MemoryStore::new().clock(ManualClock::default());
    let limits = Limits::new([rule]).store(store).headers(headers);
    Router::new().route("/", on_post(async || "1").layer(limits.layer(&path)))
}

async fn ask(app: &Router, content_type: &str) -> Response<axum::body::Body> {
    call(app, post("/", &format!("content-type: {content_type}"))).await
}

async fn show(response: Response<axum::body::Body>) -> String {
    crate::shown(response, &["content-length", "content-type"]).await
}

/// The first answer, and the second one, while the first request holds its permit.
async fn two(rule: Rule, headers: Headers, content_type: &str) -> [String; 2] {
    let app = app_of(rule, headers);
    let first = ask(&app, content_type).await;
    let second = show(ask(&app, content_type).await).await;
    [show(first).await, second]
}

fn one_at_a_time(max: u32) -> Rule {
    let rule = Rule::new("export", [Quota::per_minute(max)]).expect("valid");
    rule.with_max_concurrent(1).expect("valid")
}

fn export() -> Rule {
    one_at_a_time(60).with_busy_retry(Duration::from_millis(2_500))
}

#[tokio::test]
async fn draft_11_has_a_unit_and_no_window() {
    let [first, second] = two(export(), Headers::Draft11, "text/plain").await;
    insta::assert_snapshot!(first, @r#"
    200 OK
    ratelimit-policy: "export";q=60;w=60,"export-concurrent";q=1;qu="concurrent-requests"
    ratelimit: "export";r=59;t=60,"export-concurrent";r=0
    1
    "#);
    insta::assert_snapshot!(second, @r#"
    429 Too Many Requests
    cache-control: no-store
    ratelimit-policy: "export";q=60;w=60,"export-concurrent";q=1;qu="concurrent-requests"
    ratelimit: "export";r=59,"export-concurrent";r=0
    retry-after: 3
    {"type":"https://docs.rs/tidegate/latest/tidegate/callback/struct.Problem.html#busy","title":"As many requests as may run at a time are in progress","status":429,"violated-policies":["export-concurrent"],"max-concurrent":[1],"retry-after":3}
    "#);
}

/// They know quotas of windows only.
#[tokio::test]
async fn older_fields_do_not_show_it() {
    for headers in [Headers::Draft7, Headers::Legacy] {
        let [first, second] = two(export(), headers, "text/plain").await;
        let second = second.lines().take_while(|line| !line.starts_with('{'));
        let shown = format!("{first}\n{}", second.collect::<Vec<_>>().join("\n"));
        match headers {
            Headers::Draft7 => insta::assert_snapshot!(shown, @r#"
    200 OK
    ratelimit-policy: 60;w=60
    ratelimit: limit=60, remaining=59, reset=60
    1
    429 Too Many Requests
    cache-control: no-store
    ratelimit-policy: 60;w=60
    ratelimit: limit=60, remaining=59, reset=3
    retry-after: 3
    "#),
            _ => insta::assert_snapshot!(shown, @r#"
    200 OK
    x-ratelimit-limit: 60
    x-ratelimit-remaining: 59
    x-ratelimit-reset: 60
    1
    429 Too Many Requests
    cache-control: no-store
    x-ratelimit-limit: 60
    x-ratelimit-remaining: 59
    x-ratelimit-reset: 3
    retry-after: 3
    "#),
        }
        let alone = Rule::with_policies("export", [Policy::concurrent(1)]).expect("valid");
        let [first, second] = two(alone, headers, "text/plain").await;
        assert!(!first.contains("ratelimit"), "{first}");
        assert!(!second.contains("ratelimit"), "{second}");
        assert!(second.contains("retry-after: 1\n"), "{second}");
    }
}

#[tokio::test]
async fn a_grpc_status_says_so() {
    let [_, second] = two(export(), Headers::None, "application/grpc").await;
    insta::assert_snapshot!(second, @r#"
    200 OK
    grpc-status: 8
    grpc-message: as many requests as may run at a time are in progress: export-concurrent (1)
    retry-after: 3
    grpc-status-details-bin: CAgSTGFzIG1hbnkgcmVxdWVzdHMgYXMgbWF5IHJ1biBhdCBhIHRpbWUgYXJlIGluIHByb2dyZXNzOiBleHBvcnQtY29uY3VycmVudCAoMSkaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIAxpXCit0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUXVvdGFGYWlsdXJlEigKJhIRZXhwb3J0LWNvbmN1cnJlbnQqEWV4cG9ydC1jb25jdXJyZW50
    grpc-retry-pushback-ms: 2500
    "#);
}

/// A quota's denial is the stronger one: its wait is known.
#[tokio::test]
async fn a_used_up_quota_is_told_as_one() {
    let [_, second] = two(one_at_a_time(1), Headers::Draft11, "text/plain").await;
    insta::assert_snapshot!(second, @r#"
    429 Too Many Requests
    cache-control: no-store
    ratelimit-policy: "export";q=1;w=60,"export-concurrent";q=1;qu="concurrent-requests"
    ratelimit: "export";r=0;t=60,"export-concurrent";r=0
    retry-after: 60
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["export","export-concurrent"],"retry-after":60}
    "#);
}

/// No wait helps.
#[tokio::test]
async fn none_at_a_time_is_no_busy_rule() {
    let rule = Rule::with_policies("export", [Policy::concurrent(0)]).expect("valid");
    let app = app_of(rule, Headers::Draft11);
    insta::assert_snapshot!(show(ask(&app, "text/plain").await).await, @r#"
    429 Too Many Requests
    cache-control: no-store
    ratelimit-policy: "export";q=0;qu="concurrent-requests"
    ratelimit: "export";r=0
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["export"]}
    "#);
}

/// Clients are told nothing of it, not even that there is such a limit.
#[tokio::test]
async fn a_hidden_number_stays_hidden() {
    let hidden = Policy::concurrent(1).hidden();
    let rule = Rule::with_policies("export", [Quota::per_minute(60).into(), hidden]);
    for content_type in ["text/plain", "application/grpc"] {
        let rule = rule.clone().expect("valid");
        let [_, second] = two(rule, Headers::Draft11, content_type).await;
        for secret in ["concurrent", "at a time", "progress", "#busy"] {
            assert!(!second.contains(secret), "{second}");
        }
        assert!(second.contains("quota"), "{second}");
    }
}

/// Of several subjects, those that are busy: the second request of a user.
#[tokio::test]
async fn each_busy_policy_has_its_number() {
    let alice = |_: &http::request::Parts| Ok(Key::from("alice"));
    let user = Subject::new("user", alice).limit(Policy::concurrent(1));
    let all = Subject::new("all", Everyone).limit(Policy::concurrent(2));
    let rule = Rule::joint("export", [user, all]).expect("valid");
    let [first, second] = two(rule, Headers::Draft11, "text/plain").await;
    insta::assert_snapshot!(first, @r#"
    200 OK
    ratelimit-policy: "export-user";q=1;qu="concurrent-requests","export-all";q=2;qu="concurrent-requests"
    ratelimit: "export-user";r=0,"export-all";r=1
    1
    "#);
    insta::assert_snapshot!(second, @r#"
    429 Too Many Requests
    cache-control: no-store
    ratelimit-policy: "export-user";q=1;qu="concurrent-requests","export-all";q=2;qu="concurrent-requests"
    ratelimit: "export-user";r=0,"export-all";r=1
    retry-after: 1
    {"type":"https://docs.rs/tidegate/latest/tidegate/callback/struct.Problem.html#busy","title":"As many requests as may run at a time are in progress","status":429,"violated-policies":["export-user"],"max-concurrent":[1],"retry-after":1}
    "#);
}

#[tokio::test]
async fn a_refused_check_says_so() {
    let limits = Limits::new([export()]);
    let admitted = limits.check("export", "alice").await.expect("it may");
    let refused = limits.check("export", "alice").await.expect_err("busy");
    let expected = "as many requests of export run as may at a time";
    assert_eq!(refused.to_string(), expected);
    let hint = refused.retry_after().expect("a hint");
    assert_eq!(hint.as_millis(), 2_500);
    drop(admitted);
}
