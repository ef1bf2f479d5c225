//! What a file exempts from its rules.

use std::fs;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Method, Request};
use tidegate::config::ConfigError;
use tidegate::key::PeerAddr;
use tidegate::warning::WarningKind;
use tidegate::{Limits, Rules};
use tower::ServiceExt;

/// A layer of the rule `p` of this file on all routes, some of them in a nested router.
fn nested_app(limits: &Limits) -> Router {
    let ok = || any(|| async { "" });
    let layer = limits.layer("p");
    let nested = Router::new().route("/status", ok().layer(layer.clone()));
    let routes = Router::new().route("/status", ok()).route("/", ok());
    routes.layer(layer).nest("/internal", nested)
}

fn limits(text: &str) -> Limits {
    Limits::from_toml(text).expect("valid")
}

fn request(path: &str) -> Request<Body> {
    let request = Request::get(path).body(Body::empty());
    request.expect("valid")
}

fn from(peer: &str, fields: &[(&'static str, &'static str)]) -> Request<Body> {
    let mut request = request("/");
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4711);
    request.extensions_mut().insert(PeerAddr(peer));
    for (name, value) in fields {
        let value = http::HeaderValue::from_static(value);
        request.headers_mut().insert(*name, value);
    }
    request
}

/// Whether requests like this one are exempt from a rule that denies all others.
async fn is_exempt(limits: &Limits, request: Request<Body>) -> bool {
    let response = nested_app(limits)
        .oneshot(request)
        .await
        .expect("infallible");
    match response.status().as_u16() {
        200 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

const RULE: &str = "[rules.p]\nmax-count = 0\nwindow = \"1m\"\n";

#[tokio::test]
async fn a_path_is_exempt_whole_and_as_it_was_sent() {
    let limits = limits(&format!(
        "{RULE}exempt = {{ paths = [\"/status\", \"/internal/status\"] }}"
    ));
    assert!(is_exempt(&limits, request("/status")).await);
    assert!(is_exempt(&limits, request("/status?verbose=1")).await);
    assert!(is_exempt(&limits, request("/internal/status")).await);
    assert!(!is_exempt(&limits, request("/")).await);

    let limits = self::limits(&format!("{RULE}exempt = {{ paths = [\"/status\"] }}"));
    assert!(is_exempt(&limits, request("/status")).await);
    let nested = is_exempt(&limits, request("/internal/status")).await;
    assert!(!nested, "the nested router sees /status");
}

#[tokio::test]
async fn a_method_is_exempt() {
    let limits = limits(&format!("{RULE}exempt.methods = [\"OPTIONS\", \"PURGE\"]"));
    for (method, expected) in [
        ("OPTIONS", true),
        ("PURGE", true),
        ("GET", false),
        ("options", false),
    ] {
        let mut request = request("/");
        *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
        assert_eq!(is_exempt(&limits, request).await, expected, "{method}");
    }
}

/// Without settings for proxies, the client is the socket's peer, unless a proxy shows.
#[tokio::test]
async fn a_network_is_exempt_by_the_peer() {
    let text = format!("{RULE}exempt = {{ networks = [\"10.0.0.0/8\", \"2001:db8::7\"] }}");
    let limits = limits(&text);
    for (peer, expected) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("2001:db8::7", true),
        ("2001:db8::8", false),
        ("203.0.113.9", false),
    ] {
        assert_eq!(
            is_exempt(&limits, from(peer, &[])).await,
            expected,
            "{peer}"
        );
    }
    assert!(!is_exempt(&limits, request("/")).await, "no address");
    assert_eq!(limits.warnings(), []);

    let behind = from("10.1.2.3", &[("x-forwarded-for", "203.0.113.9")]);
    assert!(!is_exempt(&limits, behind).await);
    let warnings = limits.warnings();
    assert_eq!(warnings[0].kind, WarningKind::ExemptBehindProxy);
    assert_eq!(warnings[0].path.as_deref(), Some("p"));
    assert_eq!(warnings[0].name.as_deref(), Some("x-forwarded-for"));
    let text = warnings[0].to_string();
    assert!(text.contains("add a table [client-ip]"), "{text}");
}

/// With them, the client is the one that they find: those of the rule before those of the file.
#[tokio::test]
async fn a_network_is_exempt_by_the_clients_address() {
    let networks = "exempt = { networks = [\"203.0.113.0/24\", \"198.51.100.1\"] }\n";
    let of_file = "[client-ip]\nhops = 1\n";
    let of_rule = "client-ip = { hops = 2 }\n";
    let nobody = "client-ip = { trusted = [] }\n";
    let of_client = from(
        "10.0.0.1",
        &[("x-forwarded-for", "198.51.100.2, 203.0.113.9")],
    );
    let of_peer = || from("203.0.113.9", &[("x-forwarded-for", "192.0.2.1")]);
    let too_few = || from("203.0.113.9", &[]);
    let request = |request: &Request<Body>| {
        let mut copy = from("10.0.0.1", &[]);
        *copy.headers_mut() = request.headers().clone();
        copy
    };

    let file = limits(&format!("{of_file}{RULE}{networks}"));
    assert!(is_exempt(&file, request(&of_client)).await);
    assert!(!is_exempt(&file, of_peer()).await);
    assert!(
        is_exempt(&file, too_few()).await,
        "it came around the proxy"
    );
    let rule = limits(&format!("{of_file}{RULE}{networks}{of_rule}"));
    assert!(!is_exempt(&rule, request(&of_client)).await);
    let nobody = limits(&format!("{of_file}{RULE}{networks}{nobody}"));
    assert!(is_exempt(&nobody, of_peer()).await);
    assert!(!is_exempt(&nobody, request(&of_client)).await);
    for limits in [file, rule, nobody] {
        assert!(
            limits
                .warnings()
                .iter()
                .all(|it| it.kind != WarningKind::ExemptBehindProxy)
        );
    }
}

/// A server that is not axum's says where the address is.
#[tokio::test]
async fn a_hook_finds_the_address() {
    #[derive(Clone)]
    struct Connection(SocketAddr);
    let limits = limits(&format!("{RULE}exempt.networks = [\"10.0.0.0/8\"]"))
        .peer(|extensions| Some(extensions.get::<Connection>()?.0));
    let mut request = request("/");
    request
        .extensions_mut()
        .insert(Connection(([10, 0, 0, 1], 1).into()));
    assert!(is_exempt(&limits, request).await);
}

/// The file's lists, the rule's lists and the layer's own closure: any one of them exempts.
#[tokio::test]
async fn exemptions_add_up() {
    let limits = limits(&format!(
        "exempt = {{ paths = [\"/status\"], networks = [\"10.0.0.0/8\"] }}\n{RULE}\
         exempt = {{ paths = [\"/internal/status\"], methods = [\"OPTIONS\"] }}"
    ));
    assert!(is_exempt(&limits, request("/status")).await);
    assert!(is_exempt(&limits, request("/internal/status")).await);
    assert!(is_exempt(&limits, from("10.0.0.1", &[])).await);
    assert!(!is_exempt(&limits, from("203.0.113.9", &[])).await);

    let layer = limits
        .layer("p")
        .exempt(|head| head.headers.contains_key("x-internal"));
    let app = Router::new().route("/", any(|| async { "" }).layer(layer));
    let status = async |request: Request<Body>| {
        let response = app.clone().oneshot(request).await.expect("infallible");
        response.status().as_u16()
    };
    assert_eq!(
        status(from("203.0.113.9", &[("x-internal", "1")])).await,
        200
    );
    assert_eq!(status(from("10.0.0.1", &[])).await, 200);
    assert_eq!(status(from("203.0.113.9", &[])).await, 429);
}

#[tokio::test]
async fn a_reload_changes_what_is_exempt() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let limits = limits(RULE);
    let app = nested_app(&limits);
    let status = async || {
        let response = app.clone().oneshot(request("/status")).await;
        response.expect("infallible").status().as_u16()
    };
    assert_eq!(status().await, 429);
    for (exempt, expected) in [("exempt.paths = [\"/status\"]", 200), ("", 429)] {
        fs::write(&file, format!("{RULE}{exempt}")).expect("a file");
        limits.reload(&file).expect("valid");
        assert_eq!(status().await, expected);
    }
}

