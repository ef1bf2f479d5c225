//! Answers to gRPC requests, as they are on the wire. Those of tonic's client are in `tests/grpc`.

use http_body::Body as _;
use tidegate::DegradeCallback;
use tidegate::callback::{Problem, is_grpc};

use crate::*;

const GRPC: &str = "application/grpc";

async fn ask(layer: &RateLimitLayer, content_type: &str) -> Response<Body> {
    let request = post("/p", &format!("content-type: {content_type}"));
    call(&app_at("/p", layer.clone()), request).await
}

async fn show(response: Response<Body>) -> String {
    crate::shown(response, &["content-length"]).await
}

async fn shown(layer: &RateLimitLayer) -> String {
    show(ask(layer, GRPC).await).await
}

/// Denies all but the first request.
fn one() -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, 1)
}

fn none() -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, 0)
}

fn undecided() -> RateLimitLayer {
    one().store(no_store())
}

/// By both ways through the layer.
#[tokio::test(start_paused = true)]
async fn a_denial() {
    for store in [paused() as Arc<dyn Store>, Arc::new(far(millis(10)))] {
        let layer = one().store(store);
        let handled = ask(&layer, GRPC).await;
        assert!(handled.headers().get("grpc-status").is_none());
        assert_eq!(text(handled).await, "handled");
        let denied = shown(&layer).await;
        insta::allow_duplicates!(insta::assert_snapshot!(denied, @r#"
        200 OK
        content-type: application/grpc
        grpc-status: 8
        grpc-message: quota exceeded: p
        ratelimit-policy: "p";q=1;w=60
        ratelimit: "p";r=0;t=60
        retry-after: 60
        grpc-status-details-bin: CAgSEXF1b3RhIGV4Y2VlZGVkOiBwGjAKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SBAoCCDwaNwordHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlF1b3RhRmFpbHVyZRIICgYSAXAqAXA
        grpc-retry-pushback-ms: -1
        "#));
    }
}

/// A wait above 24 days is cut in `retry-after`, and told in the details.
#[tokio::test]
async fn a_wait_of_a_month() {
    let layer = RateLimitLayer::new("p", Duration::from_secs(30 * 24 * 3_600), 1);
    ask(&layer, GRPC).await;
    let denied = ask(&layer, GRPC).await;
    assert_eq!(denied.headers()["retry-after"], "2147483");
    // The bytes 08 80 9a 9e 01 are a `Duration` of 2,592,000 seconds.
    let details = denied.headers()["grpc-status-details-bin"].to_str();
    let details = details.expect("base64");
    assert!(details.contains("CICangEa"), "{details}");
}

/// What a client does that has a retry policy for a status: it waits for so long, or it gives up.
/// Longer than its deadline it would wait in vain, and not see the status.
#[tokio::test(start_paused = true)]
async fn pushback() {
    let every = |wait: u64| RateLimitLayer::new("p", millis(wait), 1);
    let cases = [
        // Without a deadline, within 5 s.
        (every(4_900), "", "4900"),
        (every(4_901), "", "-1"),
        (every(60_000), "", "-1"),
        (every(1), "", "1"),
        // With one, 100 ms before it.
        (every(1_000), "grpc-timeout: 1100m", "1000"),
        (every(1_000), "grpc-timeout: 1099m", "-1"),
        (every(1_000), "grpc-timeout: 1S", "-1"),
        (every(1_000), "grpc-timeout: 2S", "1000"),
        (every(60_000), "grpc-timeout: 2M", "60000"),
        (every(3_600_000), "grpc-timeout: 2H", "3600000"),
        (every(1_000), "grpc-timeout: 1100000u", "1000"),
        (every(1_000), "grpc-timeout: 1099999u", "-1"),
        (every(1), "grpc-timeout: 99999999n", "-1"),
        (every(1_000), "grpc-timeout: 0S", "-1"),
        // What is no timeout is none.
        (every(1_000), "grpc-timeout: 1", "1000"),
        (every(1_000), "grpc-timeout: S", "1000"),
        (every(1_000), "grpc-timeout: -1S", "1000"),
        (every(1_000), "grpc-timeout: 999999999S", "1000"),
        (every(60_000), "grpc-timeout: 1h", "-1"),
        // Timers of grpc-js overflow at 2^31 ms.
        (
            every((1 << 31) - 1),
            "grpc-timeout: 99999999H",
            "2147483647",
        ),
        (every(1 << 31), "grpc-timeout: 99999999H", "-1"),
        // No wait helps.
        (
            RateLimitLayer::new("p", WINDOW, 0),
            "grpc-timeout: 2H",
            "-1",
        ),
    ];
    for (layer, timeout, expected) in cases {
        let layer = layer.store(paused());
        let fields = [&format!("content-type: {GRPC}"), timeout];
        let fields = fields.join(if timeout.is_empty() { "" } else { ", " });
        let request = || post("/p", &fields);
        let app = app_at("/p", layer.clone());
        let first = call(&app, request()).await;
        let denied = match first.headers().get("grpc-status") {
            None => call(&app, request()).await,
            Some(_) => first,
        };
        assert_eq!(denied.headers()["grpc-status"], "8");
        let pushback = &denied.headers()["grpc-retry-pushback-ms"];
        assert_eq!(pushback, expected, "{timeout}");
    }
}

/// The time that a request has waited already is no longer the client's, nor that of a callback.
#[tokio::test(start_paused = true)]
async fn pushback_of_a_request_that_waited() {
    let late = async |denied: Denied| {
        tokio::time::sleep(millis(500)).await;
        Problem.degrade(denied).await
    };
    let every = |wait: u64| RateLimitLayer::new("p", millis(wait), 1);
    let far = || Arc::new(far(millis(500)));
    for (layer, timeout, expected) in [
        // Its answer comes half a second late, in the middle of which the store has decided.
        (every(2_000).store(far()), 2_100, "1500"),
        (every(2_000).store(far()), 2_099, "-1"),
        (every(1_000).store(paused()).degrade(late), 1_600, "1000"),
        (every(1_000).store(paused()).degrade(late), 1_599, "-1"),
        // Two wait for a second, and one of them is denied then.
        (
            every(1_000).store(paused()).wait(millis(1_500)),
            2_100,
            "1000",
        ),
        (
            every(1_000).store(paused()).wait(millis(1_500)),
            2_099,
            "-1",
        ),
    ] {
        let app = app_at("/p", layer);
        let fields = format!("content-type: {GRPC}, grpc-timeout: {timeout}m");
        let ask = || call(&app, post("/p", &fields));
        ask().await;
        let denied = join_all([ask(), ask()]).await;
        let mut told = denied
            .iter()
            .filter_map(|it| it.headers().get("grpc-retry-pushback-ms"));
        assert_eq!(told.next().expect("a denial"), expected, "{timeout}");
    }
}

/// Whose answer has one keeps it; no other answer gets one.
#[tokio::test]
async fn whose_pushback() {
    let own = async |denied: Denied| {
        let mut response = Problem.degrade(denied).await;
        let own = HeaderValue::from_static("7");
        response.headers_mut().insert("grpc-retry-pushback-ms", own);
        response
    };
    let denied = ask(&none().degrade(own), GRPC).await;
    assert_eq!(denied.headers()["grpc-retry-pushback-ms"], "7");
    for (layer, content_type) in [
        (none(), "text/plain"),
        (one(), GRPC),
        (one().key(Header::new("x-tenant")), GRPC),
        (none().degrade(async |_: Denied| "later"), GRPC),
    ] {
        let answer = ask(&layer, content_type).await;
        assert!(!answer.headers().contains_key("grpc-retry-pushback-ms"));
    }
}

/// A server ends the stream with the head only if it knows that the body is empty.
#[tokio::test]
async fn there_is_no_body() {
    let response = ask(&none(), GRPC).await;
    assert!(response.body().is_end_stream());
}

/// The names are those of the fields, once the client has decoded the message.
#[tokio::test]
async fn all_quotas_that_deny_are_named() {
    let quotas = [
        Quota::per_second(0),
        Quota::per_minute(0),
        Quota::per_hour(9),
    ];
    let rule = Rule::new("caf\u{e9}", quotas).expect("valid");
    let denied = ask(&RateLimitLayer::from_rule(rule), GRPC).await;
    let expected = "quota exceeded: caf%25C3%25A9-1s, caf%25C3%25A9-1m";
    assert_eq!(denied.headers()["grpc-message"], expected);
}

#[tokio::test]
async fn no_decision() {
    let expected = "200 OK\ncontent-type: application/grpc\ngrpc-status: 14\n\
         grpc-message: temporary reduced capacity\ngrpc-retry-pushback-ms: 1000\n";
    let not_handled = ErrorCallbackChain::new().on::<KeyError>(async |_: Failed| "a key?");
    for layer in [
        undecided(),
        undecided().on_error(Problem),
        undecided().on_error(not_handled),
    ] {
        assert_eq!(shown(&layer).await, expected);
    }
    let open = shown(&undecided().on_error(FailOpen)).await;
    assert!(open.ends_with("handled"), "{open}");
    // A client that gives up before the store is asked again is told nothing.
    let request = post("/p", &format!("content-type: {GRPC}, grpc-timeout: 1S"));
    let late = call(&app_at("/p", undecided()), request).await;
    assert!(!late.headers().contains_key("grpc-retry-pushback-ms"));
}

#[tokio::test]
async fn a_missing_key() {
    let missing = "the request has no x-tenant header field";
    let of_grpc = format!(
        "200 OK\ncontent-type: application/grpc\ngrpc-status: 3\n\
         grpc-message: bad request: {missing}\n"
    );
    let of_http = "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400";
    let layer = one().key(Header::new("x-tenant"));
    for layer in [layer.clone(), layer.on_error(Problem)] {
        assert_eq!(shown(&layer).await, of_grpc);
        let http = text(ask(&layer, "text/plain").await).await;
        assert_eq!(http, format!("{of_http},\"detail\":\"{missing}\"}}"));
    }
    for layer in [one().key(PeerIp), one().key(PeerIp).on_error(Problem)] {
        let shown = shown(&layer).await;
        assert!(shown.starts_with(INTERNAL), "{shown}");
        let remedy = "into_make_service_with_connect_info";
        assert!(shown.contains(remedy), "{shown}");
    }
}

/// In builds with debug assertions, the reason stands behind it.
const INTERNAL: &str = "200 OK\ncontent-type: application/grpc\ngrpc-status: 13\n\
     grpc-message: internal server error: ";

#[tokio::test]
async fn a_panic() {
    fn no_key(_: &Parts) -> Result<Key, KeyError> {
        panic!("no key")
    }
    let no_answer = async |_: Denied| -> &str { panic!("no answer") };
    let no_recovery = async |_: Failed| -> Recovery { panic!("no recovery") };
    for layer in [
        one().key(no_key),
        one().cost(|_| panic!("no cost")),
        one().exempt(|_| panic!("not known")),
        undecided().on_error(no_recovery),
    ] {
        let shown = shown(&layer).await;
        assert!(shown.starts_with(INTERNAL), "{shown}");
        assert!(shown.ends_with(" panicked, see the log\n"), "{shown}");
    }
    let denied = shown(&none().degrade(no_answer)).await;
    assert!(denied.starts_with(INTERNAL), "with fields: {denied}");

    // The callback is told of an error of the handler.
    let failing = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("no"));
    let mut service = one().on_error(no_recovery).layer(failing);
    let response = service
        .call(post("/p", &format!("content-type: {GRPC}")))
        .await;
    let shown = show(response.expect("an answer")).await;
    assert!(shown.starts_with(INTERNAL), "{shown}");
}

/// What callbacks return is theirs, and they may leave it to the default.
#[tokio::test]
async fn callbacks() {
    let by_protocol = async |denied: Denied| match is_grpc(&denied.head) {
        true => Problem.degrade(denied).await,
        false => Response::new(Body::from("later")),
    };
    let layer = none().degrade(by_protocol);
    assert!(shown(&layer).await.contains("grpc-status: 8\n"));
    assert_eq!(text(ask(&layer, "text/plain").await).await, "later");

    let denied = shown(&none().degrade(async |_: Denied| "later")).await;
    assert!(denied.ends_with("later"), "{denied}");
    let failed = shown(&undecided().on_error(async |_: Failed| StatusCode::BAD_GATEWAY)).await;
    assert!(failed.starts_with("502"), "{failed}");
    for told in [denied, failed] {
        assert!(!told.contains("grpc"), "{told}");
    }
    let by_default = shown(&none()).await;
    assert_eq!(shown(&none().degrade(Arc::new(Problem))).await, by_default);
}

/// A content type that clients send is that of the answer. Nothing else of a client is repeated.
#[tokio::test]
async fn the_content_type_is_mirrored() {
    for base in ["grpc", "grpc-web", "grpc-web-text"] {
        let base = format!("application/{base}");
        for (suffix, answered) in [
            ("", ""),
            ("+proto", "+proto"),
            ("+json", "+json"),
            ("+Proto;charset=utf-8", "+proto"),
            ("+html", ""),
            ("+proto+html", ""),
            ("; a=<script>", ""),
        ] {
            for (asked, answered) in [
                (format!("{base}{suffix}"), format!("{base}{answered}")),
                (
                    format!("{}{suffix}", base.to_uppercase()),
                    format!("{base}{answered}"),
                ),
            ] {
                let denied = ask(&none(), &asked).await;
                assert_eq!(denied.headers()["content-type"], answered, "{asked}");
                assert_eq!(denied.headers()["grpc-status"], "8");
            }
        }
    }
}

#[tokio::test]
async fn everything_else_is_http() {
    let mut requests = vec![post("/p", "")];
    for content_type in [
        "application/grpcfoo",
        "application/grpc-webfoo",
        "application/json",
        "",
    ] {
        requests.push(post("/p", &format!("content-type: {content_type}")));
    }
    for method in [Method::GET, Method::PUT, Method::OPTIONS] {
        let mut request = post("/p", &format!("content-type: {GRPC}"));
        *request.method_mut() = method;
        requests.push(request);
    }
    for request in requests {
        let denied = call(&app_at("/p", none()), request).await;
        assert_eq!(denied.status(), DENIED);
        assert_eq!(denied.headers()["content-type"], "application/problem+json");
        assert!(denied.headers().get("grpc-status").is_none());
    }
}
