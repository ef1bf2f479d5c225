//! The forms of a layer's own answers, as they are on the wire, and when a denial says to come again.

use tidegate::callback::{Form, Problem};

use crate::*;

const CONNECT: &str = "content-type: application/json, connect-protocol-version: 1";

async fn ask(layer: &RateLimitLayer, method: Method, path: &str, fields: &str) -> Response<Body> {
    let mut request = kit::http::request(path, fields);
    *request.method_mut() = method;
    call(&app_at("/p", layer.clone()), request).await
}

/// Status, content type and body.
async fn shown(layer: &RateLimitLayer, method: Method, path: &str, fields: &str) -> String {
    let answer = ask(layer, method, path, fields).await;
    let status = answer.status().as_u16();
    let content_type = answer.headers()["content-type"].to_str().expect("text");
    let content_type = content_type.to_owned();
    format!("{status} {content_type} {}", text(answer).await)
}

fn denied() -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, 0)
}

/// Denies all but the first request, by a clock that stands still.
async fn used_up(rule: Rule) -> RateLimitLayer {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    let store = Arc::new(MemoryStore::new().clock(clock));
    let layer = RateLimitLayer::from_rule(rule).store(store);
    ask(&layer, Method::POST, "/p", "").await;
    layer
}

/// A layer for each kind of answer: used up, never, two quotas, without a decision, without a key by
/// whose mistake.
async fn layers() -> [(&'static str, RateLimitLayer); 6] {
    let two = [Quota::per_minute(1), Quota::per_hour(1)];
    let undecided = RateLimitLayer::new("p", WINDOW, 1).store(no_store());
    [
        ("used up", used_up(owned_rule("p", 1, WINDOW)).await),
        ("never", RateLimitLayer::new("p", WINDOW, 1).cost(|_| 2)),
        ("two", used_up(Rule::new("p", two).expect("a rule")).await),
        ("no decision", undecided),
        ("no key", denied().key(Header::new("x-key"))),
        ("no peer", denied().key(PeerIp)),
    ]
}

async fn table(form: Form, method: Method, path: &str, fields: &str) -> String {
    let mut table = String::new();
    for (case, layer) in layers().await {
        let shown = shown(&layer.form(form), method.clone(), path, fields).await;
        // Behind the text of a mistake stands how to mend it.
        let shown = shown.split(": serve ").next().expect("a text");
        table += &format!("{case}: {shown}\n");
    }
    table
}

#[tokio::test]
async fn connect() {
    let by_itself = table(Form::Problem, Method::POST, "/p", CONNECT).await;
    insta::assert_snapshot!(by_itself, @r#"
    used up: 429 application/json {"code":"resource_exhausted","message":"quota exceeded: p"}
    never: 429 application/json {"code":"resource_exhausted","message":"quota exceeded: p"}
    two: 429 application/json {"code":"resource_exhausted","message":"quota exceeded: p-1m, p-1h"}
    no decision: 503 application/json {"code":"unavailable","message":"temporary reduced capacity"}
    no key: 400 application/json {"code":"invalid_argument","message":"bad request: the request has no x-key header field"}
    no peer: 500 application/json {"code":"internal","message":"internal server error: the request has no peer address
    "#);
    for form in [Form::Connect, Form::JsonRpc] {
        assert_eq!(table(form, Method::POST, "/p", CONNECT).await, by_itself);
    }
    let get = "/p?message=%7B%7D&connect=v1&encoding=json";
    assert_eq!(table(Form::Problem, Method::GET, get, "").await, by_itself);
    let proto = CONNECT.replace("json", "proto; charset=utf-8");
    assert_eq!(
        table(Form::Problem, Method::POST, "/p", &proto).await,
        by_itself
    );
    // Where a handler answers, the form is that of the layer.
    assert_eq!(table(Form::Connect, Method::PUT, "/p", "").await, by_itself);
}

/// One message of flags 2, and its length in four bytes: the end of a stream. The head has the rest.
#[tokio::test]
async fn a_stream_of_connect() {
    for (content_type, answered) in [
        ("application/connect+proto", "proto"),
        ("Application/Connect+json", "json"),
        ("application/connect+Proto; charset=utf-8", "proto"),
        ("application/connect+protohtml", "json"),
        ("application/connect+html", "json"),
    ] {
        let answered = format!("application/connect+{answered}");
        let fields = format!("content-type: {content_type}, connect-protocol-version: 1");
        for (case, layer) in layers().await {
            let answer = ask(&layer, Method::POST, "/p", &fields).await;
            assert_eq!(answer.status(), OK, "{case}");
            assert_eq!(answer.headers()["content-type"], answered);
            assert_eq!(answer.headers()["cache-control"], "no-store");
            let says_when = ["used up", "two", "no decision"].contains(&case);
            assert_eq!(
                answer.headers().contains_key("retry-after"),
                says_when,
                "{case}"
            );
            let body = answer
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes();
            let (head, message) = body.split_at(5);
            assert_eq!(
                (head[0], head[1..] == (message.len() as u32).to_be_bytes()),
                (2, true)
            );
            let unary = text(ask(&layer, Method::POST, "/p", CONNECT).await).await;
            assert_eq!(
                message,
                format!("{{\"error\":{unary}}}").as_bytes(),
                "{case}"
            );
        }
    }
}

#[tokio::test]
async fn json_rpc() {
    let called = table(Form::JsonRpc, Method::POST, "/p", "").await;
    insta::assert_snapshot!(called, @r#"
    used up: 429 application/json {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"quota exceeded: p","data":{"quotas":["p"],"retry_after_s":60}}}
    never: 429 application/json {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"quota exceeded: p","data":{"quotas":["p"],"never":true}}}
    two: 429 application/json {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"quota exceeded: p-1m, p-1h","data":{"quotas":["p-1m","p-1h"],"retry_after_s":3600}}}
    no decision: 503 application/json {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"temporary reduced capacity"}}
    no key: 400 application/json {"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad request: the request has no x-key header field"}}
    no peer: 500 application/json {"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal server error: the request has no peer address
    "#);
    // A stream and its end are no calls.
    for method in [Method::GET, Method::DELETE] {
        let shown = shown(&denied().form(Form::JsonRpc), method, "/p", "").await;
        assert!(shown.starts_with("429 application/problem+json"), "{shown}");
    }
}

