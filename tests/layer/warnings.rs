//! Mistakes in the set-up: each is listed once, with its path and remedy, and nothing of a request.

use kit::Redis as Server;
use tidegate::key::{BasicUser, Cookie, Extension, Forwarding, Method};
use tidegate::store::{Fleet, FleetState, OperatorKey, PeerReport, ProcessReport};
use tidegate::warning::Warning;
use tidegate::warning::WarningKind as Kind;

use crate::*;

const FORWARDED: &[(&str, &str)] = &[("forwarded", "for=1.2.3.4")];

fn limits<const N: usize>(rules: [Rule; N]) -> Limits {
    Limits::new(rules)
}

/// An app of one rule, and its limits.
fn of(rule: Rule) -> (Limits, Router) {
    let path = rule.path().to_owned();
    let limits = limits([rule]);
    let app = app_of(&limits, &[&*path]);
    (limits, app)
}

async fn ask(app: &Router, path: &str, fields: &[(&str, &str)]) {
    let response = call(app, from("10.0.0.7", path, fields)).await;
    assert!(response.status().is_success(), "{:?}", response.status());
}

/// The warnings after one request to `/login` in this store.
async fn in_store(store: impl Store) -> Vec<Kind> {
    let limits = limits([roomy("login")]).key(Everyone).store(store);
    ask(&app_of(&limits, &["login"]), "/login", &[]).await;
    kinds(&limits)
}

fn kinds(limits: &Limits) -> Vec<Kind> {
    limits.warnings().iter().map(|it| it.kind).collect()
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
        let (limits, app) = of(roomy("login").with_key(PeerIp));
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
        for told in ["203.0.113.9", "secret"] {
            assert!(!text.contains(told), "{text}");
        }
    }
}

/// Around the extractor there may be others.
#[tokio::test]
async fn the_peer_is_a_part_of_the_key() {
    let method = |head: &Parts| Ok(Key::from(head.method.as_str()));
    let shared: Arc<dyn KeyExtractor> = Arc::new(PeerIp);
    for rule in [
        roomy("login").with_key((method, PeerIp)),
        roomy("login").with_key(Joined::new([shared])),
        roomy("login").with_key(Arc::new(PeerIp)),
        roomy("login").with_key(PeerIp.peer(|_| None)),
    ] {
        let (limits, app) = of(rule);
        ask(&app, "/login", FORWARDED).await;
        assert_eq!(kinds(&limits), [Kind::PeerIpBehindProxy]);
    }
    let of_layer = limits([roomy("login")]);
    let app = kit::app(of_layer.layer("login").key(PeerIp));
    ask(&app, "/", FORWARDED).await;
    assert_eq!(kinds(&of_layer), [Kind::PeerIpBehindProxy]);
}

/// The key of each subject is looked at, and not that which no subject has.
#[tokio::test]
async fn the_peer_is_a_subject() {
    let everyone = |name| Subject::new(name, Everyone).limit(Quota::per_hour(9));
    let address = Subject::new("address", PeerIp).limit(Quota::per_hour(9));
    for (other, expected) in [
        (address, &[Kind::PeerIpBehindProxy][..]),
        (everyone("all"), &[]),
    ] {
        let rule = Rule::joint("login", [everyone("user"), other]).expect("valid");
        let limits = limits([rule]).key(PeerIp);
        ask(&app_of(&limits, &["login"]), "/login", FORWARDED).await;
        assert_eq!(kinds(&limits), expected);
    }
}

/// A rule whose key nobody has said counts all clients together, which its layer's first request
/// shows.
#[tokio::test]
async fn nobody_has_said_a_key() {
    let log = kit::log::Log::start();
    let rule = || kit::per_hour("login", 9);
    let of_file = |key: &str| {
        of_toml(&format!(
            "[rules.login]\nmax-count = 9\nwindow = '1h'\n{key}"
        ))
    };
    let quota = "max-count = 9, window = '1h'";
    let joint = |key: &str| {
        let quotas = format!("quotas = [{{ {quota}, key = 'method' }}, {{ {quota}{key} }}]");
        of_toml(&format!("[rules.login]\n{quotas}"))
    };
    for (case, limits, expected) in [
        ("none", limits([rule()]), &[Kind::NoKey][..]),
        ("of the rule", limits([rule().with_key(Everyone)]), &[]),
        ("of all", limits([rule()]).key(PeerIp), &[]),
        ("none in the file", of_file(""), &[Kind::NoKey]),
        ("of the file", of_file("key = 'everyone'"), &[]),
        ("none of a subject", joint(""), &[Kind::NoKey]),
        ("of each subject", joint(", key = 'everyone'"), &[]),
    ] {
        limits.declare_checks(["login"]);
        limits.verify().expect("it is no error");
        let app = app_of(&limits, &["login"]);
        for _ in 0..2 {
            ask(&app, "/login", &[]).await;
            assert_eq!(kinds(&limits), expected, "{case}");
        }
    }
    let of_layer = limits([rule()]);
    ask(&kit::app(of_layer.layer("login").key(PeerIp)), "/", &[]).await;
    of_layer
        .check("login", Key::default())
        .await
        .expect("it says its key");
    assert_eq!(of_layer.warnings(), []);
    // A rule may lose its key while requests run.
    let limits = of_file("key = 'everyone'");
    let app = app_of(&limits, &["login"]);
    limits.rules().replace([rule()].into());
    ask(&app, "/login", &[]).await;
    assert_eq!(kinds(&limits), [Kind::NoKey]);
    let lines = log.lines();
    let told = lines
        .iter()
        .filter(|it| it.contains("nothing says whom the rule \"login\" counts"));
    assert_eq!(told.count(), 4, "{lines:?}");
    // Who writes a limit in one line counts all together.
    ask(&kit::app(RateLimitLayer::new("login", WINDOW, 9)), "/", &[]).await;
    assert!(log.lines().is_empty());
}

