//! What clients see: header fields and problem documents.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response};
use tidegate::decision::Verdict;
use tidegate::rule::Policy;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Headers, MemoryStore, Quota, RateLimitLayer, Rule};
use tower::ServiceExt;

use crate::{send, text};
use kit::stub::always;

fn quota(max: u64, millis: u64) -> Quota {
    Quota::new(Duration::from_millis(millis), max).expect("valid")
}

/// Status, all fields that are not axum's, and the body.
async fn show(response: Response<Body>) -> String {
    let mut shown = format!("{}\n", response.status());
    for (name, value) in response.headers() {
        if name != "content-length" {
            shown += &format!("{name}: {}\n", value.to_str().expect("printable"));
        }
    }
    shown + &text(response).await
}

/// So many requests 250 ms apart; what the last of them got.
async fn after(rule: Rule, headers: Headers, requests: usize, cost: u64) -> String {
    let clock = ManualClock::default();
    let store = MemoryStore::new().clock(clock.clone());
    let layer = RateLimitLayer::from_rule(rule)
        .store(Arc::new(store))
        .headers(headers);
    let layer = layer.cost(move |head| if head.uri.query().is_some() { cost } else { 1 });
    let app = Router::new().route("/", get(|| async { "1" }).layer(layer));
    for _ in 1..requests {
        send(&app, "/").await;
        clock.set(clock.now() + 250_000);
    }
    let request = Request::get("/?last").body(Body::empty()).expect("valid");
    show(app.oneshot(request).await.expect("axum does not fail")).await
}

fn one() -> Rule {
    Rule::new("getId", [quota(2, 10_000)]).expect("valid")
}

fn two() -> Rule {
    let policies = [
        Policy::new("burst", quota(2, 10_000)),
        Policy::new("daily", quota(1_000, 86_400_000)),
    ];
    Rule::with_policies("login", policies).expect("valid")
}