/// Whoever sends something else gets what everybody gets.
#[tokio::test]
async fn no_call_of_connect() {
    let problem = shown(&denied(), Method::POST, "/p", "").await;
    assert!(
        problem.starts_with("429 application/problem+json"),
        "{problem}"
    );
    for (method, path, fields) in [
        (Method::POST, "/p", "content-type: application/json"),
        (Method::POST, "/p", "connect-protocol-version: 1"),
        (Method::PUT, "/p", CONNECT),
        (
            Method::POST,
            "/p",
            "content-type: text/plain, connect-protocol-version: 1",
        ),
        (
            Method::POST,
            "/p",
            "content-type: application/json, connect-protocol-version: 2",
        ),
        (Method::POST, "/p?connect=v1", ""),
        (Method::GET, "/p?connect=v12", ""),
        (Method::GET, "/p?xconnect=v1", ""),
    ] {
        assert_eq!(shown(&denied(), method, path, fields).await, problem);
    }
    // gRPC is looked for first.
    let grpc = "content-type: application/grpc, connect-protocol-version: 1";
    for form in [Form::Problem, Form::Connect, Form::JsonRpc] {
        let answer = ask(&denied().form(form), Method::POST, "/p", grpc).await;
        assert_eq!(answer.headers()["grpc-status"], "8");
    }
}

/// All of `Limits`, one layer, and what a handler answers itself.
#[tokio::test]
async fn whose_form() {
    let rule = Rule::new("p", [Quota::per_minute(0)]).expect("a rule");
    let limits = Limits::new([rule]).form(Form::JsonRpc);
    let of_all = shown(&limits.layer("p"), Method::POST, "/p", "").await;
    assert!(
        of_all.starts_with("429 application/json {\"jsonrpc\""),
        "{of_all}"
    );
    let own = shown(
        &limits.layer("p").form(Form::Connect),
        Method::POST,
        "/p",
        "",
    )
    .await;
    assert!(own.starts_with("429 application/json {\"code\""), "{own}");
    let refused = limits.check("p", "a").await.expect_err("it is denied");
    assert_eq!(text(refused.into_response()).await, of_all[21..]);
    // A callback's answer stays what it is.
    let callback = limits.layer("p").degrade(async |_: Denied| "later");
    assert_eq!(
        text(ask(&callback, Method::POST, "/p", "").await).await,
        "later"
    );
}

/// No hidden quota is named.
#[tokio::test]
async fn hidden_quotas() {
    let policy = Policy::new("secret", Quota::per_minute(0)).hidden();
    let rule = Rule::with_policies("p", [policy]).expect("a rule");
    for form in [Form::Connect, Form::JsonRpc] {
        let layer = RateLimitLayer::from_rule(rule.clone()).form(form);
        let shown = shown(&layer, Method::POST, "/p", "").await;
        assert!(
            shown.contains("quota exceeded") && !shown.contains("secret"),
            "{shown}"
        );
    }
}

/// The fields that say when to come again: `Retry-After`, RetryInfo, pushback, `t`.
async fn told(layer: &RateLimitLayer, fields: &str) -> HeaderMap {
    ask(layer, Method::POST, "/p", fields)
        .await
        .headers()
        .clone()
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    let text = headers[name].to_str().expect("text");
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}

