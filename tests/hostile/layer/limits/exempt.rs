//! What a file exempts: paths that look like an exempt one, addresses that a client makes up, and
//! files that change under requests.

use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::routing::{any, get};
use tidegate::metrics::DecisionOutcome::{Denied, ShadowDenied};
use tidegate::store::Charges;
use tidegate::{Decision, Rules};

use super::*;

/// A rule that denies whatever is not exempt.
const RULE: &str = "[rules.p]\nmax-count = 0\nwindow = \"1m\"\n";

fn limits(lines: &str) -> Limits {
    let text = format!("{RULE}{lines}");
    Limits::from_toml(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn of_target(target: &str) -> Request<Body> {
    let mut request = request(&[]);
    *request.uri_mut() = target
        .parse()
        .unwrap_or_else(|_| panic!("a target: {target}"));
    request
}

async fn is_exempt(service: &Wrapped, request: Request<Body>) -> bool {
    match send(service, request).await.status().as_u16() {
        200 | 404 | 405 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

fn of_router(router: Router) -> Wrapped {
    use tower::util::MapErrLayer;
    let infallible = MapErrLayer::new(|error: Infallible| error);
    BoxCloneSyncService::new(infallible.layer(router))
}

/// All ways to put a layer around routes that see `/healthz` and others.
fn services(limits: &Limits) -> Vec<(&'static str, Wrapped)> {
    let ok = || any(async || "");
    let layer = || limits.layer("p");
    let routes = || {
        Router::new()
            .route("/healthz", ok())
            .route("/healthz/", ok())
            .route("/{*rest}", ok())
            .route("/", ok())
    };
    vec![
        ("a service", wrap(layer())),
        ("a router", of_router(routes().layer(layer()))),
        ("a route layer", of_router(routes().route_layer(layer()))),
        (
            "its routes",
            of_router(
                Router::new()
                    .route("/healthz", ok().layer(layer()))
                    .fallback_service(ok().layer(layer())),
            ),
        ),
        (
            "around a nested router",
            of_router(
                Router::new()
                    .nest("/in", routes())
                    .merge(routes())
                    .layer(layer()),
            ),
        ),
    ]
}

/// Paths are compared whole and as they were sent: nothing is decoded, cut off or put together.
#[tokio::test]
async fn paths_that_look_like_an_exempt_one() {
    let limits = limits("exempt.paths = [\"/healthz\"]");
    let exempt = [
        "/healthz",
        "/healthz?",
        "/healthz?a=/x",
        "http://a.example/healthz",
        "http://a:1/healthz?x",
    ];
    let others = [
        "/",
        "//healthz",
        "/healthz/",
        "/healthz//",
        "/./healthz",
        "/x/../healthz",
        "/%68ealthz",
        "/healthz%2F",
        "/healthz%00",
        "/healthz;x",
        "/Healthz",
        "/HEALTHZ",
        "/healthz.",
        "/healthzz",
        "/healthz%20",
        "/in/healthz",
        "/x?/healthz",
        "/x#/healthz",
        "http://healthz/",
        "http://a.example//healthz",
        "http://a.example",
        "/healthz/x",
        "/%2Fhealthz",
    ];
    for (name, service) in services(&limits) {
        for target in exempt {
            assert!(
                is_exempt(&service, of_target(target)).await,
                "{name}: {target}"
            );
        }
        for target in others {
            assert!(
                !is_exempt(&service, of_target(target)).await,
                "{name}: {target}"
            );
        }
    }
    // No path at all.
    assert!(!is_exempt(&services(&limits)[0].1, of_target("*")).await);
    let mut connect = of_target("healthz:443");
    *connect.method_mut() = http::Method::CONNECT;
    assert!(!is_exempt(&services(&limits)[0].1, connect).await);
}

/// A router inside of others sees less of the path than the client sent; what counts is what the
/// client sent, however deep the layer is.
#[tokio::test]
async fn nested_routers() {
    let limits = limits("exempt.paths = [\"/a/b/status\", \"/status\"]");
    let ok = || any(async || "");
    let inner = || {
        Router::new()
            .route("/status", ok())
            .route("/{*rest}", ok())
            .layer(limits.layer("p"))
    };
    let service = wrap(limits.layer("p"));
    let app = Router::new()
        .nest(
            "/a",
            Router::new()
                .nest("/b", inner())
                .route("/status", ok().layer(limits.layer("p"))),
        )
        .nest_service("/service", service)
        .nest("/of/{tenant}/x", inner())
        .route("/status", ok().layer(limits.layer("p")))
        .fallback_service(ok().layer(limits.layer("p")));
    let app = of_router(app);
    for (target, expected) in [
        ("/a/b/status", true),
        ("/status", true),
        ("/a/status", false),
        ("/service/status", false),
        ("/service/a/b/status", false),
        ("/of/acme/x/status", false),
        ("/of/a%2Fb/x/status", false),
        ("/b/status", false),
        ("/a/b/status/", false),
        ("/a/b//status", false),
    ] {
        assert_eq!(
            is_exempt(&app, of_target(target)).await,
            expected,
            "{target}"
        );
    }
}

/// Methods as they were sent: no field changes them.
#[tokio::test]
async fn methods() {
    let limits = limits("exempt.methods = [\"OPTIONS\", \"X-Y\"]");
    let service = wrap(limits.layer("p"));
    for (method, expected) in [
        ("OPTIONS", true),
        ("X-Y", true),
        ("options", false),
        ("Options", false),
        ("OPTION", false),
        ("OPTIONSX", false),
        ("x-y", false),
        ("GET", false),
        ("HEAD", false),
    ] {
        let mut request = request(&[("x-http-method-override", "OPTIONS"), ("x-method", "X-Y")]);
        *request.method_mut() = method.parse().expect("a method");
        assert_eq!(is_exempt(&service, request).await, expected, "{method}");
    }
}

fn from(peer: &str, fields: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = request(fields);
    let peer = SocketAddr::new(peer.parse().expect("an address"), 1);
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

const INSIDE: &str = "exempt.networks = [\"10.0.0.0/8\", \"fd00::/8\", \"2001:db8::7\"]\n";

/// Without settings for proxies: no field of a client makes a request exempt, and any field by which
/// a proxy tells of a client ends the exemption of its peer.
#[tokio::test]
async fn forwarding_fields_without_settings() {
    let limits = limits(INSIDE);
    let service = wrap(limits.layer("p"));
    for peer in [
        "10.0.0.0",
        "10.255.255.255",
        "::ffff:10.1.1.1",
        "fd12::1",
        "2001:db8::7",
    ] {
        assert!(is_exempt(&service, from(peer, &[])).await, "{peer}");
    }
    for peer in [
        "11.0.0.0",
        "9.255.255.255",
        "::10.1.1.1",
        "fe80::1",
        "2001:db8::8",
        "::",
    ] {
        assert!(!is_exempt(&service, from(peer, &[])).await, "{peer}");
    }
    let fields = [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "cf-connecting-ip",
        "true-client-ip",
        "X-Forwarded-For",
    ];
    for field in fields {
        for value in [
            "10.0.0.1",
            "for=10.0.0.1",
            "",
            "unknown",
            "203.0.113.9",
            ",",
            "\u{e4}",
        ] {
            let mut behind = from("10.1.1.1", &[]);
            let mut outside = from("203.0.113.1", &[]);
            for request in [&mut behind, &mut outside] {
                let name: http::HeaderName = field.parse().expect("a name");
                let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("a value");
                request.headers_mut().insert(name, value);
            }
            assert!(!is_exempt(&service, behind).await, "{field}: {value}");
            assert!(!is_exempt(&service, outside).await, "{field}: {value}");
        }
    }
    // Nobody is exempt whose address is not known.
    let mut unknown = request(&[]);
    unknown.extensions_mut().clear();
    assert!(!is_exempt(&service, unknown).await);
}

/// With settings: the address that they find, and no part of a field that a client wrote.
#[tokio::test]
async fn forwarding_fields_with_settings() {
    let trusted = limits(&format!(
        "{INSIDE}client-ip = {{ trusted = [\"192.0.2.0/24\"] }}"
    ));
    let hops = limits(&format!("{INSIDE}client-ip = {{ hops = 1 }}"));
    let forwarded = limits(&format!(
        "{INSIDE}client-ip = {{ hops = 1, field = \"forwarded\" }}"
    ));
    let xff = "x-forwarded-for";
    type Fields = [(&'static str, &'static str)];
    let cases: [(&Limits, &str, &Fields, bool); 16] = [
        (&trusted, "192.0.2.1", &[(xff, "10.0.0.1")], true),
        (&trusted, "192.0.2.1", &[(xff, "10.0.0.1, 192.0.2.9")], true),
        (
            &trusted,
            "192.0.2.1",
            &[(xff, "10.0.0.1, 203.0.113.1")],
            false,
        ),
        (
            &trusted,
            "192.0.2.1",
            &[(xff, "10.0.0.1"), (xff, "203.0.113.1")],
            false,
        ),
        (&trusted, "192.0.2.1", &[(xff, "10.0.0.1, nonsense")], false),
        (&trusted, "192.0.2.1", &[], false),
        (
            &trusted,
            "192.0.2.1",
            &[("forwarded", "for=10.0.0.1")],
            false,
        ),
        // A peer outside is not asked who sent it.
        (&trusted, "203.0.113.1", &[(xff, "10.0.0.1")], false),
        // One inside is, whatever it says.
        (&trusted, "10.0.0.1", &[(xff, "203.0.113.1")], true),
        (&hops, "203.0.113.1", &[(xff, "10.0.0.1")], true),
        (
            &hops,
            "203.0.113.1",
            &[(xff, "10.0.0.1, 203.0.113.5")],
            false,
        ),
        (&hops, "10.0.0.1", &[(xff, "203.0.113.1")], false),
        (&hops, "10.0.0.1", &[], true),
        (
            &forwarded,
            "203.0.113.1",
            &[("forwarded", "for=\"[fd00::1]:80\"")],
            true,
        ),
        (
            &forwarded,
            "203.0.113.1",
            &[("forwarded", "for=\"10.0.0.1\", for=203.0.113.9")],
            false,
        ),
        (&forwarded, "203.0.113.1", &[(xff, "10.0.0.1")], false),
    ];
    for (number, (limits, peer, fields, expected)) in cases.into_iter().enumerate() {
        let service = wrap(limits.layer("p"));
        let got = is_exempt(&service, from(peer, fields)).await;
        assert_eq!(got, expected, "{number}: {peer} {fields:?}");
    }
}

/// Networks of all lengths, and both ways to write an IPv4 network.
#[tokio::test]
async fn networks() {
    let all = [
        (
            "0.0.0.0/0",
            &["203.0.113.9", "::ffff:203.0.113.9"][..],
            &["2001:db8::1", "::"][..],
        ),
        (
            "::/0",
            &["2001:db8::1", "::1"],
            &["203.0.113.9", "::ffff:203.0.113.9"],
        ),
        ("203.0.113.9/32", &["203.0.113.9"], &["203.0.113.8"]),
        ("203.0.113.9/24", &["203.0.113.255"], &["203.0.112.9"]),
        (
            "::ffff:203.0.113.0/120",
            &["203.0.113.9", "::ffff:203.0.113.1"],
            &["203.0.112.9"],
        ),
        ("::ffff:203.0.113.9", &["203.0.113.9"], &["203.0.113.8"]),
        ("2001:db8::/64", &["2001:db8::ffff"], &["2001:db8:0:1::"]),
        ("2001:db8::1/128", &["2001:db8::1"], &["2001:db8::2"]),
    ];
    for (network, inside, outside) in all {
        let text = format!("{RULE}exempt.networks = [\"{network}\"]");
        let limits = Limits::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
        let service = wrap(limits.layer("p"));
        for peer in inside {
            assert!(
                is_exempt(&service, from(peer, &[])).await,
                "{network} {peer}"
            );
        }
        for peer in outside {
            assert!(
                !is_exempt(&service, from(peer, &[])).await,
                "{network} {peer}"
            );
        }
    }
}

/// An exempt request is as one without a layer: not charged, not counted, without fields and
/// without a key; and the handler finds that nothing was charged.
#[tokio::test]
async fn exempt_is_untouched() {
    for shadow in [
        "",
        "shadow = true\n",
        "[rules.p.shadow]\nmax-count = 0\nwindow = \"1s\"\n",
    ] {
        let text = format!(
            "{RULE}key = \"header:x-user\"\nexempt.paths = [\"/healthz\"]\non-error = \"respond\"\n{shadow}"
        );
        // A store without room would be an error.
        let limits = Limits::from_toml(&text)
            .expect("valid")
            .store(MemoryStore::with_max_keys(0));
        let handler = async |charges: Charges, decision: Option<Decision>| {
            format!("{} {decision:?}", charges.len())
        };
        let app = Router::new()
            .route("/healthz", get(handler))
            .layer(limits.layer("p"));
        let app = of_router(app);
        let before = format!("{:?}", limits.snapshot());
        let response = send(&app, of_target("/healthz")).await;
        let limited = ["ratelimit", "ratelimit-policy", "retry-after"];
        assert!(
            limited
                .iter()
                .all(|name| !response.headers().contains_key(*name))
        );
        assert!(Charges::from_extensions(response.extensions()).is_empty());
        let text = seen(response).await;
        assert!(
            text.starts_with("200") && text.contains("0 None"),
            "{shadow}: {text}"
        );
        assert_eq!(format!("{:?}", limits.snapshot()), before, "{shadow}");
        // A shadow denies nobody, also without a key.
        let expected = if shadow.starts_with("shadow") {
            404
        } else {
            400
        };
        let other = send(&app, of_target("/")).await.status();
        assert_eq!(other, expected, "{shadow}: a key is missing");
    }
}

/// A shadow rule and a candidate count what they would have denied, and nothing of what is exempt.
#[tokio::test]
async fn exempt_from_shadows() {
    let limits = Limits::from_toml(
        "exempt.methods = [\"PURGE\"]\n\
         [rules.a]\nmax-count = 0\nwindow = \"1m\"\nshadow = true\nexempt.paths = [\"/healthz\"]\n\
         [rules.b]\nmax-count = 9\nwindow = \"1m\"\nexempt.paths = [\"/healthz\"]\n\
         [rules.b.shadow]\nmax-count = 0\nwindow = \"1m\"\n",
    );
    let limits = limits.expect("valid");
    for path in ["a", "b"] {
        let service = wrap(limits.layer(path));
        for target in ["/healthz", "/", "/", "/healthz?x"] {
            assert_eq!(send(&service, of_target(target)).await.status(), 200);
        }
        let mut purge = of_target("/");
        *purge.method_mut() = "PURGE".parse().expect("a method");
        assert_eq!(send(&service, purge).await.status(), 200);
        let snapshot = limits.snapshot();
        let rule = snapshot.rule(path).expect("a layer");
        assert_eq!(
            (rule.decisions(ShadowDenied), rule.decisions(Denied)),
            (2, 0),
            "{path}"
        );
    }
}

/// gRPC: methods of a service are paths, and what is not exempt gets a gRPC answer.
#[tokio::test]
async fn grpc() {
    let limits = limits("exempt.paths = [\"/grpc.health.v1.Health/Check\"]");
    let service = wrap(limits.layer("p"));
    let ask = async |target: &str| {
        let mut request = of_target(target);
        let grpc = http::HeaderValue::from_static("application/grpc");
        request.headers_mut().insert("content-type", grpc);
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        let response = send(&service, request).await;
        let status = response.headers().get("grpc-status");
        status.map(|it| it.to_str().expect("digits").to_owned())
    };
    assert_eq!(ask("http://host/grpc.health.v1.Health/Check").await, None);
    assert_eq!(ask("/grpc.health.v1.Health/Check").await, None);
    for other in [
        "/grpc.health.v1.Health/Watch",
        "/grpc.health.v1.Health/",
        "/shop.Health/Check",
    ] {
        assert_eq!(ask(other).await.as_deref(), Some("8"), "{other}");
    }
}

/// Files that change under requests: each answer is that of the old file or of the new one, for
/// whoever asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    // `/a` and `/b` are exempt in turns, `/always` in both, `/never` in none.
    let text = |path: &str| format!("{RULE}exempt = {{ paths = [\"/{path}\", \"/always\"] }}");
    fs::write(&file, text("a")).expect("is written");
    let limits = Limits::from_file(&file).expect("valid");
    let service = wrap(limits.layer("p"));
    let is_over = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = ["/always", "/never", "/a", "/b"]
        .into_iter()
        .map(|target| {
            let (service, is_over, asked) =
                (service.clone(), Arc::clone(&is_over), Arc::clone(&asked));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let got = is_exempt(&service, of_target(target)).await;
                    assert!(target != "/always" || got);
                    assert!(target != "/never" || !got);
                    asked.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for round in 0..200 {
        let [exempt, other] = if round % 2 == 0 {
            ["b", "a"]
        } else {
            ["a", "b"]
        };
        fs::write(&file, text(exempt)).expect("is written");
        limits.reload(&file).expect("valid");
        assert!(
            is_exempt(&service, of_target(&format!("/{exempt}"))).await,
            "{round}"
        );
        assert!(
            !is_exempt(&service, of_target(&format!("/{other}"))).await,
            "{round}"
        );
        if round % 10 == 0 {
            // A mistake changes nothing.
            fs::write(&file, text("x*")).expect("is written");
            limits.reload(&file).expect_err("a mistake");
            assert!(
                is_exempt(&service, of_target(&format!("/{exempt}"))).await,
                "{round}"
            );
        }
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
    assert!(asked.load(Ordering::Relaxed) > 0);
}

/// A rule that is kept when the file loses it keeps what was exempt from it, also by the file.
#[tokio::test]
async fn a_kept_rule_keeps_its_exemptions() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    fs::write(
        &file,
        format!("exempt.methods = [\"PURGE\"]\n{RULE}exempt.paths = [\"/healthz\"]"),
    )
    .expect("is written");
    let limits = Limits::from_file(&file).expect("valid");
    let service = wrap(limits.layer("p"));
    fs::write(&file, "[rules.other]\nmax-count = 1\nwindow = \"1m\"").expect("is written");
    limits.reload(&file).expect("valid");
    assert_eq!(limits.status().kept_rules, ["p"]);
    assert!(is_exempt(&service, of_target("/healthz")).await);
    assert!(!is_exempt(&service, of_target("/")).await);
    limits.rules().replace(Rules::from_iter([hourly("p", 0)]));
    assert!(!is_exempt(&service, of_target("/healthz")).await);
}