#[tokio::test]
async fn draft_11() {
    insta::assert_snapshot!(after(one(), Headers::Draft11, 1, 1).await, @r#"
    200 OK
    content-type: text/plain; charset=utf-8
    ratelimit-policy: "getId";q=2;w=10
    ratelimit: "getId";r=1;t=10
    1
    "#);
    insta::assert_snapshot!(after(one(), Headers::Draft11, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    ratelimit-policy: "getId";q=2;w=10
    ratelimit: "getId";r=0;t=10
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"]}
    "#);
    insta::assert_snapshot!(after(two(), Headers::Draft11, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    ratelimit-policy: "burst";q=2;w=10,"daily";q=1000;w=86400
    ratelimit: "burst";r=0;t=10,"daily";r=998
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["burst"]}
    "#);
}

/// The effective window of a quota that is whole is its window, also while another one denies.
#[tokio::test]
async fn a_whole_quota_has_its_window() {
    let policies = [
        Policy::new("burst", quota(2, 100)),
        Policy::new("daily", quota(1, 86_400_000)),
    ];
    let rule = Rule::with_policies("login", policies).expect("valid");
    let shown = after(rule, Headers::Draft11, 2, 1).await;
    insta::assert_snapshot!(shown.lines().nth(3).expect("a field"), @r#"ratelimit: "burst";r=2;t=1,"daily";r=0;t=86400"#);
}

/// 4 in 60 s: `RateLimit` after so many requests, 250 ms apart, and one more that costs so much.
#[tokio::test]
async fn effective_windows() {
    async fn after(algorithm: Algorithm, requests: usize, cost: u64) -> String {
        let rule = Rule::new("p", [quota(4, 60_000)]).expect("valid");
        let rule = rule.with_algorithm(algorithm);
        let shown = super::fields::after(rule, Headers::Draft11, requests + 1, cost).await;
        let field = shown
            .lines()
            .find_map(|line| line.strip_prefix("ratelimit: \"p\";"));
        field.expect("a field").to_owned()
    }
    for algorithm in Algorithm::ALL {
        // Untouched: 4 last for the window.
        assert_eq!(after(algorithm, 0, 0).await, "r=4;t=60", "{algorithm:?}");
        // That cost never fits.
        assert_eq!(after(algorithm, 0, 5).await, "r=4;t=60", "{algorithm:?}");
    }
    for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow] {
        assert_eq!(after(algorithm, 0, 1).await, "r=3;t=60", "{algorithm:?}");
        assert_eq!(after(algorithm, 3, 1).await, "r=0;t=60", "{algorithm:?}");
        // Denied: the first two have left after 59.25 s.
        assert_eq!(after(algorithm, 3, 3).await, "r=1;t=60", "{algorithm:?}");
    }
    // One every 15 s. What remains lasts for so long.
    assert_eq!(after(Algorithm::Gcra, 0, 1).await, "r=3;t=45");
    assert_eq!(after(Algorithm::Gcra, 1, 1).await, "r=2;t=30");
    assert_eq!(after(Algorithm::Gcra, 3, 1).await, "r=0;t=15");
    assert_eq!(after(Algorithm::FixedWindow, 3, 1).await, "r=0;t=60");
    assert_eq!(after(Algorithm::FixedWindow, 3, 2).await, "r=1;t=60");
}

/// Other generations say when all units are back: at once, if they are.
#[tokio::test]
async fn a_whole_quota_has_no_reset() {
    let shown = after(one(), Headers::Draft7, 1, 0).await;
    assert!(
        shown.contains("ratelimit: limit=2, remaining=2, reset=0\n"),
        "{shown}"
    );
    let shown = after(one(), Headers::Legacy, 1, 0).await;
    assert!(shown.contains("x-ratelimit-reset: 0\n"), "{shown}");
}

/// A request that can never be allowed is not told to come back.
#[tokio::test]
async fn never_has_no_retry_after() {
    insta::assert_snapshot!(after(one(), Headers::Draft11, 2, 3).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    ratelimit-policy: "getId";q=2;w=10
    ratelimit: "getId";r=1;t=10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"]}
    "#);
}

/// Rounded up, never 0; and no window is stated that is not the quota's.
#[tokio::test]
async fn short_windows() {
    let rule = Rule::new("fast", [quota(1, 300)]).expect("valid");
    insta::assert_snapshot!(after(rule, Headers::Draft11, 2, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    ratelimit-policy: "fast";q=1
    ratelimit: "fast";r=0;t=1
    retry-after: 1
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["fast"]}
    "#);
}

#[tokio::test]
async fn names_are_safe() {
    let rule = Rule::new("caf\u{e9} \"x\"\\\r\n", [quota(9, 1_000)]).expect("valid");
    insta::assert_snapshot!(after(rule, Headers::Draft11, 1, 1).await, @r#"
    200 OK
    content-type: text/plain; charset=utf-8
    ratelimit-policy: "caf%C3%A9 %22x%22%5C%0D%0A";q=9;w=1
    ratelimit: "caf%C3%A9 %22x%22%5C%0D%0A";r=8;t=1
    1
    "#);
}

#[tokio::test]
async fn draft_7() {
    insta::assert_snapshot!(after(two(), Headers::Draft7, 1, 1).await, @"
    200 OK
    content-type: text/plain; charset=utf-8
    ratelimit-policy: 2;w=10, 1000;w=86400
    ratelimit: limit=2, remaining=1, reset=10
    1
    ");
    insta::assert_snapshot!(after(one(), Headers::Draft7, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    ratelimit-policy: 2;w=10
    ratelimit: limit=2, remaining=0, reset=10
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"]}
    "#);
}

#[tokio::test]
async fn legacy() {
    insta::assert_snapshot!(after(one(), Headers::Legacy, 1, 1).await, @"
    200 OK
    content-type: text/plain; charset=utf-8
    x-ratelimit-limit: 2
    x-ratelimit-remaining: 1
    x-ratelimit-reset: 10
    1
    ");
    insta::assert_snapshot!(after(one(), Headers::Legacy, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    x-ratelimit-limit: 2
    x-ratelimit-remaining: 0
    x-ratelimit-reset: 10
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"]}
    "#);
}

#[tokio::test]
async fn none() {
    insta::assert_snapshot!(after(one(), Headers::None, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"]}
    "#);
}

/// A degrade callback's response gets the same fields.
#[tokio::test]
async fn degraded() {
    let layer = RateLimitLayer::new("export", Duration::from_secs(60), 0);
    let layer = layer.degrade(async |_: tidegate::Denied| "the last report");
    let app = Router::new().route("/", get(|| async { "" }).layer(layer));
    insta::assert_snapshot!(show(send(&app, "/").await).await, @r#"
    200 OK
    content-type: text/plain; charset=utf-8
    ratelimit-policy: "export";q=0;w=60
    ratelimit: "export";r=0;t=60
    the last report
    "#);
}

/// A layer on a router around a layer on a route: each adds its own.
#[tokio::test]
async fn layers_within_layers() {
    let limited = |path, max| RateLimitLayer::new(path, Duration::from_secs(60), max);
    let app = Router::new()
        .route("/", get(|| async { "" }).layer(limited("route", 1)))
        .layer(limited("router", 9));
    send(&app, "/").await;
    let response = send(&app, "/").await;
    let decision = tidegate::Decision::from_extensions(response.extensions());
    let decision = decision.expect("a decision");
    assert!(
        !decision.is_allowed(),
        "the inner layer's decision is the one that counts"
    );
    insta::assert_snapshot!(show(response).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    ratelimit-policy: "route";q=1;w=60
    ratelimit-policy: "router";q=9;w=60
    ratelimit: "route";r=0;t=60
    ratelimit: "router";r=7;t=60
    retry-after: 60
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["route"]}
    "#);
}

/// The fields that are no lists show the tightest limit, wherever its layer is: the fewest units
/// left, and of several limits the one that is replenished last.
#[tokio::test]
async fn one_field_for_layers_within_layers() {
    async fn shown(headers: Headers, inner: (u64, u64), outer: (u64, u64)) -> String {
        let layer = |path, (max, seconds)| {
            RateLimitLayer::new(path, Duration::from_secs(seconds), max).headers(headers)
        };
        let handler = get(|| async { "" }).layer(layer("inner", inner));
        let app = Router::new()
            .route("/", handler)
            .layer(layer("outer", outer));
        let response = send(&app, "/").await;
        let names = [
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ];
        let all = |name| {
            let fields = response.headers().get_all(name).iter();
            fields
                .map(|field| field.to_str().expect("text").to_owned())
                .collect::<Vec<_>>()
        };
        let fields: Vec<_> = names.into_iter().flat_map(all).collect();
        fields.join(" | ")
    }
    for (inner, outer, tightest) in [
        ((3, 60), (9, 60), (3, 60)),
        ((9, 60), (3, 60), (3, 60)),
        ((3, 60), (3, 90), (3, 90)),
        ((3, 90), (3, 60), (3, 90)),
        ((10, 60), (9, 60), (9, 60)),
    ] {
        let (max, seconds) = tightest;
        assert_eq!(
            shown(Headers::Draft7, inner, outer).await,
            format!(
                "{max};w={seconds} | limit={max}, remaining={}, reset={seconds}",
                max - 1
            )
        );
        assert_eq!(
            shown(Headers::Legacy, inner, outer).await,
            format!("{max} | {} | {seconds}", max - 1)
        );
    }
}

/// What a handler has written by itself and cannot be read stays.
#[tokio::test]
async fn fields_of_others_stay() {
    for (headers, name, value) in [
        (Headers::Draft7, "ratelimit", "\"upstream\";r=5;t=7"),
        (Headers::Draft7, "ratelimit", "remaining=many, reset=1"),
        (Headers::Legacy, "x-ratelimit-remaining", "unlimited"),
        (Headers::Legacy, "x-ratelimit-remaining", "5"),
    ] {
        let layer = RateLimitLayer::new("p", Duration::from_secs(60), 1).headers(headers);
        let handler = get(move || async move { [(name, value)] });
        let app = Router::new().route("/", handler.layer(layer));
        let response = send(&app, "/").await;
        let fields: Vec<_> = response.headers().get_all(name).iter().collect();
        assert_eq!(fields, [value]);
    }
}

/// A store of one's own may say nothing about the quotas: then there is nothing to tell.
#[tokio::test]
async fn without_quota_states() {
    let retry_after = Duration::from_millis(1_500);
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        for verdict in [Verdict::Allowed, Verdict::Denied { retry_after }] {
            let layer = RateLimitLayer::new("p", Duration::from_secs(60), 1).headers(headers);
            let layer = layer.store(always(verdict));
            let app = Router::new().route("/", get(|| async { "" }).layer(layer));
            let response = send(&app, "/").await;
            let names = response.headers().keys().map(http::HeaderName::as_str);
            assert!(!names.into_iter().any(|name| name.contains("ratelimit")));
            let expected = (verdict != Verdict::Allowed).then_some("2");
            let retry_after = response.headers().get("retry-after");
            assert_eq!(retry_after.and_then(|value| value.to_str().ok()), expected);
        }
    }
}