/// 1,000 denials: never earlier than it is true, at most so much later, and each second alike.
#[tokio::test]
async fn jitter() {
    let of = |percent| owned_rule("p", 1, Duration::from_secs(90)).with_retry_after_jitter(percent);
    for (percent, most) in [(0, 90), (10, 99), (11, 100), (100, 180), (255, 180)] {
        let layer = used_up(of(percent)).await;
        let mut counts = BTreeMap::<u64, u32>::new();
        for _ in 0..1_000 {
            let headers = told(&layer, "").await;
            assert_eq!(headers["ratelimit"], "\"p\";r=0;t=90", "`t` is exact");
            *counts.entry(number(&headers, "retry-after")).or_default() += 1;
        }
        assert!(*counts.keys().next().expect("some") >= 90, "{counts:?}");
        assert!(*counts.keys().last().expect("some") <= most, "{counts:?}");
        // Chi-squared of equal parts: its mean is their number less one.
        let parts = (most - 90 + 1) as f64;
        let expected = 1_000.0 / parts;
        let deviation = |second| f64::from(counts.get(&second).copied().unwrap_or(0)) - expected;
        let squares = (90..=most)
            .map(|it| deviation(it).powi(2) / expected)
            .sum::<f64>();
        assert!(
            squares <= parts + 6.0 * (2.0 * parts).sqrt(),
            "{squares}: {counts:?}"
        );
    }
    // The decision itself stays exact.
    let layer = used_up(of(100))
        .await
        .degrade(async |denied: Denied| format!("{:?}", denied.decision.retry_after()));
    let exact = text(ask(&layer, Method::POST, "/p", "").await).await;
    assert_eq!(exact, "Some(90s)");
}

/// All forms of an answer say the same.
#[tokio::test]
async fn jitter_in_all_forms() {
    let rule = owned_rule("p", 1, Duration::from_secs(2)).with_retry_after_jitter(100);
    let layer = used_up(rule).await.form(Form::JsonRpc);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let answer = ask(&layer, Method::POST, "/p", "").await;
        let seconds = number(answer.headers(), "retry-after");
        let body = text(answer).await;
        assert!(
            body.contains(&format!("\"retry_after_s\":{seconds}")),
            "{seconds} {body}"
        );
        seen.insert(seconds);
        let grpc = told(&layer, "content-type: application/grpc").await;
        let seconds = number(&grpc, "retry-after");
        assert_eq!(number(&grpc, "grpc-retry-pushback-ms"), seconds * 1_000);
    }
    assert_eq!(seen, BTreeSet::from([2, 3, 4]));
    // What is added decides whether the client would give up before.
    let late = told(
        &layer,
        "content-type: application/grpc, grpc-timeout: 2099m",
    )
    .await;
    assert_eq!(late["grpc-retry-pushback-ms"], "-1");
}

/// Those whom an outage refuses do not come again in one second, either.
#[tokio::test]
async fn jitter_without_a_decision() {
    for (percent, expected) in [(0, 1..=1), (10, 1..=2), (100, 1..=2)] {
        let rule = owned_rule("p", 100, MINUTE).with_retry_after_jitter(percent);
        let limits = Limits::new([rule]).key(Everyone).store(Stub::down());
        let own =
            async |_: Failed| Recovery::Respond(StatusCode::SERVICE_UNAVAILABLE.into_response());
        let [plain, own] = [limits.layer("p"), limits.layer("p").on_error(own)];
        let mut seen = [(); 4].map(|()| BTreeSet::new());
        for _ in 0..100 {
            let refused = limits.check("p", "us").refuse_on_error().await;
            let refused = refused.expect_err("no decision").into_response();
            let all = [
                told(&plain, "").await,
                told(&own, "").await,
                refused.headers().clone(),
            ];
            for (seen, headers) in seen.iter_mut().zip(&all) {
                seen.insert(number(headers, "retry-after"));
            }
            let grpc = told(&plain, "content-type: application/grpc").await;
            seen[3].insert(number(&grpc, "grpc-retry-pushback-ms") / 1_000);
        }
        let expected: BTreeSet<_> = expected.collect();
        assert!(seen.iter().all(|it| *it == expected), "{percent}: {seen:?}");
    }
}