#[test]
fn mistakes() {
    let said = |line: &str| -> String {
        let error: ConfigError = Rules::from_toml(&format!("{RULE}{line}")).expect_err("a mistake");
        error.to_string()
    };
    insta::assert_snapshot!(said("exempt = { paths = [\"healthz\"] }"), @r##"line 4: rules.p.exempt.paths: found "healthz", expected a whole path such as "/healthz", without "*", "{", "?" and "#""##);
    insta::assert_snapshot!(said("exempt = { paths = [\"/static/*\"] }"), @r##"line 4: rules.p.exempt.paths: found "/static/*", expected a whole path such as "/healthz", without "*", "{", "?" and "#""##);
    insta::assert_snapshot!(said("exempt = { paths = \"/healthz\" }"), @r#"line 4: rules.p.exempt.paths: found "/healthz", expected a list of paths"#);
    insta::assert_snapshot!(said("exempt = { methods = [\"get\"] }"), @r#"line 4: rules.p.exempt.methods: found "get", expected a method in capitals such as "OPTIONS""#);
    insta::assert_snapshot!(said("exempt = { networks = [\"10.0.0.0/33\"] }"), @r#"line 4: rules.p.exempt.networks: found "10.0.0.0/33", expected a network such as "10.0.0.0/8", or an address"#);
    insta::assert_snapshot!(said("exempt = { path = [] }"), @"line 4: rules.p.exempt.path: unknown field `path`, expected one of `paths`, `methods`, `networks`");
    insta::assert_snapshot!(said("exempt = [\"/healthz\"]"), @"line 4: rules.p.exempt: found a list, expected a table");
    insta::assert_snapshot!(said("client-ip = { hops = 1, trusted = [] }"), @"line 4: rules.p.client-ip: both trusted and hops, expected one of them");
    let of_file = Rules::from_toml("exempt.methods = [7]").expect_err("a mistake");
    insta::assert_snapshot!(of_file, @r#"line 1: exempt.methods: found 7, expected a method in capitals such as "OPTIONS""#);
}
