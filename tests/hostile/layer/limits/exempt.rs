//! What a file exempts: paths that look like an exempt one, and files that change under requests.

use tower::util::MapErrLayer;

use super::*;

/// A rule that denies whatever is not exempt.
const RULE: &str = "[rules.p]\nmax-count = 0\nwindow = \"1m\"\n";

fn limits(lines: &str) -> Limits {
    let text = format!("{RULE}{lines}");
    Limits::from_toml(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn of_target(target: &str) -> Request<Body> {
    let mut request = request(&[]);
    let uri = target.parse();
    *request.uri_mut() = uri.unwrap_or_else(|_| panic!("a target: {target}"));
    request
}

fn of_method(method: &str, mut request: Request<Body>) -> Request<Body> {
    *request.method_mut() = method.parse().expect("a method");
    request
}

async fn is_exempt(service: &Wrapped, request: Request<Body>) -> bool {
    match send(service, request).await.status().as_u16() {
        200 | 404 | 405 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

/// Which of these targets are exempt, each a word, and which are not.
async fn expect_exempt(case: &str, service: &Wrapped, exempt: &str, others: &str) {
    for (targets, expected) in [(exempt, true), (others, false)] {
        for target in words(targets) {
            let got = is_exempt(service, of_target(target)).await;
            assert_eq!(got, expected, "{case}: {target}");
        }
    }
}

fn of_router(router: Router) -> Wrapped {
    let infallible = MapErrLayer::new(|error: Infallible| error);
    BoxCloneSyncService::new(infallible.layer(router))
}

/// All ways to put a layer around routes that see `/healthz` and others.
fn services(limits: &Limits) -> [(&'static str, Wrapped); 5] {
    let ok = || any(async || "");
    let layer = || limits.layer("p");
    let routes = || {
        let rest = Router::new().route("/{*rest}", ok()).route("/", ok());
        rest.route("/healthz", ok()).route("/healthz/", ok())
    };
    let each = Router::new().route("/healthz", ok().layer(layer()));
    let each = each.fallback_service(ok().layer(layer()));
    let nested = Router::new().nest("/in", routes()).merge(routes());
    [
        ("a service", wrap(layer())),
        ("a router", of_router(routes().layer(layer()))),
        ("a route layer", of_router(routes().route_layer(layer()))),
        ("its routes", of_router(each)),
        ("around a nested router", of_router(nested.layer(layer()))),
    ]
}

/// Paths are compared whole and as they were sent: nothing is decoded, cut off or put together.
#[tokio::test]
async fn paths_that_look_like_an_exempt_one() {
    let limits = limits("exempt.paths = [\"/healthz\"]");
    let exempt = "/healthz /healthz? /healthz?a=/x http://a.example/healthz http://a:1/healthz?x";
    let others = "/ //healthz /healthz/ /healthz// /./healthz /x/../healthz /%68ealthz /healthz%2F
        /healthz%00 /healthz;x /Healthz /HEALTHZ /healthz. /healthzz /healthz%20 /in/healthz
        /x?/healthz /x#/healthz http://healthz/ http://a.example//healthz http://a.example
        /healthz/x /%2Fhealthz";
    for (name, service) in services(&limits) {
        expect_exempt(name, &service, exempt, others).await;
    }
    // No path at all.
    let [(_, service), ..] = services(&limits);
    assert!(!is_exempt(&service, of_target("*")).await);
    let connect = of_method("CONNECT", of_target("healthz:443"));
    assert!(!is_exempt(&service, connect).await);
}

/// A router inside of others sees less of the path than the client sent; what counts is what the
/// client sent, however deep the layer is.
#[tokio::test]
async fn nested_routers() {
    let limits = limits("exempt.paths = [\"/a/b/status\", \"/status\"]");
    let ok = || any(async || "");
    let limited = || ok().layer(limits.layer("p"));
    let inner = || {
        let routes = Router::new().route("/status", ok()).route("/{*rest}", ok());
        routes.layer(limits.layer("p"))
    };
    let middle = Router::new()
        .nest("/b", inner())
        .route("/status", limited());
    let app = Router::new()
        .nest("/a", middle)
        .nest_service("/service", wrap(limits.layer("p")))
        .nest("/of/{tenant}/x", inner())
        .route("/status", limited())
        .fallback_service(limited());
    let others = "/a/status /service/status /service/a/b/status /of/acme/x/status
        /of/a%2Fb/x/status /b/status /a/b/status/ /a/b//status";
    expect_exempt("nested", &of_router(app), "/a/b/status /status", others).await;
}

/// Methods as they were sent: no field changes them.
#[tokio::test]
async fn methods() {
    let limits = limits("exempt.methods = [\"OPTIONS\", \"X-Y\"]");
    let service = wrap(limits.layer("p"));
    for method in words("OPTIONS X-Y options Options OPTION OPTIONSX x-y GET HEAD") {
        let fields = [("x-http-method-override", "OPTIONS"), ("x-method", "X-Y")];
        let got = is_exempt(&service, of_method(method, request(&fields))).await;
        assert_eq!(got, ["OPTIONS", "X-Y"].contains(&method), "{method}");
    }
}

/// An exempt request is as one without a layer: not charged, not counted, without fields and
/// without a key; and the handler finds that nothing was charged.
#[tokio::test]
async fn exempt_is_untouched() {
    for shadow in ["", "shadow = true\n"] {
        let lines = "key = \"header:x-user\"\nexempt.paths = [\"/healthz\"]\non-error = \"respond\"\n\
             exempt.methods = [\"PURGE\"]";
        // A store without room would be an error.
        let limits = limits(&format!("{lines}\n{shadow}"));
        let limits = limits.store(MemoryStore::with_max_keys(0));
        let handler = async |charges: Charges, decision: Option<Decision>| {
            format!("{} {decision:?}", charges.len())
        };
        let app = Router::new().route("/healthz", any(handler));
        let app = app.route("/purged", any(handler));
        let app = of_router(app.layer(limits.layer("p")));
        let before = format!("{:?}", limits.snapshot());
        let purge = of_method("PURGE", of_target("/purged"));
        for request in [of_target("/healthz"), of_target("/healthz?x"), purge] {
            let response = send(&app, request).await;
            for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
                assert!(!response.headers().contains_key(name), "{name}");
            }
            assert!(Charges::from_extensions(response.extensions()).is_empty());
            let text = seen(response).await;
            let is_right = text.starts_with("200") && text.contains("0 None");
            assert!(is_right, "{shadow}: {text}");
            assert_eq!(format!("{:?}", limits.snapshot()), before, "{shadow}");
        }
        // A shadow denies nobody, also without a key.
        let expected = [400, 404][usize::from(shadow.starts_with("shadow"))];
        let other = send(&app, of_target("/")).await.status();
        assert_eq!(other, expected, "{shadow}: a key is missing");
    }
}

#[tokio::test]
async fn a_kept_rule_keeps_its_exemptions() {
    let text = format!("exempt.methods = [\"PURGE\"]\n{RULE}exempt.paths = [\"/healthz\"]");
    let file = LimitsFile::new(&text);
    let limits = file.limits();
    let service = wrap(limits.layer("p"));
    file.reload(&limits, "[rules.other]\nmax-count = 1\nwindow = \"1m\"");
    assert_eq!(limits.status().kept_rules, ["p"]);
    expect_exempt("kept", &service, "/healthz", "/").await;
    replace(&limits, [hourly("p", 0)]);
    expect_exempt("replaced", &service, "", "/healthz").await;
}
