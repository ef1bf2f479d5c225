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

const INSIDE: &str = "exempt.networks = [\"10.0.0.0/8\", \"fd00::/8\", \"2001:db8::7\"]\n";

fn is_warned(limits: &Limits) -> bool {
    let warnings = limits.warnings();
    let kinds = warnings.iter().map(|it| it.kind);
    kinds
        .into_iter()
        .any(|it| it == WarningKind::ExemptBehindProxy)
}

/// With settings, the client is the one that they find: those of the rule before those of the file,
/// and no part of a field that a client wrote.
#[tokio::test]
async fn a_network_is_exempt_by_the_clients_address() {
    let of = |file: &str, rule: &str| {
        let file = of_toml(&format!("{file}\n{RULE}{INSIDE}client-ip = {{ {rule} }}"));
        (file, rule.to_owned())
    };
    let trusted = of("", "trusted = [\"192.0.2.0/24\"]");
    let hops = of("", "hops = 1");
    let forwarded = of("", "hops = 1, field = \"forwarded\"");
    let file = of_toml(&format!("[client-ip]\nhops = 1\n{RULE}{INSIDE}"));
    let file = (file, "of the file".to_owned());
    let of_file =
        "client-ip.hops = 1\n[rules.q]\nkey = \"client-ip\"\nmax-count = 1\nwindow = \"1m\"";
    let [rule, nobody] = ["hops = 2", "trusted = []"].map(|rule| of(of_file, rule));
    let two = "for=\"10.0.0.1\", for=203.0.113.9";
    // Lines of `x-forwarded-for`, or of `forwarded` where they say `for=`, between slashes.
    for ((limits, case), peer, lines, expected) in [
        (&trusted, "192.0.2.1", "10.0.0.1", true),
        (&trusted, "192.0.2.1", "10.0.0.1, 192.0.2.9", true),
        (&trusted, "192.0.2.1", "10.0.0.1, 203.0.113.1", false),
        (&trusted, "192.0.2.1", "10.0.0.1/203.0.113.1", false),
        (&trusted, "192.0.2.1", "10.0.0.1, nonsense", false),
        (&trusted, "192.0.2.1", "-", false),
        (&trusted, "192.0.2.1", "for=10.0.0.1", false),
        // A peer outside is not asked who sent it.
        (&trusted, "203.0.113.1", "10.0.0.1", false),
        // One inside is, whatever it says.
        (&trusted, "10.0.0.1", "203.0.113.1", true),
        (&hops, "203.0.113.1", "10.0.0.1", true),
        (&hops, "203.0.113.1", "10.0.0.1, 203.0.113.5", false),
        (&hops, "10.0.0.1", "203.0.113.1", false),
        (&hops, "10.0.0.1", "-", true),
        (&forwarded, "203.0.113.1", "for=\"[fd00::1]:80\"", true),
        (&forwarded, "203.0.113.1", two, false),
        (&forwarded, "203.0.113.1", "10.0.0.1", false),
        (&file, "203.0.113.1", "198.51.100.2, 10.0.0.9", true),
        (&file, "10.0.0.1", "192.0.2.1", false),
        // It came around the proxy.
        (&file, "10.0.0.1", "-", true),
        (&rule, "203.0.113.1", "198.51.100.2, 10.0.0.9", false),
        (&nobody, "10.0.0.1", "192.0.2.1", true),
        (&nobody, "203.0.113.1", "198.51.100.2, 10.0.0.9", false),
    ] {
        let lines = lines.split('/').filter(|line| *line != "-");
        let is_forwarded = |line: &str| usize::from(line.starts_with("for="));
        let name = |line: &str| ["x-forwarded-for", "forwarded"][is_forwarded(line)];
        let fields: Vec<_> = lines.map(|line| (name(line), line)).collect();
        let got = is_exempt(limits, from(peer, "/", &fields)).await;
        assert_eq!(got, expected, "{case}: {peer} {fields:?}");
        assert!(!is_warned(limits), "{case}: {peer} {fields:?}");
    }
}

/// Without such a table the client is the peer, unless a proxy wrote a field: then it is nobody. No
/// field of a client makes a request exempt.
#[tokio::test]
async fn a_network_is_exempt_by_the_peer() {
    let limits = of_toml(&format!("{RULE}key = \"everyone\"\n{INSIDE}"));
    let inside = "10.0.0.0 10.255.255.255 ::ffff:10.1.1.1 fd12::1 2001:db8::7";
    let outside = "11.0.0.0 9.255.255.255 ::10.1.1.1 fe80::1 2001:db8::8 ::";
    for (peers, expected) in [(inside, true), (outside, false)] {
        for peer in words(peers) {
            let got = is_exempt(&limits, from(peer, "/", &[])).await;
            assert_eq!(got, expected, "{peer}");
        }
    }
    assert!(limits.warnings().is_empty());
    let fields = "x-forwarded-for forwarded x-real-ip cf-connecting-ip true-client-ip
        X-Forwarded-For";
    let values = words("10.0.0.1 for=10.0.0.1 for=203.0.113.9 unknown 203.0.113.9 , \u{e4}");
    for field in words(fields) {
        for value in values.iter().copied().chain([""]) {
            for peer in ["10.1.1.1", "203.0.113.1"] {
                let mut request = from(peer, "/", &[]);
                let name: HeaderName = field.parse().expect("a name");
                let bytes = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
                request.headers_mut().insert(name, bytes);
                let got = is_exempt(&limits, request).await;
                assert!(!got, "{peer} {field}: {value}");
            }
        }
    }
    let kinds: Vec<_> = limits.warnings().iter().map(|it| it.kind).collect();
    assert_eq!(kinds[0], WarningKind::ExemptBehindProxy, "{kinds:?}");
    // Nobody is exempt whose address is not known.
    assert!(!is_exempt(&limits, get("/")).await);
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
