//! Mistakes in the set-up: each is listed once, with its path and remedy, and nothing of a request.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use kit::Redis as Server;
use redis::cmd;
use tidegate::key::{Everyone, Forwarding, Joined, PeerAddr};
use tidegate::rule::Subject;
use tidegate::warning::{Warning, WarningKind as Kind};
use tidegate::{
    Algorithm, ClientIp, KeyExtractor, Limits, MemoryStore, PeerIp, Quota, RedisStore, Resilient,
    Rule, Rules, Store,
};
use tower::ServiceExt;

use crate::WINDOW;
use kit::{app_of, roomy};

fn limits(rules: impl IntoIterator<Item = Rule>) -> Limits {
    Limits::new(rules.into_iter().collect::<Rules>())
}

async fn ask(app: &Router, path: &str, fields: &[(&str, &str)]) {
    let peer: SocketAddr = "10.0.0.7:1".parse().expect("an address");
    let request = Request::get(path).extension(PeerAddr(peer));
    let request = fields.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let request = request.body(Body::empty()).expect("valid");
    let response = app.clone().oneshot(request).await.expect("never fails");
    assert!(response.status().is_success(), "{:?}", response.status());
}

fn kinds(limits: &Limits) -> Vec<Kind> {
    limits
        .warnings()
        .iter()
        .map(|warning| warning.kind)
        .collect()
}

fn only(limits: &Limits) -> Warning {
    let [warning] = <[Warning; 1]>::try_from(limits.warnings()).expect("one warning");
    warning
}

#[tokio::test]
async fn the_peer_is_a_proxy() {
    for field in [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "cf-connecting-ip",
    ] {
        let limits = limits([roomy("login").with_key(PeerIp)]);
        let app = app_of(&limits, &["login"]);
        ask(&app, "/login", &[]).await;
        assert_eq!(limits.warnings(), []);
        for client in ["203.0.113.9", "secret"] {
            ask(&app, "/login", &[(field, client)]).await;
        }
        let warning = only(&limits);
        assert_eq!(warning.kind, Kind::PeerIpBehindProxy);
        assert_eq!(warning.path.as_deref(), Some("login"));
        assert_eq!(warning.name.as_deref(), Some(field));
        let text = format!("{warning} {warning:?}");
        assert!(text.contains("ClientIp::behind"), "{text}");
        assert!(
            !text.contains("203.0.113.9") && !text.contains("secret"),
            "{text}"
        );
    }
}

/// Around the extractor there may be others.
#[tokio::test]
async fn the_peer_is_a_part_of_the_key() {
    let method = |head: &http::request::Parts| Ok(tidegate::Key::from(head.method.as_str()));
    let shared: std::sync::Arc<dyn KeyExtractor> = std::sync::Arc::new(PeerIp);
    for rule in [
        roomy("login").with_key((method, PeerIp)),
        roomy("login").with_key(Joined::new([shared])),
        roomy("login").with_key(std::sync::Arc::new(PeerIp)),
        roomy("login").with_key(PeerIp.peer(|_| None)),
    ] {
        let limits = limits([rule]);
        ask(
            &app_of(&limits, &["login"]),
            "/login",
            &[("forwarded", "for=1.2.3.4")],
        )
        .await;
        assert_eq!(kinds(&limits), [Kind::PeerIpBehindProxy]);
    }
    let of_layer = limits([roomy("login")]);
    let layer = of_layer.layer("login").key(PeerIp);
    let app = Router::new().route("/", get(async || "1").layer(layer));
    ask(&app, "/", &[("forwarded", "for=1.2.3.4")]).await;
    assert_eq!(kinds(&of_layer), [Kind::PeerIpBehindProxy]);
}

/// The key of each subject is looked at, and not that which no subject has.
#[tokio::test]
async fn the_peer_is_a_subject() {
    let user = || Subject::new("user", Everyone).limit(Quota::per_hour(9));
    let address = Subject::new("address", PeerIp).limit(Quota::per_hour(9));
    for (subjects, expected) in [
        ([user(), address], vec![Kind::PeerIpBehindProxy]),
        (
            [
                user(),
                Subject::new("all", Everyone).limit(Quota::per_hour(9)),
            ],
            vec![],
        ),
    ] {
        let limits = limits([Rule::joint("login", subjects).expect("valid")]).key(PeerIp);
        let app = app_of(&limits, &["login"]);
        ask(&app, "/login", &[("forwarded", "for=1.2.3.4")]).await;
        assert_eq!(kinds(&limits), expected);
    }
}

