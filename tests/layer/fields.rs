//! What clients see: header fields and problem documents.

use axum::routing::get;
use kit::stub::always;

use crate::*;

fn quota(max: u64, window: u64) -> Quota {
    kit::quota(max, millis(window))
}

async fn show(response: Response<Body>) -> String {
    crate::shown(response, &["content-length"]).await
}

/// So many requests 250 ms apart; what the last of them got.
async fn after(rule: Rule, headers: Headers, requests: usize, cost: u64) -> String {
    let clock = ManualClock::default();
    let store = MemoryStore::new().clock(clock.clone());
    let layer = RateLimitLayer::from_rule(rule)
        .store(Arc::new(store))
        .headers(headers)
        .cost(move |head| if head.uri.query().is_some() { cost } else { 1 });
    let app = app(layer);
    for _ in 1..requests {
        send(&app, "/").await;
        clock.set(clock.now() + 250_000);
    }
    show(send(&app, "/?last").await).await
}

fn one() -> Rule {
    owned_rule("getId", 2, 10 * SECOND)
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
    cache-control: no-store
    ratelimit-policy: "getId";q=2;w=10
    ratelimit: "getId";r=0;t=10
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"],"retry-after":10}
    "#);
    insta::assert_snapshot!(after(two(), Headers::Draft11, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    cache-control: no-store
    ratelimit-policy: "burst";q=2;w=10,"daily";q=1000;w=86400
    ratelimit: "burst";r=0;t=10,"daily";r=998
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["burst"],"retry-after":10}
    "#);
}

/// Other generations say when all units are back: at once, if they are.
#[tokio::test]
async fn a_whole_quota_has_no_reset() {
    for (headers, expected) in [
        (
            Headers::Draft7,
            "ratelimit: limit=2, remaining=2, reset=0\n",
        ),
        (Headers::Legacy, "x-ratelimit-reset: 0\n"),
    ] {
        let shown = after(one(), headers, 1, 0).await;
        assert!(shown.contains(expected), "{shown}");
    }
}

/// A request that can never be allowed is told so, and not to come back.
#[tokio::test]
async fn never_has_no_retry_after() {
    insta::assert_snapshot!(after(one(), Headers::Draft11, 2, 3).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    cache-control: no-store
    ratelimit-policy: "getId";q=2;w=10
    ratelimit: "getId";r=1;t=10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"],"detail":"The request costs more than a quota ever admits, so it is denied at any time","never":true}
    "#);
}

/// Rounded up, never 0; and no window is stated that is not the quota's.
#[tokio::test]
async fn short_windows() {
    let rule = owned_rule("fast", 1, millis(300));
    insta::assert_snapshot!(after(rule, Headers::Draft11, 2, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    cache-control: no-store
    ratelimit-policy: "fast";q=1
    ratelimit: "fast";r=0;t=1
    retry-after: 1
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["fast"],"retry-after":1}
    "#);
}

#[tokio::test]
async fn names_are_safe() {
    let rule = owned_rule("caf\u{e9} \"x\"\\\r\n", 9, SECOND);
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
    cache-control: no-store
    ratelimit-policy: 2;w=10
    ratelimit: limit=2, remaining=0, reset=10
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"],"retry-after":10}
    "#);
}

/// The policy is that of the layer whose numbers are shown.
#[tokio::test]
async fn draft_6() {
    insta::assert_snapshot!(after(two(), Headers::Draft6, 1, 1).await, @"
    200 OK
    content-type: text/plain; charset=utf-8
    ratelimit-policy: 2;w=10, 1000;w=86400
    ratelimit-limit: 2
    ratelimit-remaining: 1
    ratelimit-reset: 10
    1
    ");
    let layer = |path, max| RateLimitLayer::new(path, 10 * SECOND, max).headers(Headers::Draft6);
    for (inner, outer) in [(3, 9), (9, 3)] {
        let response = send(&app(layer("a", inner)).layer(layer("b", outer)), "/").await;
        let policies = response.headers().get_all("ratelimit-policy").iter();
        assert_eq!(policies.collect::<Vec<_>>(), ["3;w=10"]);
        assert_eq!(response.headers()["ratelimit-remaining"], "2");
    }
    // What an upstream says of itself is replaced.
    let upstream = [("ratelimit-limit", "7"), ("ratelimit-policy", "7;w=1")];
    let handler = get(async move || upstream).layer(layer("a", 3));
    let response = send(&Router::new().route("/", handler), "/").await;
    assert_eq!(response.headers()["ratelimit-limit"], "3");
    assert_eq!(response.headers()["ratelimit-policy"], "3;w=10");
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
    cache-control: no-store
    x-ratelimit-limit: 2
    x-ratelimit-remaining: 0
    x-ratelimit-reset: 10
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"],"retry-after":10}
    "#);
}

#[tokio::test]
async fn none() {
    insta::assert_snapshot!(after(one(), Headers::None, 3, 1).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    cache-control: no-store
    retry-after: 10
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["getId"],"retry-after":10}
    "#);
}

/// A layer on a router around a layer on a route: each adds its own.
#[tokio::test]
async fn layers_within_layers() {
    let limited = |path, max| RateLimitLayer::new(path, WINDOW, max);
    let app = app(limited("route", 1)).layer(limited("router", 9));
    send(&app, "/").await;
    let response = send(&app, "/").await;
    let decision = Decision::from_extensions(response.extensions());
    // The inner layer's decision is the one that counts.
    assert!(!decision.expect("a decision").is_allowed());
    insta::assert_snapshot!(show(response).await, @r#"
    429 Too Many Requests
    content-type: application/problem+json
    cache-control: no-store
    ratelimit-policy: "route";q=1;w=60
    ratelimit-policy: "router";q=9;w=60
    ratelimit: "route";r=0;t=60
    ratelimit: "router";r=7;t=60
    retry-after: 60
    {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["route"],"retry-after":60}
    "#);
}

/// The fields that are no lists show the tightest limit, wherever its layer is: the fewest units
/// left, and of several limits the one that is replenished last.
#[tokio::test]
async fn one_field_for_layers_within_layers() {
    const NAMES: [&str; 5] = [
        "ratelimit-policy",
        "ratelimit",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    let shown = async |headers: Headers, inner, outer| {
        let layer = |path, (max, seconds)| {
            RateLimitLayer::new(path, seconds * SECOND, max).headers(headers)
        };
        let app = app(layer("inner", inner)).layer(layer("outer", outer));
        let response = send(&app, "/").await;
        let fields = NAMES
            .iter()
            .flat_map(|name| response.headers().get_all(*name));
        let fields = fields.map(|field| field.to_str().expect("text"));
        fields.collect::<Vec<_>>().join(" | ")
    };
    for (inner, outer, tightest) in [
        ((3, 60), (9, 60), (3, 60)),
        ((9, 60), (3, 60), (3, 60)),
        ((3, 60), (3, 90), (3, 90)),
        ((3, 90), (3, 60), (3, 90)),
        ((10, 60), (9, 60), (9, 60)),
    ] {
        let (max, seconds) = tightest;
        let left = max - 1;
        let fields = format!("limit={max}, remaining={left}, reset={seconds}");
        let draft_7 = format!("{max};w={seconds} | {fields}");
        assert_eq!(shown(Headers::Draft7, inner, outer).await, draft_7);
        let legacy = format!("{max} | {left} | {seconds}");
        assert_eq!(shown(Headers::Legacy, inner, outer).await, legacy);
    }
}

/// The names that a generation writes.
const GENERATIONS: [(&[Headers], &[&str]); 2] = [
    (
        &[Headers::Draft11, Headers::Draft7],
        &["ratelimit", "ratelimit-policy"],
    ),
    (
        &[Headers::Legacy],
        &[
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ],
    ),
];

/// What an upstream says of its own limits, which a gateway's handler passes on.
const UPSTREAM: [&[(&str, &str)]; 6] = [
    &[
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1771404540"),
    ],
    &[
        ("x-ratelimit-remaining", "unlimited"),
        ("x-ratelimit-reset", "6m0s"),
    ],
    &[
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-remaining", "0"),
    ],
    &[
        ("ratelimit", "limit=5000, remaining=0, reset=1"),
        ("ratelimit-policy", "5000;w=3600"),
    ],
    &[
        ("ratelimit", "\"upstream\";r=0;t=7"),
        ("ratelimit", "\"other\";r=1"),
    ],
    &[
        ("ratelimit-policy", "\"upstream\";q=9"),
        ("x-ratelimit-limit", "7"),
    ],
];

/// An app that answers with this status, of HTTP or of gRPC, and these fields, behind layers of these
/// generations, the innermost first.
fn behind(layers: &[Headers], status: u16, fields: &'static [(&str, &str)]) -> Router {
    let handler = any(async move || {
        let mut response = Response::new(Body::empty());
        match StatusCode::from_u16(status) {
            Ok(status) => *response.status_mut() = status,
            Err(_) => _ = response.headers_mut().insert("grpc-status", status.into()),
        }
        for (name, value) in fields {
            let value = HeaderValue::from_static(value);
            response.headers_mut().append(*name, value);
        }
        response
    });
    let app = Router::new().route("/", handler);
    layers
        .iter()
        .zip([("a", 7), ("b", 9), ("c", 5)])
        .fold(app, |app, (headers, (path, max))| {
            app.layer(RateLimitLayer::new(path, WINDOW, max).headers(*headers))
        })
}

/// The values of the fields of these names.
async fn values(app: &Router, names: &[&str]) -> Vec<String> {
    let response = send(app, "/").await;
    let fields = names
        .iter()
        .flat_map(|name| response.headers().get_all(*name));
    let values = fields.map(|value| value.to_str().expect("text").to_owned());
    values.collect()
}

/// Of all stacks of one to three layers: what stood in a response before the innermost of them has
/// no effect on what the layers write. Where none of them writes such fields, it stays.
#[tokio::test]
async fn fields_of_an_upstream_are_replaced() {
    let all = [
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::None,
    ];
    let stacks = all.iter().flat_map(|a| {
        let pairs = all.iter().map(move |b| vec![*a, *b]);
        let triples = all
            .iter()
            .flat_map(move |b| all.map(move |c| vec![*a, *b, c]));
        std::iter::once(vec![*a]).chain(pairs).chain(triples)
    });
    for (stack, fields) in stacks.flat_map(|it| UPSTREAM.map(move |fields| (it.clone(), fields))) {
        for (generations, names) in GENERATIONS {
            let found = values(&behind(&stack, 200, fields), names).await;
            let is_written = stack.iter().any(|it| generations.contains(it));
            let layers = if is_written { &stack[..] } else { &[] };
            let own = if is_written { &[][..] } else { fields };
            let expected = values(&behind(layers, 200, own), names).await;
            assert_eq!(found, expected, "{stack:?} {fields:?}");
            // A refusal of the handler's own is about what it says.
            for status in [429, 503, 8, 14] {
                let has_own = fields.iter().any(|(name, _)| names.contains(name));
                let layers = if has_own { &[] } else { &stack[..] };
                let found = values(&behind(&stack, status, fields), names).await;
                let expected = values(&behind(layers, status, fields), names).await;
                assert_eq!(found, expected, "{status} {stack:?} {fields:?}");
            }
        }
    }
}

/// The fields of a callback stay as it has set them.
#[tokio::test]
async fn fields_of_a_callback_stay() {
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        for fields in UPSTREAM {
            for (generations, names) in GENERATIONS {
                let layer = RateLimitLayer::new("p", WINDOW, 0).headers(headers);
                let layer = layer.degrade_fn(move |_| async move {
                    let app = behind(&[], 429, fields);
                    send(&app, "/").await
                });
                let has_own = fields.iter().any(|(name, _)| names.contains(name));
                let found = values(&app(layer), names).await;
                let own = values(&behind(&[], 429, fields), names).await;
                if has_own || !generations.contains(&headers) {
                    assert_eq!(found, own, "{headers:?} {fields:?}");
                } else {
                    assert_eq!(found.len(), names.len(), "{headers:?} {fields:?}");
                }
            }
        }
    }
}

/// A gateway over sockets, whose upstream tells of another limit and denies the second request.
#[tokio::test]
async fn a_gateway_tells_of_its_own_limit() {
    let upstream = RateLimitLayer::new("upstream", WINDOW, 1).headers(Headers::Legacy);
    let upstream = serve(app(upstream)).await;
    let handler = get(move || async move { over_tcp(upstream, request("/", "host: a")).await });
    let layer = RateLimitLayer::new("p", WINDOW, 10).headers(Headers::Legacy);
    let gateway = serve(Router::new().route("/", handler.layer(layer))).await;
    let [first, second] = [
        over_tcp(gateway, request("/", "host: a")).await,
        over_tcp(gateway, request("/", "host: a")).await,
    ];
    let shown = |response: &Response<Body>| {
        let names = ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after"];
        names.map(|name| {
            response
                .headers()
                .get(name)
                .map(|it| it.to_str().expect("text").to_owned())
        })
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        (first.status(), shown(&first)),
        (OK, [some("10"), some("9"), None])
    );
    assert_eq!(
        (second.status(), shown(&second)),
        (DENIED, [some("1"), some("0"), some("60")])
    );
}

/// Timers of Node.js overflow above 2^31 - 1 milliseconds: its clients would come again at once.
#[tokio::test]
async fn a_wait_above_24_days() {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);
    let month = || owned_rule("p", 1, MONTH);
    let retry_after = |shown: &str| shown.contains("\nretry-after: 2147483\n");
    for (headers, exact) in [
        (Headers::Draft11, "ratelimit: \"p\";r=0;t=2592000\n"),
        (
            Headers::Draft7,
            "ratelimit: limit=1, remaining=0, reset=2592000\n",
        ),
        (Headers::Legacy, "x-ratelimit-reset: 2592000\n"),
        (Headers::None, ""),
    ] {
        let shown = after(month(), headers, 2, 1).await;
        assert!(retry_after(&shown), "{shown}");
        // It came a quarter of a second later.
        assert!(shown.contains(exact), "{shown}");
    }
    let exactly = after(
        owned_rule("p", 1, Duration::from_secs(2_147_483)),
        Headers::None,
        2,
        1,
    )
    .await;
    assert!(retry_after(&exactly), "{exactly}");
    // Before the store is asked again.
    let pause = Duration::from_secs(3_000_000);
    let resilient = Resilient::new(no_store()).probe_every(pause);
    let undecided = RateLimitLayer::from_rule(month()).store(resilient.build());
    let shown = show(send(&app(undecided), "/").await).await;
    assert!(shown.starts_with("503") && retry_after(&shown), "{shown}");
}

/// A store of one's own may say nothing about the quotas: then there is nothing to tell.
#[tokio::test]
async fn without_quota_states() {
    let retry_after = Duration::from_millis(1_500);
    for headers in [Headers::Draft11, Headers::Draft7, Headers::Legacy] {
        for verdict in [Verdict::Allowed, Verdict::Denied { retry_after }] {
            let layer = RateLimitLayer::new("p", WINDOW, 1).headers(headers);
            let response = send(&app(layer.store(always(verdict))), "/").await;
            let names = response.headers().keys().map(http::HeaderName::as_str);
            assert!(!names.into_iter().any(|name| name.contains("ratelimit")));
            let expected = (verdict != Verdict::Allowed).then_some("2");
            let retry_after = response.headers().get("retry-after");
            assert_eq!(retry_after.and_then(|value| value.to_str().ok()), expected);
        }
    }
}