/// Where a subject has no key of its own, it has that of the layer.
#[tokio::test]
async fn no_subject_uses_the_key() {
    let quota = "max-count = 9, window = \"1h\"";
    let of_file = |key: &str| {
        let quotas = format!("{{ {quota}, {key} }}, {{ {quota}, key = \"method\" }}");
        of_toml(&format!("[rules.p]\nquotas = [{quotas}]"))
    };
    let all = of_file("key = \"everyone\"");
    let own = of_file("subject = \"own\"");
    let rules = all.rules().load();
    let keyed = Rule::clone(rules.get("p").expect("a rule")).with_key(Everyone);
    let of_rule = limits([keyed]);
    for (limits, has_key, expected) in [
        (&all, false, &[][..]),
        (&own, true, &[]),
        (&all, true, &[Kind::KeyOfJointRule]),
        (&of_rule, false, &[Kind::KeyOfJointRule]),
    ] {
        let layer = limits.layer("p");
        let app = kit::app(if has_key { layer.key(Everyone) } else { layer });
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
    let own = http::HeaderName::from_static("x-client");
    for (field, name) in [
        (Forwarding::XForwardedFor, "x-forwarded-for"),
        (Forwarding::Header(own), "x-client"),
    ] {
        let behind = ClientIp::behind_hops(2).field(field);
        let (limits, app) = of(roomy("login").with_key(behind));
        for value in ["1.2.3.4, 5.6.7.8", "9.9.9.9, 1.2.3.4, 5.6.7.8"] {
            ask(&app, "/login", &[(name, value)]).await;
        }
        assert_eq!(limits.warnings(), []);
        ask(&app, "/login", &[(name, "1.2.3.4")]).await;
        ask(&app, "/login", &[]).await;
        let warning = only(&limits);
        assert_eq!(warning.kind, Kind::FewerHops);
        assert_eq!(warning.name.as_deref(), Some(name));
        assert!(!warning.to_string().contains("1.2.3.4"));
    }
}

/// With one proxy more than the number says, its address is taken for that of all clients.
#[tokio::test]
async fn a_request_came_through_another_proxy() {
    let public = "203.0.113.9";
    for (hops, value, is_found) in [
        (1, "203.0.113.9, 10.0.0.7", true),
        (1, "198.51.100.1, 203.0.113.9, 172.16.0.1", true),
        (1, "203.0.113.9:4711, 192.168.1.1:80", true),
        (1, "203.0.113.9, 100.64.0.1", true),
        (1, "203.0.113.9, 169.254.1.1", true),
        (1, "203.0.113.9, unix:", true),
        (1, "2a00::9, fd00::7", true),
        (1, "2a00::9, [fe80::7]:80", true),
        (2, "203.0.113.9, 10.0.0.7, 10.0.0.8", true),
        (1, "10.0.0.7", false),
        (1, "203.0.113.9", false),
        (1, "10.0.0.9, 10.0.0.7", false),
        (1, "10.0.0.9, 203.0.113.9", false),
        (1, "198.51.100.1, 203.0.113.9", false),
        (1, "garbage, 10.0.0.7", false),
        (2, "203.0.113.9, 10.0.0.7", false),
        (0, "203.0.113.9, 10.0.0.7", false),
    ] {
        let (limits, app) = of(roomy("login").with_key(ClientIp::behind_hops(hops)));
        for _ in 0..3 {
            ask(&app, "/login", &[("x-forwarded-for", value)]).await;
        }
        let expected = if is_found { &[Kind::MoreHops][..] } else { &[] };
        assert_eq!(kinds(&limits), expected, "{hops} {value}");
        for warning in limits.warnings() {
            assert_eq!(warning.name.as_deref(), Some("x-forwarded-for"));
            let text = format!("{warning} {warning:?}");
            assert!(
                text.contains("behind_hops") && !text.contains(public),
                "{text}"
            );
            assert!(!text.contains("10.0.0"), "{text}");
        }
    }
}

/// A proxy that is trusted and names nobody, or by words, makes one of all its clients.
#[tokio::test]
async fn a_trusted_proxy_names_no_client() {
    let own = http::HeaderName::from_static("x-client");
    for (field, name, named, silent) in [
        (
            Forwarding::XForwardedFor,
            "x-forwarded-for",
            "203.0.113.9",
            "",
        ),
        (
            Forwarding::XForwardedFor,
            "x-forwarded-for",
            "9.9.9.9",
            "9.9.9.9, unknown",
        ),
        (
            Forwarding::Forwarded,
            "forwarded",
            "for=203.0.113.9",
            "for=_kzYNJaz1",
        ),
        (Forwarding::Header(own), "x-client", "203.0.113.9", "word"),
    ] {
        let key = ClientIp::behind([network("10.0.0.0/8")]).field(field);
        let (limits, app) = of(roomy("login").with_key(key));
        let named = [(name, named)];
        let silent = [(name, silent)];
        // Beyond those that are looked at.
        many(&app, "10.0.0.7", &named, 10_010).await;
        for _ in 0..2 {
            many(&app, "10.0.0.7", &silent, 99).await;
            many(&app, "192.0.2.1", &silent, 200).await;
            many(&app, "10.0.0.7", &named, 1).await;
        }
        assert_eq!(limits.warnings(), []);
        many(&app, "10.0.0.7", &silent, 100).await;
        let warning = only(&limits);
        assert_eq!(warning.kind, Kind::SilentProxy);
        assert_eq!(warning.name.as_deref(), Some(name));
        let text = format!("{warning} {warning:?}");
        for part in ["\"login\"", name, "have the proxy write", "health checks"] {
            assert!(text.contains(part), "{text}");
        }
        for secret in ["9.9.9", "10.0.0", "kzY", "unknown", "word"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[tokio::test]
async fn so_many_proxies_are_watched() {
    let key = ClientIp::behind([network("10.0.0.0/8")]);
    let (limits, app) = of(roomy("login").with_key(key));
    for peer in 0..64 {
        many(&app, &format!("10.0.1.{peer}"), &[], 99).await;
    }
    many(&app, "10.0.0.7", &[], 200).await;
    assert_eq!(limits.warnings(), []);
    many(&app, "10.0.1.5", &[("x-forwarded-for", "1.2.3.4")], 1).await;
    many(&app, "10.0.0.7", &[], 99).await;
    assert_eq!(limits.warnings(), []);
    many(&app, "10.0.0.7", &[], 1).await;
    assert_eq!(kinds(&limits), [Kind::SilentProxy]);
}

/// Without a request nothing is known of proxies.
#[tokio::test]
async fn a_lockout_shows_nothing_of_proxies() {
    let toml = "client-ip.hops = 1\n[rules.login]\nkey = \"client-ip\"\nmax-count = 9\n\
                window = \"1h\"\nlockout = { after = 3, hold = [\"1m\"], on = [\"401\"] }";
    assert_eq!(kinds(&of_toml(toml)), []);
}

async fn many(app: &Router, peer: &str, fields: &[(&str, &str)], times: usize) {
    for _ in 0..times {
        let response = call(app, from(peer, "/login", fields)).await;
        assert!(response.status().is_success(), "{:?}", response.status());
    }
}

fn network(text: &str) -> ipnet::IpNet {
    text.parse().expect("a network")
}

/// Of a service of its own, whose keys have its name.
fn service(url: &str) -> Resilient<tidegate::RedisStore> {
    let service = Resilient::redis(url, "shop").expect("an address");
    service.timeout(PATIENT)
}

#[tokio::test]
async fn the_prefix_is_everybodys() {
    let server = Server::start();
    let bare = store_on(&server).await;
    let own = bare.clone().prefix("shop:");
    let around = Resilient::new(bare.clone());
    assert_eq!(in_store(bare).await, [Kind::DefaultPrefix]);
    assert_eq!(in_store(around).await, [Kind::DefaultPrefix]);
    assert_eq!(in_store(own).await, []);
    assert_eq!(in_store(service(&server.url)).await, []);
}

#[tokio::test]
async fn redis_evicts() {
    for (policy, memory, expected) in [
        ("allkeys-lru", "100mb", &[Kind::RedisEvicts][..]),
        ("volatile-ttl", "100mb", &[Kind::RedisEvicts]),
        ("noeviction", "100mb", &[]),
        ("allkeys-lru", "0", &[]),
    ] {
        let server = Server::start_with(&["--maxmemory", memory, "--maxmemory-policy", policy]);
        let kinds = in_store(service(&server.url)).await;
        assert_eq!(kinds, expected, "{policy} {memory}");
    }
}

/// Its memory is full, and somebody lets it evict keys.
#[tokio::test]
async fn redis_evicts_by_now() {
    let server = Server::start();
    let store = store_on(&server).await.prefix("shop:");
    let limits = limits([roomy("login")]).key(Everyone).store(store.clone());
    let take = Take::new(roomy("login").into(), Key::default());
    let log = kit::log::Log::start();
    run(&server, "CONFIG SET maxmemory 1");
    for _ in 0..20 {
        let error = store.take(&take).await.expect_err("no memory");
        assert_eq!(error.kind(), StoreErrorKind::OutOfMemory);
    }
    assert_eq!(kinds(&limits), []);
    run(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    kit::eventually("it is told", async || {
        let _ = store.take(&take).await;
        kinds(&limits) == [Kind::RedisEvicts]
    })
    .await;
    let lines = log.lines();
    let told = lines.iter().filter(|line| line.contains("evicts keys"));
    assert_eq!(told.count(), 1, "{lines:#?}");
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
        assert_eq!(in_store(service(&url)).await, []);
    }
}

/// A service that does not await `ready` learns it from its warnings.
#[tokio::test]
async fn redis_decides_nothing() {
    const TEN: Duration = Duration::from_secs(10);
    let server = Server::start();
    let late = kit::proxy::Proxy::start(&server.url).await;
    // It decides in time, and says so too late.
    late.delay(Duration::ZERO, Duration::from_millis(150));
    for (url, expected) in [
        ("redis://127.0.0.1:1", &[Kind::NoDecision][..]),
        (&late.url, &[Kind::NoDecision]),
        (&server.url, &[]),
    ] {
        let log = Log::start();
        let store = Resilient::redis(url, "shop").expect("an address");
        let time = match expected.is_empty() {
            true => PATIENT,
            false => TEN / 100,
        };
        let store = store.processes(1).timeout(time);
        let limits = limits([roomy("login")]).key(Everyone).store(store);
        let app = app_of(&limits, &["login"]);
        for _ in 0..3 {
            ask(&app, "/login", &[]).await;
        }
        assert_eq!(limits.warnings(), []);
        tokio::time::pause();
        tokio::time::sleep(TEN).await;
        assert_eq!(kinds(&limits), expected, "{url}");
        ask(&app, "/login", &[]).await;
        tokio::time::sleep(TEN).await;
        assert_eq!(kinds(&limits), expected, "{url}");
        let told = log.lines();
        let told = told.iter().filter(|line| line.contains("decided nothing"));
        assert_eq!(told.count(), expected.len(), "{url}");
        tokio::time::resume();
    }
}

/// A fleet of so many other processes that have decided.
#[derive(Debug, Default)]
struct Others(Arc<AtomicU64>);

impl Fleet for Others {
    fn report(&self, report: &ProcessReport) -> StoreFuture<FleetState> {
        StoreFuture::ready(Ok(FleetState {
            secret: report.random,
            version: 0,
            deciding: self.0.load(Ordering::Relaxed) + u64::from(report.decides),
            keys: None,
        }))
    }

    fn reports(&self) -> StoreFuture<Vec<PeerReport>> {
        StoreFuture::ready(Ok(Vec::new()))
    }

    fn set_key(&self, _: &OperatorKey) -> StoreFuture<bool> {
        StoreFuture::ready(Ok(true))
    }
}

/// Two may run, by what was said: a deployment doubles them for a while, and a process that has
/// decided nothing is none.
#[tokio::test(start_paused = true)]
async fn more_processes_than_said() {
    let log = Log::start();
    let others = Arc::new(AtomicU64::new(2));
    let store = || Resilient::new(Stub::in_memory().with_fleet(Others(Arc::clone(&others))));
    let by = |store| limits([roomy("login")]).key(Everyone).store(store);
    let shared = by(store().fallback(Share::of_processes(2)));
    let limits = by(store().processes(2));
    let app = app_of(&limits, &["login"]);
    let _layer = shared.layer("login");
    limits.join_fleet();
    shared.join_fleet();
    sleep(20 * MINUTE).await;
    assert_eq!(limits.warnings(), []);
    for _ in 0..3 {
        ask(&app, "/login", &[]).await;
        sleep(9 * MINUTE).await;
        others.store(1, Ordering::Relaxed);
        sleep(2 * MINUTE).await;
        assert_eq!(limits.warnings(), []);
        others.store(4, Ordering::Relaxed);
    }
    sleep(10 * MINUTE + 2 * SECOND).await;
    let warning = only(&limits);
    assert_eq!(warning.kind, Kind::MoreProcesses);
    assert_eq!(warning.name.as_deref(), Some("5"));
    assert_eq!(shared.warnings(), [], "a share is no number of processes");
    others.store(5, Ordering::Relaxed);
    sleep(30 * MINUTE).await;
    let lines = log.lines();
    let told = lines
        .iter()
        .filter(|it| it.contains("5 processes have decided"));
    assert_eq!(told.count(), 1, "{lines:#?}");
    let said = |store: Resilient<Stub>| store.capabilities().processes;
    assert_eq!(said(store().processes(4)), Some(4));
    assert_eq!(said(store().processes(4).fallback(None)), None);
}

/// Those that have decided and were not silent since.
#[tokio::test]
async fn redis_counts_processes_that_decide() {
    let server = Server::start();
    let fleet = store_on(&server).await.fleet().expect("a fleet");
    let report = async |process: &str, decides| {
        let report = ProcessReport {
            process: process.into(),
            text: "{}".into(),
            known_version: 0,
            random: [7; 16],
            decides,
        };
        fleet.report(&report).await.expect("an answer").deciding
    };
    assert_eq!(report("page", false).await, 0);
    assert_eq!(report("one", true).await, 1);
    assert_eq!(report("other", true).await, 2);
    assert_eq!(report("one", true).await, 2);
    assert_eq!(report("page", false).await, 2);
    for gone in ["1", "+inf"] {
        kit::run(
            &server,
            &format!("ZADD {{CurrentLimiter:~fleet}}:deciding {gone} gone"),
        );
        assert_eq!(report("page", false).await, 2);
    }
    let expiry: i64 = kit::query(&server, "PTTL {CurrentLimiter:~fleet}:deciding");
    assert!(expiry > 0, "{expiry}");
}

#[tokio::test]
async fn a_memory_store_is_nearly_full() {
    let key = |head: &Parts| Ok(Key::from(head.uri.query().unwrap_or_default()));
    let rule = owned_rule("p", 5, WINDOW).with_key(key);
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
    let limits = limits([roomy("login"), roomy("signin"), roomy("search")]).key(Everyone);
    let app = app_of(&limits, &["login", "sign-in"]);
    let no_rule = only(&limits);
    assert_eq!(no_rule.kind, Kind::NoRule);
    assert_eq!(no_rule.path.as_deref(), Some("sign-in"));
    let wrong = limits.verify().expect_err("three paths").to_string();
    assert_eq!(
        wrong,
        "layers or checks without a rule: [\"sign-in\"]; rules without a layer or check: [\"search\", \"signin\"] \
         (before limits.check, limits.call or #[limited] has run: \
         limits.declare_checks([\"search\", \"signin\"]))"
    );
    sleep(60 * SECOND).await;
    assert_eq!(kinds(&limits), [Kind::NoRule], "no request has come");
    ask(&app, "/login", &[]).await;
    sleep(9 * SECOND).await;
    assert_eq!(kinds(&limits), [Kind::NoRule]);
    sleep(2 * SECOND).await;
    let warnings = limits.warnings();
    let paths = warnings
        .iter()
        .filter_map(|warning| warning.path.as_deref());
    assert!(paths.eq(["sign-in", "search", "signin"]));

    let _late = limits.layer("search");
    let left = [Kind::NoRule, Kind::UnusedRule];
    assert_eq!(kinds(&limits), left, "the rule has a layer now");
}

/// Shares are told of quotas of the calendar alone.
#[tokio::test(start_paused = true)]
async fn crossings_of_no_period() {
    use tidegate::rule::Period;

    let month = || [Policy::calendar(Period::MONTH, 9)];
    let by_value = move || Plan::of(month()).expect("valid");
    let watched = |rule: Rule| {
        limits([rule])
            .on_crossing([0.8], async |_| {})
            .key(Everyone)
    };
    let api = || per_minute("api", 9);
    let with_plan = api().with_plan("pro", Quotas::with_policies(month()).expect("valid"));
    let calendar = Rule::with_policies("api", month()).expect("valid");
    for (what, limits, expected) in [
        ("none is watched", limits([api()]).key(Everyone), &[][..]),
        ("no period", watched(api()), &[Kind::NoPeriod]),
        ("a period", watched(calendar.clone()), &[]),
        ("that of a plan", watched(with_plan.expect("valid")), &[]),
        (
            "a plan by value",
            watched(api()).plan_value("api", move |_| Some(by_value())),
            &[],
        ),
    ] {
        assert_eq!(kinds(&limits), expected, "{what}");
    }
    let by_layer = watched(api());
    let _layer = by_layer.layer("api").plan_value(|_| None);
    assert_eq!(kinds(&by_layer), [], "the plan of a layer");
    let by_call = watched(api());
    let call = by_call.check("api", "alice").plan_value(by_value());
    call.await.expect("there is room");
    assert_eq!(kinds(&by_call), [], "the plan of a call");

    let (log, limits) = (Log::start(), watched(api()));
    let app = app_of(&limits, &["api"]);
    ask(&app, "/api", &[]).await;
    sleep(11 * SECOND).await;
    ask(&app, "/api", &[]).await;
    ask(&app, "/api", &[]).await;
    let told = |line: &String| line.contains("on_crossing");
    assert_eq!(log.lines().into_iter().filter(told).count(), 1);
    limits.rules().replace(Rules::from([calendar]));
    assert_eq!(kinds(&limits), [], "the rule has a period now");
}

/// Code is told of lock-outs where a rule has one.
#[test]
fn lockouts_of_no_rule() {
    use tidegate::rule::Lockout;

    let api = per_minute("api", 9).with_key(PeerIp);
    let lockout = Lockout::after(3).hold([SECOND]).on(["401"]);
    let locks_out = api.clone().with_lockout(lockout).expect("it makes sense");
    assert_eq!(kinds(&limits([api.clone()])), []);
    let told = limits([api]).on_lockout(async |_| {});
    assert_eq!(kinds(&told), [Kind::NoLockout]);
    told.rules().replace(Rules::from([locks_out]));
    assert_eq!(kinds(&told), [], "the rule has one now");
}

#[test]
fn what_fits_is_verified() {
    let switched_off = "enabled = false\nmax-count = 1\nwindow = \"1s\"";
    let text = format!("[rules.a]\nmax-count = 1\nwindow = \"1s\"\n[rules.b]\n{switched_off}");
    let limits = of_toml(&text);
    assert!(limits.verify().is_err());
    let _layer = limits.layer("a");
    // A rule that is switched off needs no layer.
    limits.verify().expect("all fits");
}

#[tokio::test]
async fn a_log_is_large() {
    for (max, algorithm, expected) in [
        (10_000, Algorithm::SlidingLog, &[][..]),
        (10_001, Algorithm::SlidingLog, &[Kind::LargeLog]),
        (10_001, Algorithm::SlidingWindow, &[]),
        (10_001, Algorithm::Gcra, &[]),
    ] {
        let rule = owned_rule("p", max, WINDOW).with_key(Everyone);
        let (limits, app) = of(rule.with_algorithm(algorithm));
        ask(&app, "/p", &[]).await;
        assert_eq!(kinds(&limits), expected);
    }
}

/// A quota of the calendar is a few bytes, whatever its max.
#[tokio::test]
async fn a_budget_is_no_log() {
    let budget = || Policy::calendar(tidegate::rule::Period::MONTH, 1_000_000);
    let large = Policy::from(Quota::per_hour(10_001));
    for (policies, expected) in [
        (vec![budget()], &[][..]),
        (vec![budget(), Quota::per_hour(10_000).into()], &[]),
        (vec![budget(), large], &[Kind::LargeLog]),
    ] {
        let rule = Rule::with_policies("p", policies).expect("valid");
        let (limits, app) = of(rule.with_key(Everyone));
        ask(&app, "/p", &[]).await;
        assert_eq!(kinds(&limits), expected);
    }
}

/// What a handler settles does not reach a rule in shadow, so a dry run of a budget counts what was
/// reserved. It is known before the first request, and until the rule is corrected.
#[test]
fn a_dry_run_of_what_is_settled() {
    let of = |shadow: bool, settles: bool| {
        let of_both = format!("shadow = {shadow}\nsettles = {settles}");
        of_toml(&format!(
            "[rules.chat]\nmax-count = 1_000\nper = \"month\"\n{of_both}"
        ))
    };
    for (shadow, settles) in [(false, true), (true, false), (false, false)] {
        assert_eq!(of(shadow, settles).warnings(), []);
    }
    let limits = of(true, true);
    let warning = only(&limits);
    assert_eq!(warning.kind, Kind::SettlesInShadow);
    assert_eq!(warning.path.as_deref(), Some("chat"));
    assert!(
        warning.to_string().contains("count reservations"),
        "{warning}"
    );
    let text = "[rules.chat]\nmax-count = 1_000\nper = \"month\"\nsettles = true";
    limits
        .rules()
        .replace(Rules::from_toml(text).expect("valid"));
    assert_eq!(limits.warnings(), []);
    let all = Rules::from_toml(&format!("shadow = true\n{text}"));
    limits.rules().replace(all.expect("valid"));
    assert_eq!(kinds(&limits), [Kind::SettlesInShadow]);
}

/// A check sees no response. Declared, its path is in use from the start.
#[tokio::test]
async fn checks() {
    let limits = limits([refunding("p", 100, &["2xx"]), roomy("q")]);
    assert!(limits.verify().is_err());
    limits.declare_checks(["p", "q"]);
    limits.verify().expect("both are in use");
    limits.check("q", "alice").await.expect("room");
    assert_eq!(limits.warnings(), []);
    limits.check("p", "alice").await.expect("room");
    assert_eq!(kinds(&limits), [Kind::OutcomeOfCheck]);
    limits.declare_checks(["r"]);
    let wrong = limits.verify().expect_err("no rule");
    assert_eq!(wrong.paths_without_rule, ["r"]);
}

/// What chooses a plan by a request is not asked about a check: who calls it says the plan.
#[tokio::test]
async fn checks_without_the_plan_of_the_layers() {
    let plan = || Plan::of([Quota::per_minute(100)]).expect("valid");
    let of = |bind: fn(Limits) -> Limits| {
        let quotas = Quotas::new([Quota::per_minute(100)]).expect("valid");
        let named = per_minute("p", 1).with_plan("pro", quotas).expect("valid");
        bind(limits([named, roomy("q")]))
    };
    let by_value = |limits: Limits| limits.plan_value("p", |_| None);
    let by_name = |limits: Limits| limits.plan(|_| Some("pro"));
    for (bind, setting) in [(by_value as fn(_) -> _, "plan_value"), (by_name, "plan")] {
        let told = of(bind);
        let unsaid = told.check("p", "alice");
        told.check("p", "alice").plan("pro").await.expect("room");
        told.check("p", "bob").plan_value(None).await.expect("room");
        told.peek("p", "bob")
            .plan_value(plan())
            .await
            .expect("an answer");
        told.check("q", "alice").await.expect("room");
        told.peek("q", "alice").await.expect("an answer");
        assert_eq!(told.warnings(), []);
        let _ = unsaid.await;
        let warning = only(&told);
        assert_eq!(warning.kind, Kind::PlanOfCheck);
        assert_eq!(warning.path.as_deref(), Some("p"));
        let text = warning.to_string();
        assert!(text.contains(&format!(".{setting}(..)")), "{text}");

        let peeked = of(bind);
        peeked.peek("p", "alice").await.expect("an answer");
        assert_eq!(kinds(&peeked), [Kind::PlanOfCheck]);
    }
    let unbound = of(|limits| limits);
    unbound.check("p", "alice").await.expect("room");
    assert_eq!(unbound.warnings(), []);
}

/// The first hundred requests are all looked at, then one of 64, and none after ten thousand.
#[tokio::test]
async fn later_requests_are_free() {
    for (before, looked_at, then) in [(100, 28, 1), (10_000, 200, 0)] {
        let (limits, app) = of(roomy("login").with_key(PeerIp));
        for _ in 0..before {
            ask(&app, "/login", &[]).await;
        }
        for _ in 0..looked_at {
            ask(&app, "/login", FORWARDED).await;
        }
        assert_eq!(limits.warnings(), []);
        for _ in 0..then {
            ask(&app, "/login", FORWARDED).await;
            assert_eq!(kinds(&limits), [Kind::PeerIpBehindProxy]);
        }
    }
}

#[tokio::test]
async fn the_list_is_bounded() {
    let limits = limits([]);
    for at in 0..3_000 {
        let _layer = limits.layer(&format!("p{at}"));
    }
    assert_eq!(limits.warnings().len(), 100);
}

/// A router and one that is nested in it both have the layer: each request is charged twice.
#[tokio::test]
async fn a_request_is_charged_twice() {
    for store in &Stores::start().await.all {
        let log = kit::log::Log::start();
        let rules = ["login", "api"].map(|path| roomy(path).with_key(Header::new("x-user")));
        let limits = limits(rules).store(Arc::clone(store));
        let inner = |layer| Router::new().route("/", any(async || "1")).layer(layer);
        let ask = async |inner: Router, outer| {
            let app = Router::new().nest("/login", inner).layer(outer);
            for _ in 0..3 {
                super::ask(&app, "/login", "x-user: alice, x-other: bob").await;
            }
            let kinds = kinds(&limits).into_iter();
            kinds.filter(|it| *it == Kind::ChargedTwice).count()
        };
        let layer = |path| limits.layer(path);
        let of_other = layer("login").key(Header::new("x-other"));
        let elsewhere = layer("login").store(MemoryStore::new());
        for apart in [layer("api"), of_other, elsewhere] {
            assert_eq!(ask(inner(layer("login")), apart).await, 0);
        }
        assert_eq!(ask(inner(layer("login")), layer("login")).await, 1);
        let lines = log.lines();
        let told = lines
            .iter()
            .filter(|it| it.contains("is charged twice by the rule \"login\""));
        assert_eq!(told.count(), 1, "{lines:?}");
    }
}

/// A lock-out by the credential itself locks nobody out: each guess is a key of its own. It is told
/// when the rule is loaded, and no more when another file has mended it.
#[tokio::test]
async fn a_lockout_of_guesses() {
    let log = kit::log::Log::start();
    let file = |key: &str| {
        let lockout = "lockout = { after = 5, hold = ['1h'], on = ['401'] }";
        let client_ip = "client-ip = { hops = 1 }";
        let client_ip = if key.contains("client-ip") {
            client_ip
        } else {
            ""
        };
        let rule = format!("[rules.login]\nmax-count = 9\nwindow = '1m'\nkey = {key}\n{lockout}");
        format!("{client_ip}\n{rule}")
    };
    for (key, name) in [
        ("'bearer'", Some("bearer")),
        ("'header:Authorization'", Some("header:authorization")),
        (
            "'header:proxy-authorization'",
            Some("header:proxy-authorization"),
        ),
        ("['peer-ip', 'bearer']", Some("bearer")),
        ("'header:x-user | bearer | peer-ip'", Some("bearer")),
        (
            "['header:x-api-key | peer-ip', 'method']",
            Some("header:x-api-key"),
        ),
        ("'cookie:sid'", Some("cookie:sid")),
        ("['basic-user', 'cookie:sid']", Some("cookie:sid")),
        ("'host'", Some("host")),
        ("'method'", Some("method")),
        ("['basic-user', 'method']", Some("method")),
        ("'header:x-session'", Some("header:x-session")),
        ("'header:x-session | peer-ip'", Some("header:x-session")),
        ("'header:X-SID'", Some("header:x-sid")),
        ("'header:x-device-id'", Some("header:x-device-id")),
        ("'header:x-request-id'", Some("header:x-request-id")),
        ("'header:user-agent'", Some("header:user-agent")),
        ("'header:x-user | peer-ip'", Some("header:x-user")),
        ("'header:x-user | header:x-account'", Some("header:x-user")),
        ("['peer-ip', 'header:x-user | host']", Some("host")),
        ("'basic-user'", None),
        ("['peer-ip', 'basic-user']", None),
        ("['basic-user', 'client-ip']", None),
        ("'basic-user | peer-ip'", None),
        ("'peer-ip'", None),
        ("'client-ip/24'", None),
        ("'header:x-user'", None),
        ("'header:x-account'", None),
        ("'header:x-auth-request-user'", None),
        ("['header:x-tenant', 'header:x-user']", None),
    ] {
        let limits = of_toml(&file(key));
        let lines = log.lines();
        assert_eq!(lines.len(), usize::from(name.is_some()), "{key}");
        let text = format!("\"login\" locks out by {}", name.unwrap_or_default());
        assert!(lines.iter().all(|it| it.contains(&text)), "{lines:?}");
        let found = limits.warnings();
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.kind, it.name.as_deref()))
            .collect();
        let expected = name.map(|name| (Kind::LockoutOfGuesses, Some(name)));
        assert_eq!(found, Vec::from_iter(expected), "{key}");
    }
    let limits = of_toml(&file("'bearer'"));
    let replace = |key: &str| {
        let rules = Rules::from_toml(&file(key)).expect("valid");
        limits.rules().replace(rules);
    };
    assert_eq!(log.lines().len(), 1);
    replace("'bearer | peer-ip'");
    assert_eq!(log.lines().len(), 0, "it is known");
    replace("'basic-user'");
    assert_eq!(limits.warnings(), []);
    replace("'bearer'");
    assert_eq!(log.lines().len(), 1);
}

/// The same of keys from code, alone, joined, of a subject and of a layer.
#[tokio::test]
async fn a_lockout_of_guesses_in_code() {
    let lockout = || {
        let hold = [kit::HOUR];
        tidegate::rule::Lockout::after(3).hold(hold).on(["401"])
    };
    let rule = || kit::per_hour("login", 9);
    let locked = |rule: Rule| rule.with_lockout(lockout()).expect("it makes sense");
    let subject =
        |name: &str, key: Arc<dyn KeyExtractor>| Subject::new(name, key).limit(Quota::per_hour(9));
    let joint = |locked_out: &str| {
        let user = subject("user", Arc::new(Header::new("x-user")));
        let subjects = [user, subject("token", Arc::new((PeerIp, Bearer)))];
        let rule = Rule::joint("login", subjects).expect("valid");
        let rule = rule.with_lockout(lockout().subject(locked_out));
        rule.expect("it makes sense")
    };
    let found = Extension::new(|user: &PeerAddr| user.0.ip());
    let header = |head: &Parts| Ok(Key::default().with(&head.headers["x-user"]));
    for (limits, expected) in [
        (limits([locked(rule().with_key(Bearer))]), true),
        (limits([locked(rule().with_key((Bearer, PeerIp)))]), true),
        (limits([joint("token")]), true),
        (limits([joint("user")]), false),
        (limits([rule().with_key(Bearer)]), false),
        (limits([locked(rule())]).key(Bearer.or(PeerIp)), true),
        (limits([locked(rule())]).key(PeerIp), false),
        (limits([locked(rule())]).key(Cookie::new("sid")), true),
        (limits([locked(rule())]).key(Header::new("host")), true),
        (limits([locked(rule().with_key(Arc::new(Method)))]), true),
        (limits([locked(rule())]).key(BasicUser.or(PeerIp)), false),
        (limits([locked(rule())]).key(found.clone()), false),
        (limits([locked(rule())]).key(found.or(PeerIp)), false),
        (limits([locked(rule())]).key(header), false),
    ] {
        let log = kit::log::Log::start();
        let fields = [
            ("authorization", "Bearer x"),
            ("x-user", "alice"),
            ("cookie", "sid=1"),
            ("host", "acme.example"),
        ];
        for _ in 0..3 {
            ask(&app_of(&limits, &["login"]), "/login", &fields).await;
        }
        let is_told = kinds(&limits) == [Kind::LockoutOfGuesses];
        assert_eq!(is_told, expected, "{:?}", limits.warnings());
        assert!(log.lines().len() <= 1, "{:?}", log.lines());
    }
    let of_layer = limits([locked(rule().with_key(PeerIp))]);
    let app = kit::app(of_layer.layer("login").key(Bearer));
    ask(&app, "/", &[("authorization", "Bearer x")]).await;
    assert_eq!(kinds(&of_layer), [Kind::LockoutOfGuesses]);
}

/// Who fills the store, or waits for an outage, guesses where nothing is decided. A rule says so
/// when it is loaded, `FailOpen` at the first request, another callback when it first proceeds.
#[tokio::test]
async fn a_lockout_that_fails_open() {
    let of = |more: &str| {
        of_toml(&format!(
            "[rules.login]\nmax-count = 9\nwindow = '1m'\nkey = 'header:x-user'\n{more}"
        ))
    };
    let lockout = "lockout = { after = 5, hold = ['1h'], on = ['401'] }\n";
    let open = format!("{lockout}on-error = 'proceed'");
    let log = kit::log::Log::start();
    let of_rule = of(&open);
    assert_eq!(log.lines().len(), 1);
    let warning = only(&of_rule);
    assert_eq!(warning.kind, Kind::LockoutFailsOpen);
    assert_eq!(warning.name.as_deref(), Some("on-error = \"proceed\""));
    assert!(warning.to_string().contains("on-error = \"respond\""));
    let after_a_request = async |limits: Limits| {
        let fields = [("x-user", "alice")];
        call(
            &app_of(&limits, &["login"]),
            from("10.0.0.7", "/login", &fields),
        )
        .await;
        let warnings = limits.warnings().into_iter();
        let open = warnings.filter(|it| it.kind == Kind::LockoutFailsOpen);
        open.map(|it| it.name.unwrap_or_default().into_owned())
            .collect::<Vec<_>>()
    };
    let proceed = async |_: Failed| Recovery::Proceed;
    let refuse = async |_: Failed| StatusCode::BAD_GATEWAY;
    let here = MemoryStore::new;
    for (limits, expected) in [
        (of(&open).store(no_store()), &["on-error = \"proceed\""][..]),
        (of(lockout).store(here()).on_error(FailOpen), &["FailOpen"]),
        (
            of(lockout).store(no_store()).on_error(proceed),
            &["Recovery::Proceed"],
        ),
        (of(lockout).store(here()).on_error(proceed), &[]),
        (of(lockout).store(no_store()).on_error(refuse), &[]),
        (of(lockout).store(no_store()), &[]),
        (
            of(&format!("{lockout}on-error = 'fallback'")).store(here()),
            &[],
        ),
        (
            of("on-error = 'proceed'")
                .store(no_store())
                .on_error(FailOpen),
            &[],
        ),
    ] {
        log.lines();
        assert_eq!(after_a_request(limits).await, expected);
        let told = log.lines();
        let told = told
            .iter()
            .filter(|it| it.contains("guesses without a bound"));
        assert_eq!(
            told.count(),
            expected
                .iter()
                .filter(|it| !it.contains("on-error"))
                .count()
        );
    }
    let of_checks = of(lockout).store(no_store()).on_error(FailOpen);
    assert!(of_checks.check("login", "alice").await.is_err());
    assert_eq!(of_checks.warnings(), []);
    let mended = Rules::from_toml(&format!(
        "[rules.login]\nmax-count = 9\nwindow = '1m'\n{lockout}"
    ));
    of_rule.rules().replace(mended.expect("valid"));
    assert_eq!(of_rule.warnings(), []);
}

/// Whoever keeps the ends of requests back guesses as often as the quotas let in ten seconds.
#[test]
fn a_lockout_of_bursts() {
    for (quotas, expected) in [
        ("max-count = 50\nwindow = '1m'", None),
        ("max-count = 51\nwindow = '1m'", Some("51")),
        ("max-count = 6\nwindow = '1s'", Some("60")),
        ("max-count = 5\nwindow = '1s'", None),
        ("max-count = 51\nwindow = '1m'\nmax-concurrent = 4", None),
        (
            "max-count = 30\nwindow = '1m'\nalgorithm = 'fixed-window'",
            Some("60"),
        ),
        ("max-count = 60\nwindow = '1m'\npace = 'even'", None),
        (
            "max-count = 60\nwindow = '1m'\nburst = 50\nalgorithm = 'gcra'",
            Some("60"),
        ),
        ("max-count = 100\nwindow = '1m'\ncost = 2", None),
        (
            "quotas = [{ max-count = 99, window = '1s' }, { max-count = 50, window = '1m' }]",
            None,
        ),
        (
            "quotas = [{ max-count = 99, window = '1m' }, { max-count = 50, window = '1m', cost = 1 }]",
            None,
        ),
        (
            "quotas = [{ max-count = 99, window = '1m', subject = 'user' }, \
             { max-count = 9, window = '1m', key = 'everyone', subject = 'all' }, \
             { max-concurrent = 9, key = 'everyone' }]",
            Some("99"),
        ),
    ] {
        let subject = if quotas.contains("'all'") {
            ", subject = 'user'"
        } else {
            ""
        };
        let limits = of_toml(&format!(
            "[rules.login]\nkey = 'header:x-user'\n{quotas}\n\
             lockout = {{ after = 5, hold = ['1h'], on = ['401']{subject} }}"
        ));
        let warnings = limits.warnings();
        let found: Vec<_> = warnings
            .iter()
            .map(|it| (it.kind, it.name.as_deref()))
            .collect();
        let expected = expected.map(|it| (Kind::LockoutOfBursts, Some(it)));
        assert_eq!(found, Vec::from_iter(expected), "{quotas}");
        let mends = warnings
            .iter()
            .all(|it| it.to_string().contains("max-concurrent = 2"));
        assert!(mends, "{warnings:?}");
    }
}

/// Where clients choose the paths of checks, those that have no rule leave room for what else is
/// wrong, in the list and in the log.
#[tokio::test]
async fn unknown_paths_leave_room() {
    let log = kit::log::Log::start();
    let limits = limits([roomy("login").with_key(PeerIp)]);
    for tool in 0..2_000 {
        let admitted = limits.check(&format!("a-tool:{tool}"), "alice").await;
        admitted.expect("there is no rule");
    }
    ask(&app_of(&limits, &["login"]), "/login", FORWARDED).await;
    let kinds = kinds(&limits);
    let unknown = kinds.iter().filter(|it| **it == Kind::NoRule).count();
    assert_eq!((unknown, kinds.len()), (100, 101));
    assert!(kinds.contains(&Kind::PeerIpBehindProxy));
    assert_eq!(log.lines().len(), 101);
}

/// An extractor of one's own that panics when it is asked for warnings changes nothing.
#[tokio::test]
async fn a_panic_is_no_warning() {
    struct Panics;
    impl KeyExtractor for Panics {
        fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
            PeerIp.extract(head)
        }

        fn warning(&self, _: &http::HeaderMap) -> Option<Warning> {
            panic!("on purpose")
        }
    }
    let (limits, app) = of(roomy("login").with_key(Panics));
    ask(&app, "/login", &[]).await;
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
    let [no_rule, peer] = &lines[..] else {
        panic!("{lines:#?}");
    };
    assert!(
        no_rule.contains("there is no rule for \"other\""),
        "{no_rule}"
    );
    assert!(peer.contains("the key of \"login\" is PeerIp"), "{peer}");
}

/// A handler that mistypes a path would reserve and never give back. It may be mounted elsewhere.
#[tokio::test]
async fn charges_of_a_path_that_nobody_has() {
    let log = kit::log::Log::start();
    let limits = limits(["chat", "draw"].map(roomy));
    let _ = limits.layer("open");
    let charged = |path: &'static str| limits.call(path).key("alice");
    for _ in 0..2 {
        for path in ["chat", "draw", "open"] {
            charged(path)
                .run(async || {
                    let charges = Charges::current();
                    let settled = charges.of("chta").settle(5).await.expect("no error");
                    assert_eq!(settled.given_back, 0);
                    for other in ["chat", "draw", "open"] {
                        let _ = charges.of(other);
                    }
                })
                .await
                .expect("there is room");
        }
    }
    let listed = limits.warnings();
    let of_charges = listed.iter().find(|it| it.kind == Kind::NoCharges);
    let of_charges = of_charges.expect("a warning");
    assert_eq!(of_charges.path.as_deref(), Some("chta"));
    let lines = log.lines();
    let told = lines
        .iter()
        .filter(|it| it.contains("charges.of(\"chta\")"));
    assert_eq!(told.count(), 1, "{lines:?}");

    let many = charged("chat").run(async || {
        let charges = Charges::current();
        (0..2_000).for_each(|it| drop(charges.of(&format!("a-tool:{it}"))));
    });
    many.await.expect("there is room");
    let of_charges = limits.warnings().into_iter();
    let of_charges = of_charges.filter(|it| it.kind == Kind::NoCharges);
    assert_eq!(of_charges.count(), 100);
}