/// Where a subject has no key of its own, it has that of the layer.
#[tokio::test]
async fn no_subject_uses_the_key() {
    let quota = "max-count = 9, window = \"1h\"";
    let of_file = |key: &str| {
        let text =
            format!("[rules.p]\nquotas = [{{ {quota}, {key} }}, {{ {quota}, key = \"method\" }}]");
        Limits::from_toml(&text).expect("valid")
    };
    let all = of_file("key = \"everyone\"");
    let own = of_file("subject = \"own\"");
    let of_rule = all
        .rules()
        .load()
        .get("p")
        .map(|it| Rule::clone(it).with_key(Everyone));
    let of_rule = limits(of_rule);
    for (limits, has_key, expected) in [
        (&all, false, &[][..]),
        (&own, true, &[]),
        (&all, true, &[Kind::KeyOfJointRule]),
        (&of_rule, false, &[Kind::KeyOfJointRule]),
    ] {
        let layer = limits.layer("p");
        let layer = if has_key { layer.key(Everyone) } else { layer };
        let app = Router::new().route("/", get(async || "1").layer(layer));
        for _ in 0..3 {
            ask(&app, "/", &[]).await;
        }
        assert_eq!(kinds(limits), expected);
    }
    let warning = only(&of_rule);
    assert_eq!(warning.path.as_deref(), Some("p"));
    assert!(warning.to_string().contains("\"p\""), "{warning}");
}

#[tokio::test]
async fn a_request_came_around_a_proxy() {
    let behind = |field| ClientIp::behind_hops(2).field(field);
    for (field, name) in [
        (Forwarding::XForwardedFor, "x-forwarded-for"),
        (
            Forwarding::Header(http::HeaderName::from_static("x-client")),
            "x-client",
        ),
    ] {
        let limits = limits([roomy("login").with_key(behind(field))]);
        let app = app_of(&limits, &["login"]);
        ask(&app, "/login", &[(name, "1.2.3.4, 5.6.7.8")]).await;
        ask(&app, "/login", &[(name, "9.9.9.9, 1.2.3.4, 5.6.7.8")]).await;
        assert_eq!(limits.warnings(), []);
        ask(&app, "/login", &[(name, "1.2.3.4")]).await;
        ask(&app, "/login", &[]).await;
        let warning = only(&limits);
        assert_eq!(
            (warning.kind, warning.name.as_deref()),
            (Kind::FewerHops, Some(name))
        );
        assert!(!warning.to_string().contains("1.2.3.4"));
    }
}

#[tokio::test]
async fn the_prefix_is_everybodys() {
    let server = Server::start();
    let url = server.url.as_str();
    let bare = RedisStore::connect(url)
        .await
        .expect("a server")
        .timeout(WINDOW);
    let around = Resilient::new(bare.clone());
    let own = bare.clone().prefix("shop:");
    let service = Resilient::redis(url, "shop")
        .expect("an address")
        .timeout(WINDOW);
    let stores: [(std::sync::Arc<dyn Store>, bool); 4] = [
        (std::sync::Arc::new(bare), true),
        (std::sync::Arc::new(around), true),
        (std::sync::Arc::new(own), false),
        (std::sync::Arc::new(service), false),
    ];
    for (store, is_default) in stores {
        let limits = limits([roomy("login")]).store(store);
        ask(&app_of(&limits, &["login"]), "/login", &[]).await;
        let expected: &[Kind] = if is_default {
            &[Kind::DefaultPrefix]
        } else {
            &[]
        };
        assert_eq!(kinds(&limits), expected);
    }
}

#[tokio::test]
async fn redis_evicts() {
    for (policy, memory, evicts) in [
        ("allkeys-lru", "100mb", true),
        ("volatile-ttl", "100mb", true),
        ("noeviction", "100mb", false),
        ("allkeys-lru", "0", false),
    ] {
        let server = Server::start_with(&["--maxmemory", memory, "--maxmemory-policy", policy]);
        let store = Resilient::redis(server.url.as_str(), "shop")
            .expect("an address")
            .timeout(WINDOW);
        let limits = limits([roomy("login")]).store(store);
        ask(&app_of(&limits, &["login"]), "/login", &[]).await;
        let expected: &[Kind] = if evicts { &[Kind::RedisEvicts] } else { &[] };
        assert_eq!(kinds(&limits), expected, "{policy} {memory}");
    }
}