#[tokio::test]
async fn jitter_in_a_file() {
    let text = |jitter| {
        format!("[rules.p]\nmax-count = 1\nwindow = \"1m\"\nretry-after-jitter = {jitter}\n")
    };
    for (jitter, expected) in [("\"0%\"", 0), ("\"10%\"", 10), ("\"100 %\"", 100)] {
        let limits = Limits::from_toml(&text(jitter)).expect("valid");
        let rules = limits.rules().load();
        let rule = rules.get("p").expect("a rule");
        assert_eq!(rule.retry_after_jitter(), expected);
    }
    for wrong in ["10", "\"10\"", "\"101%\"", "\"-1%\"", "\"1.5%\"", "\"%\""] {
        let error = Limits::from_toml(&text(wrong))
            .expect_err(wrong)
            .to_string();
        assert!(
            error.contains("expected a share such as \"10%\""),
            "{error}"
        );
        assert!(error.contains("retry-after-jitter"), "{error}");
    }
}

/// An epoch by this host's clock, as clients of GitHub's API read it.
#[tokio::test]
async fn the_fields_of_github() {
    let since_1970 = || {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        now.expect("later than 1970").as_secs()
    };
    let before = since_1970();
    let layer = used_up(owned_rule("p", 1, WINDOW))
        .await
        .headers(Headers::GitHub);
    let headers = told(&layer, "").await;
    let shown = ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after"];
    assert_eq!(shown.map(|name| number(&headers, name)), [1, 0, 60]);
    let reset = number(&headers, "x-ratelimit-reset");
    assert!(
        (before + 60..=since_1970() + 61).contains(&reset),
        "{reset}"
    );
}

/// Within one another, the tightest quota of layers with the same fields; else those of the outer one.
#[tokio::test]
async fn github_within_legacy() {
    let layer = |max, window: u64, headers| {
        let rule = owned_rule(&format!("p{max}"), max, Duration::from_secs(window));
        RateLimitLayer::from_rule(rule).headers(headers)
    };
    for (inner, outer, expected) in [
        (Headers::GitHub, Headers::GitHub, (2, true)),
        (Headers::Legacy, Headers::Legacy, (2, false)),
        (Headers::GitHub, Headers::Legacy, (10, false)),
        (Headers::Legacy, Headers::GitHub, (10, true)),
    ] {
        let handler = axum::routing::get(async || "1").route_layer(layer(2, 60, inner));
        let app = Router::new().route("/", handler.route_layer(layer(10, 600, outer)));
        let headers = send(&app, "/").await.headers().clone();
        let is_epoch = number(&headers, "x-ratelimit-reset") > 1_000_000_000;
        let shown = (number(&headers, "x-ratelimit-limit"), is_epoch);
        assert_eq!(shown, expected, "{inner:?} in {outer:?}");
    }
}

/// A route whose status alone is read answers with it, whatever was asked.
#[tokio::test]
async fn a_status_of_http_whatever_was_asked() {
    for (case, layer) in layers().await {
        let mut seen = Vec::new();
        for fields in [
            "",
            "content-type: application/grpc",
            "content-type: application/grpc-web+proto",
            "content-type: application/connect+json",
            CONNECT,
        ] {
            let layer = layer.clone().form(Form::Http);
            let answer = ask(&layer, Method::POST, "/p", fields).await;
            let status = answer.status().as_u16();
            assert_eq!(answer.headers()["content-type"], "application/problem+json");
            assert!(!answer.headers().contains_key("grpc-status"), "{case}");
            seen.push(status);
        }
        let expected = match case {
            "no decision" => 503,
            "no key" => 400,
            "no peer" => 500,
            _ => 429,
        };
        assert_eq!(seen, [expected; 5], "{case}");
    }
}

/// The document has the seconds of its field, whoever makes it, behind their jitter and bound.
#[tokio::test]
async fn the_document_has_the_seconds_of_its_field() {
    let of = |hours: u32| owned_rule("p", 1, 3_600 * hours * SECOND).with_retry_after_jitter(100);
    let panics = async |_: Denied| -> () { panic!("a mistake") };
    let denied = used_up(of(1)).await;
    let failing = RateLimitLayer::from_rule(of(1)).store(no_store());
    let mut all = std::collections::HashSet::new();
    for (layer, status, shortest, longest) in [
        (denied.clone(), 429, 3_600, 7_200),
        (denied.clone().degrade(Problem), 429, 3_600, 7_200),
        (denied.degrade_fn(panics), 500, 3_600, 7_200),
        (used_up(of(600)).await, 429, 2_147_483, 2_147_483),
        (failing.clone(), 503, 1, 2),
        (failing.clone().on_error(Problem), 503, 1, 2),
    ] {
        for _ in 0..20 {
            let answer = ask(&layer, Method::POST, "/p", "").await;
            assert_eq!(answer.status(), status);
            let field = number(answer.headers(), "retry-after");
            let document: serde_json::Value =
                serde_json::from_str(&text(answer).await).expect("JSON");
            assert_eq!(document["retry-after"], field, "{document}");
            assert!((shortest..=longest).contains(&field), "{document}");
            all.insert(field);
        }
    }
    assert!(all.len() > 40, "there is jitter");
}
