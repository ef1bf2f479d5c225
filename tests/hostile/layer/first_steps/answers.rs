//! What clients get: gRPC answers for hostile content types, hooks that lie about the peer, and
//! problem documents that tell nothing.

use std::net::SocketAddr;

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

/// A hook for the peer that lies, finds none, or panics: the address comes from where it is, and a
/// missing one is no admission.
#[tokio::test]
async fn hooks_for_the_peer() {
    let text = "[rules.p]\nmax-count = 1\nwindow = \"1h\"\nkey = \"peer-ip\"";
    let here: SocketAddr = "203.0.113.9:1".parse().expect("an address");
    let there: SocketAddr = "203.0.113.10:1".parse().expect("an address");
    let with_peer = |peer: Option<SocketAddr>| {
        let mut request = request(&Method::GET, &[]);
        if let Some(peer) = peer {
            request.extensions_mut().insert(PeerAddr(peer));
        }
        request
    };
    let app_of = |limits: &Limits| app(limits.layer("p"));
    let limits = Limits::from_toml(text).expect("valid");
    // It finds what an extension says that only this test sets.
    #[derive(Clone)]
    struct Claimed(SocketAddr);
    let hooked = limits
        .clone()
        .peer(|extensions| Some(extensions.get::<Claimed>()?.0));
    let app = app_of(&hooked);
    let status = async |request| call(&app, request).await.status();
    assert_eq!(status(with_peer(None)).await, 500, "law 5");
    assert_eq!(status(with_peer(Some(here))).await, 200);
    assert_eq!(status(with_peer(Some(here))).await, 429);
    let mut claims = with_peer(Some(here));
    claims.extensions_mut().insert(Claimed(there));
    assert_eq!(status(claims).await, 200, "the hook comes first");
    assert_eq!(status(with_peer(Some(there))).await, 429, "one count");

    let panics = limits.peer(|_| panic!("s3cret"));
    for _ in 0..3 {
        let response = call(&app_of(&panics), with_peer(Some(here))).await;
        assert_eq!(response.status(), 500);
    }
    // In a shadow it lets the request pass.
    let text = format!("{text}\nshadow = true");
    let shadow = Limits::from_toml(&text).expect("valid");
    let shadow = shadow.peer(|_| panic!("on purpose"));
    let response = call(&app_of(&shadow), with_peer(None)).await;
    assert_eq!(response.status(), 200, "law 16");
}

/// Forwarding fields of every kind of nonsense: a key or an error, never a panic, and what a client
/// adds to the left changes nothing.
#[tokio::test]
async fn hostile_forwarding_fields() {
    let huge = vec![b','; 60_000];
    let many = "203.0.113.1, ".repeat(4_000);
    let values: [&[u8]; 9] = [
        b"",
        b"\xff\xfe\xfd",
        b"203.0.113.1, \xff, 198.51.100.7",
        b"for=\"[::1\", for=unknown, for=_x",
        &huge,
        many.as_bytes(),
        b"198.51.100.7:99999999",
        b",,,198.51.100.7,,,",
        b"\x09 198.51.100.7 \x09",
    ];
    let peer: SocketAddr = "10.0.0.5:1".parse().expect("an address");
    for value in values {
        for lines in [1, 50] {
            let mut request = Request::get("/").extension(PeerAddr(peer));
            for _ in 0..lines {
                for name in ["x-forwarded-for", "forwarded", "x-real-ip"] {
                    let value = HeaderValue::from_bytes(value).expect("a value");
                    request = request.header(name, value);
                }
            }
            // The proxy appends a line of its own.
            let request = request.header("x-forwarded-for", "198.51.100.99");
            let (head, ()) = request.body(()).expect("valid").into_parts();
            let key = ClientIp::behind_hops(1).extract(&head).expect("a key");
            assert_eq!(key.as_str(), "198.51.100.99");
            let networks = ["10.0.0.0/8".parse().expect("a network")];
            let key = ClientIp::behind(networks).extract(&head).expect("a key");
            assert_eq!(key.as_str(), "198.51.100.99");
            assert!(ClientIp::behind_hops(usize::MAX).extract(&head).is_ok());
            for extractor in [&PeerIp as &dyn KeyExtractor, &ClientIp::behind_hops(3)] {
                let _ = extractor.warning(&head.headers);
            }
        }
    }
    let _ = Store::name(&tidegate::MemoryStore::new());
}