/// A user who may not ask is no mistake.
#[tokio::test]
async fn redis_does_not_say_whether_it_evicts() {
    let server = Server::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    for rule in [
        &["+@all", "-info"][..],
        &["+@all", "-info", "-time", "+time"],
    ] {
        let mut set = cmd("ACL");
        set.arg(&["SETUSER", "app", "on", ">pw", "~*", "&*"])
            .arg(rule);
        set.exec(&mut server.connection()).expect("is set");
        let url = server.url.replace("redis://", "redis://app:pw@");
        let store = Resilient::redis(url, "shop")
            .expect("an address")
            .timeout(WINDOW);
        let limits = limits([roomy("login")]).store(store);
        ask(&app_of(&limits, &["login"]), "/login", &[]).await;
        assert_eq!(limits.warnings(), []);
    }
}

#[tokio::test]
async fn a_memory_store_is_nearly_full() {
    let key =
        |head: &http::request::Parts| Ok(tidegate::Key::from(head.uri.query().unwrap_or_default()));
    let quota = Quota::new(WINDOW, 5).expect("valid");
    let rule = Rule::new("p", [quota]).expect("valid").with_key(key);
    let limits = limits([rule]).store(MemoryStore::with_max_keys(10));
    let app = app_of(&limits, &["p"]);
    for at in 0..8 {
        ask(&app, &format!("/p?{at}"), &[]).await;
    }
    assert_eq!(limits.warnings(), []);
    ask(&app, "/p?8", &[]).await;
    assert_eq!(kinds(&limits), [Kind::MemoryNearlyFull]);
}

