//! What a file exempts from its rules.

use kit::http as with;

use crate::*;

const RULE: &str = "[rules.p]\nmax-count = 0\nwindow = \"1m\"\n";

/// A layer of the rule `p` on all routes, some of them in a nested router.
fn nested_app(limits: &Limits) -> Router {
    let ok = || any(async || "");
    let layer = limits.layer("p");
    let nested = Router::new().route("/status", ok().layer(layer.clone()));
    let routes = Router::new().route("/status", ok()).route("/", ok());
    routes.layer(layer).nest("/internal", nested)
}

/// Whether requests like this one are exempt from a rule that denies all others.
async fn is_exempt(limits: &Limits, request: Request<Body>) -> bool {
    match with::call(&nested_app(limits), request)
        .await
        .status()
        .as_u16()
    {
        200 => true,
        429 => false,
        status => panic!("{status}"),
    }
}

/// With them, the client is the one that they find: those of the rule before those of the file.
#[tokio::test]
async fn a_network_is_exempt_by_the_clients_address() {
    let networks = "exempt = { networks = [\"203.0.113.0/24\", \"198.51.100.1\"] }\n";
    let of = |more: &str| of_toml(&format!("[client-ip]\nhops = 1\n{RULE}{networks}{more}"));
    let file = of("");
    let rule = of("client-ip = { hops = 2 }\n");
    let nobody = of("client-ip = { trusted = [] }\n");
    let behind = [("x-forwarded-for", "198.51.100.2, 203.0.113.9")];
    let of_client = || from("10.0.0.1", "/", &behind);
    let of_peer = || from("203.0.113.9", "/", &[("x-forwarded-for", "192.0.2.1")]);
    // It came around the proxy.
    let too_few = || from("203.0.113.9", "/", &[]);
    for (limits, request, expected) in [
        (&file, of_client(), true),
        (&file, of_peer(), false),
        (&file, too_few(), true),
        (&rule, of_client(), false),
        (&nobody, of_peer(), true),
        (&nobody, of_client(), false),
    ] {
        assert_eq!(is_exempt(limits, request).await, expected);
    }
    for limits in [file, rule, nobody] {
        let warnings = limits.warnings();
        let is_of_proxy = |kind| kind == WarningKind::ExemptBehindProxy;
        assert!(!warnings.iter().any(|it| is_of_proxy(it.kind)));
    }
}

/// Without such a table the client is the peer, unless a proxy wrote a field: then it is nobody.
#[tokio::test]
async fn a_network_is_exempt_by_the_peer() {
    let exempt = "key = \"everyone\"\nexempt.networks = [\"10.0.0.0/8\"]";
    let limits = of_toml(&format!("{RULE}{exempt}"));
    assert!(is_exempt(&limits, from("10.0.0.1", "/", &[])).await);
    assert!(!is_exempt(&limits, from("203.0.113.9", "/", &[])).await);
    assert!(limits.warnings().is_empty());
    for field in ["x-forwarded-for", "forwarded"] {
        let behind = from("10.0.0.1", "/", &[(field, "for=203.0.113.9")]);
        assert!(!is_exempt(&limits, behind).await, "{field}");
    }
    let warnings = limits.warnings();
    let kinds: Vec<_> = warnings.iter().map(|it| it.kind).collect();
    assert_eq!(kinds[0], WarningKind::ExemptBehindProxy, "{kinds:?}");
}

/// A server that is not axum's says where the address is.
#[tokio::test]
async fn a_hook_finds_the_address() {
    #[derive(Clone)]
    struct Connection(SocketAddr);
    let limits = of_toml(&format!("{RULE}exempt.networks = [\"10.0.0.0/8\"]"))
        .peer(|extensions| Some(extensions.get::<Connection>()?.0));
    let mut request = get("/");
    let connection = Connection(([10, 0, 0, 1], 1).into());
    request.extensions_mut().insert(connection);
    assert!(is_exempt(&limits, request).await);
}

/// The file's lists, the rule's lists and the layer's own closure: any one of them exempts.
#[tokio::test]
async fn exemptions_add_up() {
    let limits = of_toml(&format!(
        "exempt = {{ paths = [\"/status\"], networks = [\"10.0.0.0/8\"] }}\n{RULE}\
         exempt = {{ paths = [\"/internal/status\"], methods = [\"OPTIONS\"] }}"
    ));
    assert!(is_exempt(&limits, get("/status")).await);
    assert!(is_exempt(&limits, get("/internal/status")).await);
    assert!(is_exempt(&limits, from("10.0.0.1", "/", &[])).await);
    assert!(!is_exempt(&limits, from("203.0.113.9", "/", &[])).await);

    let layer = limits.layer("p");
    let app = app(layer.exempt(|head| head.headers.contains_key("x-internal")));
    for (peer, fields, expected) in [
        ("203.0.113.9", &[("x-internal", "1")][..], 200),
        ("10.0.0.1", &[], 200),
        ("203.0.113.9", &[], 429),
    ] {
        let response = with::call(&app, from(peer, "/", fields)).await;
        assert_eq!(response.status(), expected, "{peer} {fields:?}");
    }
}
