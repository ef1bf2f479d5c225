//! What clients get: gRPC answers for hostile content types, hooks that lie about the peer, and
//! problem documents that tell nothing.

use kit::http::call;
use tidegate::callback::is_grpc;

use super::*;

fn request(method: &Method, content_types: &[&[u8]]) -> Request<Body> {
    let mut request = Request::new(Body::from("secret body"));
    *request.method_mut() = method.clone();
    for value in content_types {
        let value = HeaderValue::from_bytes(value).expect("a value");
        request.headers_mut().append("content-type", value);
    }
    request
}

/// A gRPC answer: trailers only, of this status.
async fn check_grpc(response: Response, code: &str, content_type: &[u8]) {
    assert_eq!(response.status(), StatusCode::OK);
    let fields = response.headers().clone();
    let all: Vec<_> = fields.get_all("content-type").iter().collect();
    assert_eq!(all, [content_type]);
    assert_eq!(fields.get_all("grpc-status").iter().count(), 1);
    assert_eq!(fields["grpc-status"], code);
    if let Some(message) = fields.get("grpc-message") {
        let bytes = message.as_bytes();
        assert!(bytes.iter().all(|byte| (b' '..=b'~').contains(byte)));
    }
    assert!(!fields.contains_key("grpc-status-details-bin"));
    assert_eq!(text(response).await, "", "a body");
}

/// Which content types are gRPC, after the contract: these three, followed by nothing, `+` or `;`.
fn is_meant(method: &Method, value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    let kinds = [
        &b"application/grpc"[..],
        b"application/grpc-web",
        b"application/grpc-web-text",
    ];
    let fits = |kind: &&[u8]| {
        let rest = lower.strip_prefix(*kind);
        rest.is_some_and(|rest| rest.is_empty() || b"+;".contains(&rest[0]))
    };
    method == Method::POST && kinds.iter().any(fits)
}

fn content_types() -> Vec<Vec<u8>> {
    let kinds = "application/grpc application/grpc-web application/grpc-web-text APPLICATION/gRPC
        application/grpc-web- application/grpcweb application/grpc-web-texts xapplication/grpc
        application/json";
    let rests: [&[u8]; 10] = [
        b"",
        b"+proto",
        b"+",
        b";",
        b"; charset=\"\xff\xfe\"",
        b";\xe4\xf6",
        b" ;a",
        b",application/json",
        b"+proto, application/grpc",
        b"/grpc",
    ];
    let kinds = words(kinds).into_iter().chain([""]);
    let mut all: Vec<_> = kinds
        .flat_map(|kind| rests.map(|rest| [kind.as_bytes(), rest].concat()))
        .collect();
    all.push([b"application/grpc;".to_vec(), vec![b'a'; 60_000]].concat());
    all
}

/// A denial speaks gRPC for exactly the content types of the contract, whatever stands behind them.
#[tokio::test]
async fn hostile_content_types() {
    let layer = RateLimitLayer::new("p", HOUR, 0);
    let app = app(layer);
    for method in [Method::POST, Method::GET, Method::PUT, Method::OPTIONS] {
        for value in content_types() {
            let shown = String::from_utf8_lossy(&value[..value.len().min(60)]).into_owned();
            let (head, _) = request(&method, &[&value]).into_parts();
            let meant = is_meant(&method, &value);
            assert_eq!(is_grpc(&head), meant, "{method} {shown}");
            let response = call(&app, request(&method, &[&value])).await;
            if meant {
                check_grpc(response, "8", &value).await;
            } else {
                assert_eq!(response.status(), 429, "{method} {shown}");
                assert!(!response.headers().contains_key("grpc-status"), "{shown}");
                let document = &response.headers()["content-type"];
                assert_eq!(document, "application/problem+json");
            }
        }
    }
    // Two lines: one content type goes back, and no panic.
    for lines in [
        [&b"application/grpc"[..], b"text/html"],
        [&b"text/html"[..], b"application/grpc"],
    ] {
        let response = call(&app, request(&Method::POST, &lines)).await;
        assert_eq!(response.headers().get_all("content-type").iter().count(), 1);
        let is_grpc = response.headers().contains_key("grpc-status");
        assert_eq!(response.status(), if is_grpc { 200 } else { 429 });
    }
}

/// Every other outcome, on a Redis that is away, in three layers, with what waits.
#[tokio::test]
async fn every_outcome_speaks_grpc() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = connected(&proxy.url).await.timeout(millis(200));
    proxy.all(Mode::BlackHole);
    let rule = || per_hour("p", 1);
    let with_policy = |policy| per_hour("p", 1).with_on_error(policy);
    let proceeding = || with_policy(OnError::Proceed);
    let with = |rule| RateLimitLayer::from_rule(rule).store(store.clone());
    let tenant = || Header::new("x-tenant");
    let panics = |_: &http::request::Parts| -> Result<tidegate::Key, tidegate::key::KeyError> {
        panic!("a panic of the extractor")
    };
    let hook = PeerIp.peer(|_| panic!("on purpose"));
    let value = b"application/grpc-web+\xffproto";
    let layers = [
        (with(rule()), "14"),
        (with(rule()).wait(Duration::MAX), "14"),
        (with(with_policy(OnError::Respond)), "14"),
        (with(with_policy(OnError::Fallback)), "14"),
        (with(rule()).key(tenant()), "3"),
        (with(rule()).key(tenant()).on_error(FailOpen), "3"),
        (with(proceeding()).key(tenant()), "3"),
        (with(rule()).key(PeerIp).on_error(FailOpen), "13"),
        (with(rule()).key(ClientIp::behind_hops(1)), "13"),
        (with(rule()).key(panics), "13"),
        (with(rule()).key(hook), "13"),
        (with(rule()).cost(|_| panic!("on purpose")), "13"),
        (with(rule()).exempt(|_| panic!("on purpose")), "13"),
    ];
    for (at, (layer, code)) in layers.into_iter().enumerate() {
        println!("layer {at}");
        let proceeds = with(proceeding());
        let app = app(layer).layer(proceeds.clone()).layer(proceeds);
        let response = call(&app, request(&Method::POST, &[value])).await;
        check_grpc(response, code, value).await;
    }
}

/// Names of policies that a header field cannot hold are in a message that it can.
#[tokio::test]
async fn policies_with_hostile_names() {
    for name in "ä\r\ngrpc-status: 0|%|\"\\|\u{0}\u{7f}|🦀|a,b;c=d".split('|') {
        let policy = Policy::new(name, Quota::new(HOUR, 0).expect("valid"));
        let rule = Rule::with_policies("p\r\nx: y", [policy]).expect("valid");
        let app = app(RateLimitLayer::from_rule(rule));
        let value = b"application/grpc";
        let response = call(&app, request(&Method::POST, &[value])).await;
        assert!(!response.headers().contains_key("x"));
        check_grpc(response, "8", value).await;
        let response = call(&app, request(&Method::POST, &[b"text/html"])).await;
        serde_json::from_str::<serde_json::Value>(&text(response).await).expect("JSON");
    }
}