/// Rules are made, layers are made, the first request comes: ten seconds later somebody is told.
#[tokio::test(start_paused = true)]
async fn rules_without_layers_and_layers_without_rules() {
    let limits = limits([roomy("login"), roomy("signin"), roomy("search")]);
    let app = app_of(&limits, &["login", "sign-in"]);
    let no_rule = only(&limits);
    assert_eq!(
        (no_rule.kind, no_rule.path.as_deref()),
        (Kind::NoRule, Some("sign-in"))
    );
    let wrong = limits.verify().expect_err("three paths").to_string();
    assert_eq!(
        wrong,
        "layers or checks without a rule: [\"sign-in\"]; rules without a layer or check: [\"search\", \"signin\"]"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(kinds(&limits), [Kind::NoRule], "no request has come");
    ask(&app, "/login", &[]).await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(kinds(&limits), [Kind::NoRule]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let paths: Vec<_> = limits
        .warnings()
        .into_iter()
        .filter_map(|warning| warning.path)
        .collect();
    assert_eq!(
        paths.iter().map(|path| &**path).collect::<Vec<_>>(),
        ["sign-in", "search", "signin"]
    );

    let _late = limits.layer("search");
    assert_eq!(
        kinds(&limits),
        [Kind::NoRule, Kind::UnusedRule],
        "the rule has a layer now"
    );
}

#[test]
fn what_fits_is_verified() {
    let switched_off = "enabled = false\nmax-count = 1\nwindow = \"1s\"";
    let text = format!("[rules.a]\nmax-count = 1\nwindow = \"1s\"\n[rules.b]\n{switched_off}");
    let limits = Limits::from_toml(&text).expect("valid");
    assert!(limits.verify().is_err());
    let _layer = limits.layer("a");
    limits
        .verify()
        .expect("all fits: a rule that is switched off needs no layer");
}

#[tokio::test]
async fn a_log_is_large() {
    let of = |max, algorithm| {
        let quota = Quota::new(WINDOW, max).expect("valid");
        Rule::new("p", [quota])
            .expect("valid")
            .with_algorithm(algorithm)
    };
    for (rule, is_large) in [
        (of(10_000, Algorithm::SlidingLog), false),
        (of(10_001, Algorithm::SlidingLog), true),
        (of(10_001, Algorithm::SlidingWindow), false),
        (of(10_001, Algorithm::Gcra), false),
    ] {
        let limits = limits([rule]);
        ask(&app_of(&limits, &["p"]), "/p", &[]).await;
        let expected: &[Kind] = if is_large { &[Kind::LargeLog] } else { &[] };
        assert_eq!(kinds(&limits), expected);
    }
}

/// A check sees no response. Declared, its path is in use from the start.
#[tokio::test]
async fn checks() {
    let of = |outcome: &str| roomy("p").with_refund_on([outcome]).expect("valid");
    let limits = limits([of("2xx"), roomy("q")]);
    assert!(limits.verify().is_err());
    limits.declare_checks(["p", "q"]);
    limits.verify().expect("both are in use");
    limits.check("q", "alice").await.expect("room");
    assert_eq!(limits.warnings(), []);
    limits.check("p", "alice").await.expect("room");
    assert_eq!(kinds(&limits), [Kind::OutcomeOfCheck]);
    limits.declare_checks(["r"]);
    assert_eq!(
        limits.verify().expect_err("no rule").paths_without_rule,
        ["r"]
    );
}

#[tokio::test]
async fn a_lease_that_nobody_hands_out() {
    let leased = roomy("p").with_algorithm(Algorithm::SlidingWindow);
    let leased = leased.with_lease(Duration::from_millis(50)).expect("valid");
    let of = |limits: Limits| async move {
        ask(&app_of(&limits, &["p"]), "/p", &[]).await;
        kinds(&limits)
    };
    assert_eq!(of(limits([leased.clone()])).await, [Kind::UnusedLease]);
    let store = || Resilient::bare(MemoryStore::new());
    assert_eq!(of(limits([leased.clone()]).store(store())).await, []);
    assert_eq!(
        of(limits([leased]).store(Resilient::new(store()))).await,
        []
    );
    assert_eq!(of(limits([roomy("p")])).await, []);
}

/// The first hundred requests are all looked at, then one of 64, and none after ten thousand.
#[tokio::test]
async fn later_requests_are_free() {
    let limits = limits([roomy("login").with_key(PeerIp)]);
    let app = app_of(&limits, &["login"]);
    for _ in 0..100 {
        ask(&app, "/login", &[]).await;
    }
    for _ in 0..28 {
        ask(&app, "/login", &[("forwarded", "for=1.2.3.4")]).await;
    }
    assert_eq!(limits.warnings(), []);
    ask(&app, "/login", &[("forwarded", "for=1.2.3.4")]).await;
    assert_eq!(kinds(&limits), [Kind::PeerIpBehindProxy]);

    let limits = self::limits([roomy("login").with_key(PeerIp)]);
    let app = app_of(&limits, &["login"]);
    for _ in 0..10_000 {
        ask(&app, "/login", &[]).await;
    }
    for _ in 0..200 {
        ask(&app, "/login", &[("forwarded", "for=1.2.3.4")]).await;
    }
    assert_eq!(limits.warnings(), []);
}

#[tokio::test]
async fn the_list_is_bounded() {
    let limits = limits([]);
    for at in 0..3_000 {
        let _layer = limits.layer(&format!("p{at}"));
    }
    assert_eq!(limits.warnings().len(), 1_000);
}

/// An extractor of one's own that panics when it is asked for warnings changes nothing.
#[tokio::test]
async fn a_panic_is_no_warning() {
    struct Panics;
    impl KeyExtractor for Panics {
        fn extract(
            &self,
            head: &http::request::Parts,
        ) -> Result<tidegate::Key, tidegate::key::KeyError> {
            PeerIp.extract(head)
        }

        fn warning(&self, _: &http::HeaderMap) -> Option<Warning> {
            panic!("on purpose")
        }
    }
    let limits = limits([roomy("login").with_key(Panics)]);
    ask(&app_of(&limits, &["login"]), "/login", &[]).await;
    assert_eq!(limits.warnings(), []);
}

/// The log shows each warning once, as its sentence.
#[tokio::test]
async fn the_log_is_told_once() {
    let log = kit::log::Log::start();
    let limits = limits([roomy("login").with_key(PeerIp)]);
    let app = app_of(&limits, &["login", "other"]);
    for _ in 0..50 {
        ask(&app, "/login", &[("x-forwarded-for", "203.0.113.9")]).await;
        ask(&app, "/other", &[]).await;
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].contains("there is no rule for \"other\""),
        "{lines:#?}"
    );
    assert!(
        lines[1].contains("the key of \"login\" is PeerIp"),
        "{lines:#?}"
    );
}
