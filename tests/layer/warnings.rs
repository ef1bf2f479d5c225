//! Mistakes in the set-up: each is listed once, with its path and remedy, and nothing of a request.

use kit::Redis as Server;
use tidegate::key::{BasicUser, Cookie, Extension, Forwarding, Method};
use tidegate::rule::{Lockout, Period};
use tidegate::store::{Fleet, FleetState, OperatorKey, PeerReport, ProcessReport};

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
    ask_from(app, "10.0.0.7", path, fields).await;
}

async fn ask_from(app: &Router, peer: &str, path: &str, fields: &[(&str, &str)]) {
    let response = call(app, from(peer, path, fields)).await;
    assert!(response.status().is_success(), "{:?}", response.status());
}

/// The kinds of the warnings after some requests to the path `login`.
async fn asked(limits: &Limits) -> String {
    let app = app_of(limits, &["login"]);
    for _ in 0..2 {
        ask(&app, "/login", &[]).await;
    }
    kinds(limits)
}

/// The same of limits in this store.
async fn in_store(store: impl Store) -> String {
    asked(&limits([roomy("login")]).key(Everyone).store(store)).await
}

/// The one warning is this one and has these words, and nothing of a request.
#[track_caller]
fn says(limits: &Limits, expected: &str, words: &[&str], case: &str) {
    assert_eq!(told(limits), expected, "{case}");
    let warning = &limits.warnings()[0];
    let text = format!("{warning} {warning:?}");
    for word in words {
        assert!(text.contains(word), "{case}: {text}");
    }
    for secret in ["203.0.113", "1.2.3.4", "9.9.9", "10.0.0", "secret", "kzY"] {
        assert!(!text.contains(secret), "{case}: {text}");
    }
}

/// How many proxies a key by address trusts (none: it is the peer); the field that they write; its
/// values of which nothing is told, and those of which this is told, with a remedy. Each value is
/// asked with three times; `-` is a request without the field.
const CLIENTS: &str = "
    | x-forwarded-for  | - | 203.0.113.9; secret | PeerIpBehindProxy | ClientIp::behind
    | forwarded        | - | 203.0.113.9; secret | PeerIpBehindProxy | ClientIp::behind
    | x-real-ip        | - | 203.0.113.9; secret | PeerIpBehindProxy | ClientIp::behind
    | cf-connecting-ip | - | 203.0.113.9; secret | PeerIpBehindProxy | ClientIp::behind
  2 | x-forwarded-for  | 1.2.3.4, 5.6.7.8; 9.9.9.9, 1.2.3.4, 5.6.7.8 | 1.2.3.4; - | WrongHops | correct the number
  2 | x-client         | 1.2.3.4, 5.6.7.8; 9.9.9.9, 1.2.3.4, 5.6.7.8 | 1.2.3.4; - | WrongHops | correct the number
  1 | x-forwarded-for  | | 203.0.113.9, 10.0.0.7                | WrongHops | larger by one
  1 | x-forwarded-for  | | 198.51.100.1, 203.0.113.9, 172.16.0.1 | WrongHops | larger by one
  1 | x-forwarded-for  | | 203.0.113.9:4711, 192.168.1.1:80     | WrongHops | larger by one
  1 | x-forwarded-for  | | 203.0.113.9, 100.64.0.1              | WrongHops | larger by one
  1 | x-forwarded-for  | | 203.0.113.9, 169.254.1.1             | WrongHops | larger by one
  1 | x-forwarded-for  | | 203.0.113.9, unix:                   | WrongHops | larger by one
  1 | x-forwarded-for  | | 2a00::9, fd00::7                     | WrongHops | larger by one
  1 | x-forwarded-for  | | 2a00::9, [fe80::7]:80                | WrongHops | larger by one
  2 | x-forwarded-for  | | 203.0.113.9, 10.0.0.7, 10.0.0.8      | WrongHops | larger by one
  1 | x-forwarded-for  | 10.0.0.7                  | | |
  1 | x-forwarded-for  | 203.0.113.9               | | |
  1 | x-forwarded-for  | 10.0.0.9, 10.0.0.7        | | |
  1 | x-forwarded-for  | 10.0.0.9, 203.0.113.9     | | |
  1 | x-forwarded-for  | 198.51.100.1, 203.0.113.9 | | |
  1 | x-forwarded-for  | garbage, 10.0.0.7         | | |
  2 | x-forwarded-for  | 203.0.113.9, 10.0.0.7     | | |
  0 | x-forwarded-for  | 203.0.113.9, 10.0.0.7     | | |";

/// The peer may be a proxy. A request may come around one, or through one more than the number
/// says, whose address is then taken for that of all clients.
#[tokio::test]
async fn clients_are_known_by_a_wrong_address() {
    for row @ [hops, field, quiet, loud, kind, remedy] in table(CLIENTS) {
        let case = format!("{row:?}");
        let by = match field {
            "x-forwarded-for" => Forwarding::XForwardedFor,
            own => Forwarding::Header(own.parse().expect("a name")),
        };
        let (limits, app) = of(match hops.parse() {
            Ok(hops) => roomy("login").with_key(ClientIp::behind_hops(hops).field(by)),
            Err(_) => roomy("login").with_key(PeerIp),
        });
        for values in [quiet, loud] {
            assert_eq!(limits.warnings(), [], "{case}");
            for value in values.split("; ").filter(|it| !it.is_empty()) {
                let fields = [(field, value)];
                let sent = usize::from(value != "-");
                many(&app, "10.0.0.7", &fields[..sent], 3).await;
            }
        }
        match kind {
            "" => assert_eq!(limits.warnings(), [], "{case}"),
            _ => says(&limits, &format!("{kind} login {field}"), &[remedy], &case),
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
        assert_eq!(kinds(&limits), "PeerIpBehindProxy");
    }
    let of_layer = limits([roomy("login")]);
    let app = kit::app(of_layer.layer("login").key(PeerIp));
    ask(&app, "/", FORWARDED).await;
    assert_eq!(kinds(&of_layer), "PeerIpBehindProxy");
}

/// The key of each subject is looked at, and not that which no subject has.
#[tokio::test]
async fn the_peer_is_a_subject() {
    let everyone = |name| Subject::new(name, Everyone).limit(Quota::per_hour(9));
    let address = Subject::new("address", PeerIp).limit(Quota::per_hour(9));
    for (other, expected) in [(address, "PeerIpBehindProxy"), (everyone("all"), "")] {
        let rule = Rule::joint("login", [everyone("user"), other]).expect("valid");
        let limits = limits([rule]).key(PeerIp);
        ask(&app_of(&limits, &["login"]), "/login", FORWARDED).await;
        assert_eq!(kinds(&limits), expected);
    }
}

/// Rules of a file with settings of their own.
fn of_rule(path: &str, settings: &str) -> Limits {
    of_toml(&format!("[rules.{path}]\n{settings}"))
}

/// A rule whose key nobody has said counts all clients together, which its layer's first request
/// shows.
#[tokio::test]
async fn nobody_has_said_a_key() {
    let log = Log::start();
    let rule = || per_hour("login", 9);
    let quota = "max-count = 9, window = '1h'";
    let of_file = |key: &str| of_rule("login", &format!("max-count = 9\nwindow = '1h'\n{key}"));
    let joint = |key: &str| {
        let quotas = format!("quotas = [{{ {quota}, key = 'method' }}, {{ {quota}{key} }}]");
        of_rule("login", &quotas)
    };
    for (case, limits, expected) in [
        ("none", limits([rule()]), "NoKey"),
        ("of the rule", limits([rule().with_key(Everyone)]), ""),
        ("of all", limits([rule()]).key(PeerIp), ""),
        ("none in the file", of_file(""), "NoKey"),
        ("of the file", of_file("key = 'everyone'"), ""),
        ("none of a subject", joint(""), "NoKey"),
        ("of each subject", joint(", key = 'everyone'"), ""),
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
    let checked = of_layer.check("login", Key::default()).await;
    checked.expect("it says its key");
    assert_eq!(of_layer.warnings(), []);
    // A rule may lose its key while requests run.
    let limits = of_file("key = 'everyone'");
    let app = app_of(&limits, &["login"]);
    limits.rules().replace([rule()].into());
    ask(&app, "/login", &[]).await;
    assert_eq!(kinds(&limits), "NoKey");
    assert_eq!(log.count("nothing says whom the rule \"login\" counts"), 4);
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
        of_rule("p", &format!("quotas = [{quotas}]"))
    };
    let all = of_file("key = \"everyone\"");
    let own = of_file("subject = \"own\"");
    let keyed = all.rules().load().get("p").map(|it| Rule::clone(it));
    let of_rule = limits([keyed.expect("a rule").with_key(Everyone)]);
    for (limits, has_key, expected) in [
        (&all, false, ""),
        (&own, true, ""),
        (&all, true, "KeyOfJointRule"),
        (&of_rule, false, "KeyOfJointRule"),
    ] {
        let layer = limits.layer("p");
        let app = kit::app(if has_key { layer.key(Everyone) } else { layer });
        for _ in 0..3 {
            ask(&app, "/", &[]).await;
        }
        assert_eq!(kinds(limits), expected);
    }
    says(&of_rule, "KeyOfJointRule p -", &["\"p\""], "");
}

/// A field that a trusted proxy writes; a value that names a client, and one that names nobody, or
/// by words.
const SILENT: &str = "
    x-forwarded-for | 203.0.113.9     |
    x-forwarded-for | 9.9.9.9         | 9.9.9.9, unknown
    forwarded       | for=203.0.113.9 | for=_kzYNJaz1
    x-client        | 203.0.113.9     | word";

/// A proxy that is trusted and names nobody makes one of all its clients. So many are watched.
#[tokio::test]
async fn a_trusted_proxy_names_no_client() {
    for [name, named, silent] in table(SILENT) {
        let field = match name {
            "x-forwarded-for" => Forwarding::XForwardedFor,
            "forwarded" => Forwarding::Forwarded,
            own => Forwarding::Header(own.parse().expect("a name")),
        };
        let (limits, app) = of(behind_ten(|key| key.field(field)));
        let [named, silent] = [[(name, named)], [(name, silent)]];
        // Beyond those that are looked at.
        many(&app, "10.0.0.7", &named, 10_010).await;
        for _ in 0..2 {
            many(&app, "10.0.0.7", &silent, 99).await;
            many(&app, "192.0.2.1", &silent, 200).await;
            many(&app, "10.0.0.7", &named, 1).await;
        }
        assert_eq!(limits.warnings(), []);
        many(&app, "10.0.0.7", &silent, 100).await;
        let parts = ["\"login\"", name, "have the proxy write", "health checks"];
        says(&limits, &format!("SilentProxy login {name}"), &parts, name);
        let text = limits.warnings()[0].to_string();
        let is_kept = !text.contains("unknown") && !text.contains("word");
        assert!(is_kept, "{text}");
    }
    let (limits, app) = of(behind_ten(|key| key));
    for peer in 0..64 {
        many(&app, &format!("10.0.1.{peer}"), &[], 99).await;
    }
    many(&app, "10.0.0.7", &[], 200).await;
    assert_eq!(limits.warnings(), []);
    many(&app, "10.0.1.5", &[("x-forwarded-for", "1.2.3.4")], 1).await;
    many(&app, "10.0.0.7", &[], 99).await;
    assert_eq!(limits.warnings(), []);
    many(&app, "10.0.0.7", &[], 1).await;
    assert_eq!(kinds(&limits), "SilentProxy");
}

/// Networks of proxies, and which of them is too wide.
const TRUSTED: &str = "
    10.0.0.0/8 fc00::/7 2001:db8::/32 2002::/16 |
    ::ffff:10.0.0.0/104 64:ff9b::10.0.0.0/104   |
    10.0.0.0/8 0.0.0.0/0                        | 0.0.0.0/0
    0.0.0.0/1 128.0.0.0/1                       | 0.0.0.0/1
    10.0.0.0/7                                  | 10.0.0.0/7
    fd00::/8 ::/0                               | ::/0
    ::/1 8000::/1                               | ::/1
    fc00::/6                                    | fc00::/6
    ::ffff:0:0/96                               | ::ffff:0:0/96
    ::ffff:10.0.0.0/103                         | ::ffff:10.0.0.0/103
    64:ff9b::/96                                | 64:ff9b::/96
    64:ff9b::10.0.0.0/103                       | 64:ff9b::10.0.0.0/103
    64:ff9b::128.0.0.0/97                       | 64:ff9b::128.0.0.0/97
    64:ff00::/24                                | 64:ff00::/24";

/// Clients in a trusted network choose their address: it is an error of the file, and in code of
/// `ready` and `verify`, wherever the key is, and one line of the log.
#[tokio::test]
async fn a_trusted_network_contains_clients() {
    let remedy = "trusts a network wider than /8 (IPv6: /7), so clients choose their address; \
                  expected your proxies' alone, or hops if the ingress writes the field anew";
    for [networks, wide] in table(TRUSTED) {
        let networks: Vec<_> = networks.split(' ').collect();
        let file = format!("[client-ip]\n\ntrusted = {networks:?}\n[rules]");
        let read = Limits::from_toml(&file).map_err(|it| it.to_string());
        let expected = format!("line 3: client-ip.trusted: {remedy}");
        match wide {
            "" => assert!(read.is_ok(), "{networks:?}"),
            _ => assert_eq!(read.expect_err(wide), expected, "{networks:?}"),
        }
        let exempt = format!("[exempt]\nnetworks = {networks:?}\n[rules]");
        let _ = Limits::from_toml(&exempt).expect("these are no proxies");

        let networks = networks.iter().map(|it| it.parse().expect("a network"));
        let key = ClientIp::behind(networks);
        let joint = [
            Subject::new("all", Everyone).limit(Quota::per_hour(99)),
            Subject::new("user", key.clone()).limit(Quota::per_hour(99)),
        ];
        let lockout = Lockout::after(3).hold([HOUR]).on(["401"]);
        let of_rule = roomy("login").with_key(key.clone());
        let none = || limits([roomy("login")]);
        for (case, limits, of_layer) in [
            ("rule", limits([of_rule.clone()]), None),
            (
                "lock-out",
                limits([of_rule.with_lockout(lockout).expect("valid")]),
                None,
            ),
            (
                "subject",
                limits([Rule::joint("login", joint).expect("valid")]),
                None,
            ),
            ("limits", none().key(key.clone()), None),
            ("layer", none(), Some(key.clone())),
        ] {
            let (case, log) = (format!("{case}: {wide}"), Log::start());
            let layer = limits.layer("login");
            let layer = match of_layer {
                Some(key) => layer.key(Bearer.or(key)),
                None => layer,
            };
            let (ready, verified) = (limits.ready(SECOND).await, limits.verify());
            assert_eq!(log.lines().len(), 0, "{case}");
            let app = Router::new().route("/login", any(kit::http::handler).layer(layer));
            many(&app, "10.0.0.7", FORWARDED, 3).await;
            let errors = log.lines().into_iter().filter(|it| it.contains("ERROR"));
            if wide.is_empty() {
                assert!(
                    ready.is_ok() && verified.is_ok() && errors.count() == 0,
                    "{case}"
                );
                continue;
            }
            let ready = ready.expect_err(&case);
            assert_eq!(ready.kind(), StoreErrorKind::Configuration);
            assert_eq!(ready.to_string(), format!("[\"login\"] {remedy}"), "{case}");
            let verified = verified.expect_err(&case);
            assert_eq!(verified.paths_with_wide_trust, ["login"], "{case}");
            assert_eq!(
                verified.to_string(),
                format!("{remedy}: [\"login\"]"),
                "{case}"
            );
            let lines: Vec<_> = errors.collect();
            assert!(
                lines.len() == 1 && lines[0].contains(remedy),
                "{case}: {lines:?}"
            );
            assert!(kinds(&limits).contains("WideTrust"), "{case}");
        }
    }
}

/// Without a request nothing is known of proxies.
#[tokio::test]
async fn a_lockout_shows_nothing_of_proxies() {
    let toml = "client-ip.hops = 1\n[rules.login]\nkey = \"client-ip\"\nmax-count = 9\n\
                window = \"1h\"\nlockout = { after = 3, hold = [\"1m\"], on = [\"401\"] }";
    assert_eq!(kinds(&of_toml(toml)), "");
}

/// A rule whose clients are behind a network of proxies.
fn behind_ten(set: impl FnOnce(ClientIp) -> ClientIp) -> Rule {
    let network = "10.0.0.0/8".parse().expect("a network");
    roomy("login").with_key(set(ClientIp::behind([network])))
}

async fn many(app: &Router, peer: &str, fields: &[(&str, &str)], times: usize) {
    for _ in 0..times {
        ask_from(app, peer, "/login", fields).await;
    }
}

/// Of a service of its own, whose keys have its name.
fn service(url: &str) -> Resilient<RedisStore> {
    let service = Resilient::redis(url, "shop").expect("an address");
    service.timeout(PATIENT)
}

#[tokio::test]
async fn the_prefix_is_everybodys() {
    let server = Server::start();
    let bare = store_on(&server).await;
    let own = bare.clone().prefix("shop:");
    let around = Resilient::new(bare.clone());
    assert_eq!(in_store(bare).await, "DefaultPrefix");
    assert_eq!(in_store(around).await, "DefaultPrefix");
    assert_eq!(in_store(own).await, "");
    assert_eq!(in_store(service(&server.url)).await, "");
}

/// A user who may not ask is no mistake.
#[tokio::test]
async fn redis_evicts() {
    for (policy, memory, rights, expected) in [
        ("allkeys-lru", "100mb", "+@all", "RedisEvicts"),
        ("volatile-ttl", "100mb", "+@all", "RedisEvicts"),
        ("noeviction", "100mb", "+@all", ""),
        ("allkeys-lru", "0", "+@all", ""),
        ("allkeys-lru", "100mb", "+@all -info", ""),
        ("allkeys-lru", "100mb", "+@all -info -time +time", ""),
    ] {
        let server = Server::start_with(&["--maxmemory", memory, "--maxmemory-policy", policy]);
        kit::run(&server, &format!("ACL SETUSER app on >pw ~* &* {rights}"));
        let url = server.url.replace("redis://", "redis://app:pw@");
        let kinds = in_store(service(&url)).await;
        assert_eq!(kinds, expected, "{policy} {memory} {rights}");
    }
}

/// Its memory is full, and somebody lets it evict keys.
#[tokio::test]
async fn redis_evicts_by_now() {
    let server = Server::start();
    let store = store_on(&server).await.prefix("shop:");
    let limits = limits([roomy("login")]).key(Everyone).store(store.clone());
    let take = Take::new(roomy("login").into(), Key::default());
    let log = Log::start();
    run(&server, "CONFIG SET maxmemory 1");
    for _ in 0..20 {
        let error = store.take(&take).await.expect_err("no memory");
        assert_eq!(error.kind(), StoreErrorKind::OutOfMemory);
    }
    assert_eq!(kinds(&limits), "");
    run(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    kit::eventually("it is told", async || {
        let _ = store.take(&take).await;
        kinds(&limits) == "RedisEvicts"
    })
    .await;
    assert_eq!(log.count("evicts keys"), 1);
}

/// A service that does not await `ready` learns it from its warnings.
#[tokio::test]
async fn redis_decides_nothing() {
    const TEN: Duration = Duration::from_secs(10);
    let server = Server::start();
    let late = kit::proxy::Proxy::start(&server.url).await;
    // It decides in time, and says so too late.
    late.delay(Duration::ZERO, Duration::from_millis(150));
    for (url, time, expected) in [
        ("redis://127.0.0.1:1", TEN / 100, "NoDecision"),
        (&late.url, TEN / 100, "NoDecision"),
        (&server.url, PATIENT, ""),
    ] {
        let log = Log::start();
        let store = Resilient::redis(url, "shop").expect("an address");
        let store = store.processes(1).timeout(time);
        let limits = limits([roomy("login")]).key(Everyone).store(store);
        let app = app_of(&limits, &["login"]);
        for _ in 0..3 {
            ask(&app, "/login", &[]).await;
        }
        assert_eq!(limits.warnings(), []);
        tokio::time::pause();
        sleep(TEN).await;
        assert_eq!(kinds(&limits), expected, "{url}");
        ask(&app, "/login", &[]).await;
        sleep(TEN).await;
        assert_eq!(kinds(&limits), expected, "{url}");
        let told = log.count("decided nothing");
        assert_eq!(told, usize::from(!expected.is_empty()), "{url}");
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

    fn set_key(&self, one: &OperatorKey) -> StoreFuture<Option<OperatorKey>> {
        StoreFuture::ready(Ok(Some(one.clone())))
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
    assert_eq!(told(&limits), "MoreProcesses - 5");
    assert_eq!(shared.warnings(), [], "a share is no number of processes");
    others.store(5, Ordering::Relaxed);
    sleep(30 * MINUTE).await;
    assert_eq!(log.count("5 processes have decided"), 1);
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
        let command = format!("ZADD {{CurrentLimiter:~fleet}}:deciding {gone} gone");
        kit::run(&server, &command);
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
    for at in 0..9 {
        assert_eq!(limits.warnings(), []);
        ask(&app, &format!("/p?{at}"), &[]).await;
    }
    assert_eq!(kinds(&limits), "MemoryNearlyFull");
}

/// Rules are made, layers are made, the first request comes: ten seconds later somebody is told.
#[tokio::test(start_paused = true)]
async fn rules_without_layers_and_layers_without_rules() {
    let limits = limits([roomy("login"), roomy("signin"), roomy("search")]).key(Everyone);
    let app = app_of(&limits, &["login", "sign-in"]);
    assert_eq!(told(&limits), "NoRule sign-in -");
    let wrong = limits.verify().expect_err("three paths").to_string();
    let expected = "layers or checks without a rule: [\"sign-in\"]; \
         rules without a layer or check: [\"search\", \"signin\"] \
         (before limits.check, limits.call or #[limited] has run: \
         limits.declare_checks([\"search\", \"signin\"]))";
    assert_eq!(wrong, expected);
    sleep(60 * SECOND).await;
    assert_eq!(kinds(&limits), "NoRule", "no request has come");
    ask(&app, "/login", &[]).await;
    sleep(9 * SECOND).await;
    assert_eq!(kinds(&limits), "NoRule");
    sleep(2 * SECOND).await;
    let left = "NoRule sign-in -; UnusedRule search -; UnusedRule signin -";
    assert_eq!(told(&limits), left);

    let _late = limits.layer("search");
    let expected = "NoRule UnusedRule";
    assert_eq!(kinds(&limits), expected, "the rule has a layer now");
}

/// Shares are told of quotas of the calendar alone, and lock-outs of rules that have one.
#[tokio::test(start_paused = true)]
async fn what_nobody_is_told_of() {
    let month = || [Policy::calendar(Period::MONTH, 9)];
    let by_value = move || Plan::of(month()).expect("valid");
    let watched = |rule: Rule| {
        let limits = limits([rule]).on_crossing([0.8], async |_| {});
        limits.key(Everyone)
    };
    let api = || per_minute("api", 9);
    let with_plan = api().with_plan("pro", Quotas::with_policies(month()).expect("valid"));
    let calendar = Rule::with_policies("api", month()).expect("valid");
    let valued = watched(api()).plan_value("api", move |_| Some(by_value()));
    for (what, limits, expected) in [
        ("none is watched", limits([api()]).key(Everyone), ""),
        ("no period", watched(api()), "IdleCallback - on_crossing"),
        ("a period", watched(calendar.clone()), ""),
        ("that of a plan", watched(with_plan.expect("valid")), ""),
        ("a plan by value", valued, ""),
    ] {
        assert_eq!(told(&limits), expected, "{what}");
    }
    let by_layer = watched(api());
    let _layer = by_layer.layer("api").plan_value(|_| None);
    assert_eq!(kinds(&by_layer), "", "the plan of a layer");
    let by_call = watched(api());
    let call = by_call.check("api", "alice").plan_value(by_value());
    call.await.expect("there is room");
    assert_eq!(kinds(&by_call), "", "the plan of a call");

    let (log, watched) = (Log::start(), watched(api()));
    let app = app_of(&watched, &["api"]);
    ask(&app, "/api", &[]).await;
    sleep(11 * SECOND).await;
    ask(&app, "/api", &[]).await;
    ask(&app, "/api", &[]).await;
    assert_eq!(log.count("on_crossing"), 1);
    watched.rules().replace(Rules::from([calendar]));
    assert_eq!(kinds(&watched), "", "the rule has a period now");

    // Code is told of lock-outs where a rule has one.
    let api = per_minute("api", 9).with_key(PeerIp);
    let lockout = Lockout::after(3).hold([SECOND]).on(["401"]);
    let locks_out = api.clone().with_lockout(lockout).expect("it makes sense");
    assert_eq!(kinds(&limits([api.clone()])), "");
    let idle = limits([api]).on_lockout(async |_| {});
    assert_eq!(told(&idle), "IdleCallback - on_lockout");
    let both = idle.clone().on_crossing([0.8], async |_| {});
    assert_eq!(
        told(&both),
        "IdleCallback - on_crossing; IdleCallback - on_lockout"
    );
    for warning in both.warnings() {
        let setter = warning.name.as_deref().expect("it is named");
        let text = format!("Limits::{setter} is never called");
        assert!(warning.to_string().starts_with(&text), "{warning}");
    }
    idle.rules().replace(Rules::from([locks_out]));
    assert_eq!(told(&idle), "", "the rule has one now");
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

/// A quota of the calendar is a few bytes, whatever its max.
#[tokio::test]
async fn a_log_is_large() {
    use Algorithm::{Gcra, SlidingLog, SlidingWindow};

    let budget = Policy::calendar(Period::MONTH, 1_000_000);
    let of_minute = |max| vec![Policy::from(quota(max, WINDOW))];
    let both = |max| [of_minute(max), vec![budget.clone()]].concat();
    for (algorithm, policies, expected) in [
        (SlidingLog, of_minute(10_000), ""),
        (SlidingLog, of_minute(10_001), "LargeLog"),
        (SlidingWindow, of_minute(10_001), ""),
        (Gcra, of_minute(10_001), ""),
        (SlidingLog, vec![budget.clone()], ""),
        (SlidingLog, both(10_000), ""),
        (SlidingLog, both(10_001), "LargeLog"),
    ] {
        let case = format!("{algorithm:?} {policies:?}");
        let rule = Rule::with_policies("login", policies).expect("valid");
        let rule = rule.with_key(Everyone).with_algorithm(algorithm);
        assert_eq!(asked(&limits([rule])).await, expected, "{case}");
    }
}

/// What a handler settles does not reach a rule in shadow, so a dry run of a budget counts what was
/// reserved. It is known before the first request, and until the rule is corrected.
#[test]
fn a_dry_run_of_what_is_settled() {
    let month = "[rules.chat]\nmax-count = 1_000\nper = \"month\"\n";
    let of = |shadow: bool, settles: bool| {
        of_toml(&format!("{month}shadow = {shadow}\nsettles = {settles}"))
    };
    for (shadow, settles) in [(false, true), (true, false), (false, false)] {
        assert_eq!(of(shadow, settles).warnings(), []);
    }
    let (limits, told) = (of(true, true), "SettlesInShadow chat settles");
    says(&limits, told, &["count reservations"], "");
    for (of_all, expected) in [("", ""), ("shadow = true\n", "SettlesInShadow")] {
        let rules = Rules::from_toml(&format!("{of_all}{month}settles = true"));
        limits.rules().replace(rules.expect("valid"));
        assert_eq!(kinds(&limits), expected);
    }
}

/// A status in `hold-on` that holds under each outgoing rule.
#[test]
fn what_holds_anyway() {
    for (hold_on, named) in [
        ("529", None),
        ("4xx", None),
        ("grpc-8", None),
        ("429", Some("429")),
        ("503", Some("503")),
        ("529\", \"429", Some("429")),
    ] {
        let limits = of_toml(&format!(
            "[rules.ai]\nmax-count = 1\nwindow = \"1s\"\noutgoing = true\nhold-on = [\"{hold_on}\"]"
        ));
        let expected = named.map(|it| format!("IdleHold ai {it}"));
        assert_eq!(told(&limits), expected.unwrap_or_default(), "{hold_on}");
    }
}

/// How the charges of a rule that settles end, a thousand times; whether that is told. Later the
/// first one that code settles ends it.
const SETTLED: [(&str, &str, bool); 7] = [
    ("", "drop", true),
    ("", "settle", false),
    ("", "refund", false),
    ("", "meter", false),
    ("settle-dropped = 1", "leave", true),
    ("refund-on = [\"error\"]", "error", true),
    ("shadow = true", "drop", false),
];

/// A setting that waits for code which never comes.
#[tokio::test]
async fn settlements_that_never_come() {
    for (settings, how, is_told) in SETTLED {
        let log = Log::start();
        let limits = of_toml(&format!(
            "[rules.ai]\nmax-count = 900_000\nwindow = \"1h\"\nsettles = true\n{settings}\n\
             algorithm = \"gcra\""
        ));
        let ask = async |how: &str| {
            let call = limits.call("ai").key("alice").cost(2);
            if how == "leave" {
                let called = call.run(std::future::pending::<()>);
                return assert!(futures_util::FutureExt::now_or_never(called).is_none());
            }
            let called = call.try_run(async || {
                let charges = Charges::current();
                match how {
                    "settle" => drop(charges.settle(1).await),
                    "refund" => drop(charges.refund().await),
                    "meter" => charges.meter().add(0),
                    "error" => return Err("no answer"),
                    _ => {}
                }
                Ok(())
            });
            drop(called.await);
        };
        ask(if how == "meter" { how } else { "drop" }).await;
        for _ in 0..998 {
            ask(how).await;
        }
        let of_settling = || {
            let mut listed = limits.warnings();
            listed.retain(|it| it.kind == WarningKind::NeverSeen);
            listed
        };
        assert_eq!(of_settling(), [], "{how}: 999");
        for _ in 0..101 {
            ask(how).await;
        }
        let told = of_settling()
            .iter()
            .map(|it| it.to_string())
            .collect::<String>();
        assert_eq!(
            told.contains("charges.of(\"ai\").settle(..)"),
            is_told,
            "{how}: {told}"
        );
        let lines = || log.count("a thousand of its charges have ended");
        assert_eq!(lines(), usize::from(is_told), "{how}");

        ask("settle").await;
        ask("drop").await;
        assert_eq!((of_settling(), lines()), (vec![], 0), "{how}, and settled");
    }
}

/// Who is logged in counts alone, but the layer that knows it is inside, or nobody ever logs in.
#[tokio::test]
async fn an_extension_that_never_comes() {
    #[derive(Clone)]
    struct User(u64);
    for (at, is_told) in [(None, true), (Some(0), false), (Some(998), false)] {
        let log = Log::start();
        let key = Extension::<User>::new(|user| user.0).or(PeerIp);
        let (limits, app) = of(roomy("login").with_key(key));
        let ask = async |has_user: bool| {
            let mut request = from("10.0.0.7", "/login", &[("accept", "*/*")]);
            if has_user {
                request.extensions_mut().insert(User(7));
            }
            assert_eq!(call(&app, request).await.status(), 200);
        };
        for number in 0..999 {
            ask(at == Some(number)).await;
        }
        assert_eq!(limits.warnings(), [], "{at:?}: 999");
        for _ in 0..101 {
            ask(false).await;
        }
        let lines = || log.count("had the extension User of its key");
        assert_eq!(lines(), usize::from(is_told), "{at:?}");
        match is_told {
            true => says(&limits, "NeverSeen login User", &["outside"], "without"),
            false => assert_eq!(limits.warnings(), [], "{at:?}"),
        }
        ask(true).await;
        ask(false).await;
        assert_eq!((limits.warnings(), lines()), (vec![], 0), "{at:?}");
    }
}

/// A `fair-by` under which nobody takes turns.
#[tokio::test(start_paused = true)]
async fn turns_that_nobody_takes() {
    const SECOND: Duration = Duration::from_secs(1);
    let of_rule = |settings: &str| {
        let limits = of_toml(&format!("[rules.p]\n{settings}"));
        limits.store(MemoryStore::new().tokio_clock())
    };
    let one = "max-count = 1\nwindow = \"1h\"\nkey = \"header:x-user\"\n";
    let fair = format!("{one}fair-by = \"header:x-tenant\"\n");
    let joint = |more: &str| {
        let tenant = "max-count = 1, window = \"1h\", key = \"header:x-tenant\"";
        let quotas = format!("quotas = [{{ {tenant}, subject = \"tenant\" }}{more}]\n");
        quotas + "fair-by = \"header:x-tenant\"\n"
    };
    let all = ", { max-count = 9, window = \"1h\", key = \"everyone\", subject = \"all\" }";
    // What a layer says, and what `verify` tells.
    for (settings, wait, expected) in [
        (fair.clone(), None, "wait"),
        (fair.clone(), Some(SECOND), ""),
        (fair.clone(), Some(Duration::ZERO), "wait"),
        (fair.replace("= 1\n", "= 0\n"), None, ""),
        (format!("{fair}shadow = true\n"), None, ""),
        (one.to_owned(), None, ""),
        (fair.replace("tenant", "user"), Some(SECOND), "key"),
        (
            fair.replace("header:x-tenant", "everyone"),
            Some(SECOND),
            "key",
        ),
        (format!("{fair}enabled = false\n"), None, ""),
        (joint(all), Some(SECOND), ""),
        (joint(""), Some(SECOND), "key"),
    ] {
        let limits = of_rule(&settings);
        let layer = limits.layer("p");
        let _layer = match wait {
            Some(wait) => layer.wait(wait),
            None => layer,
        };
        limits.verify().expect("it fits");
        let expected = match expected {
            "" => String::new(),
            name => format!("NoTurns p {name}"),
        };
        assert_eq!(told(&limits), expected, "{settings} {wait:?}");
    }
    // By the layer alone, and by the key that the limits have for all rules.
    let limits = of_rule(one);
    let _layer = limits.layer("p").fair_by(Header::new("x-tenant"));
    limits.verify().expect("it fits");
    says(
        &limits,
        "NoTurns p wait",
        &[".wait(..)", "so far"],
        "a layer",
    );
    let limits = of_rule(&fair.replace("key = \"header:x-user\"\n", ""));
    let limits = limits.key(Header::new("x-tenant"));
    says(
        &limits,
        "NoTurns p key",
        &["name who shares it"],
        "a default",
    );
    // Calls without a layer: at the first denial, unless one has waited before.
    for (waits, expected) in [(false, "NoTurns p wait"), (true, "")] {
        let limits = of_rule(&fair);
        let wait = if waits { SECOND } else { Duration::ZERO };
        limits.check("p", "alice").wait(wait).await.expect("room");
        limits.verify().expect("it is used");
        assert_eq!(told(&limits), "", "{waits}");
        limits.check("p", "alice").await.expect_err("none is left");
        assert_eq!(told(&limits), expected, "{waits}");
    }
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
    assert_eq!(kinds(&limits), "OutcomeOfCheck");
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
        let peeked = told.peek("p", "bob").plan_value(plan()).await;
        peeked.expect("an answer");
        told.check("q", "alice").await.expect("room");
        told.peek("q", "alice").await.expect("an answer");
        assert_eq!(told.warnings(), []);
        let _ = unsaid.await;
        let kind = format!("PlanOfCheck p {setting}");
        says(&told, &kind, &[&format!(".{setting}(..)")], setting);

        let peeked = of(bind);
        peeked.peek("p", "alice").await.expect("an answer");
        assert_eq!(kinds(&peeked), "PlanOfCheck");
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
            assert_eq!(kinds(&limits), "PeerIpBehindProxy");
        }
    }
}

/// A router and one that is nested in it both have the layer: each request is charged twice.
#[tokio::test]
async fn a_request_is_charged_twice() {
    for store in &Stores::start().await.all {
        let log = Log::start();
        let rules = ["login", "api"].map(|path| roomy(path).with_key(Header::new("x-user")));
        let limits = limits(rules).store(Arc::clone(store));
        let inner = |layer| Router::new().route("/", any(async || "1")).layer(layer);
        let ask = async |inner: Router, outer| {
            let app = Router::new().nest("/login", inner).layer(outer);
            for _ in 0..3 {
                super::ask(&app, "/login", "x-user: alice, x-other: bob").await;
            }
            kinds(&limits).matches("ChargedTwice").count()
        };
        let layer = |path| limits.layer(path);
        let of_other = layer("login").key(Header::new("x-other"));
        let elsewhere = layer("login").store(MemoryStore::new());
        for apart in [layer("api"), of_other, elsewhere] {
            assert_eq!(ask(inner(layer("login")), apart).await, 0);
        }
        assert_eq!(ask(inner(layer("login")), layer("login")).await, 1);
        assert_eq!(log.count("is charged twice by the rule \"login\""), 1);
    }
}

/// What a rule locks out by, and what of it is a guess.
const GUESSES: &str = "
  'bearer'                                | bearer
  'header:Authorization'                  | header:authorization
  'header:proxy-authorization'            | header:proxy-authorization
  ['peer-ip', 'bearer']                   | bearer
  'header:x-user or bearer or peer-ip'    | bearer
  ['header:x-api-key or peer-ip', 'method'] | header:x-api-key
  'cookie:sid'                            | cookie:sid
  ['basic-user', 'cookie:sid']            | cookie:sid
  'host'                                  | host
  'method'                                | method
  ['basic-user', 'method']                | method
  'header:x-session'                      | header:x-session
  'header:x-session or peer-ip'           | header:x-session
  'header:X-SID'                          | header:x-sid
  'header:x-device-id'                    | header:x-device-id
  'header:x-request-id'                   | header:x-request-id
  'header:user-agent'                     | header:user-agent
  'header:x-user or peer-ip'              | header:x-user
  'header:x-user or header:x-account'     | header:x-user
  ['peer-ip', 'header:x-user or host']    | host
  'basic-user'                            |
  ['peer-ip', 'basic-user']               |
  ['basic-user', 'client-ip']             |
  'basic-user or peer-ip'                 |
  'peer-ip'                               |
  'client-ip/24'                          |
  'header:x-user'                         |
  'header:x-account'                      |
  'header:x-auth-request-user'            |
  ['header:x-tenant', 'header:x-user']    |";

/// A lock-out by the credential itself locks nobody out: each guess is a key of its own. It is told
/// when the rule is loaded, and no more when another file has mended it.
#[tokio::test]
async fn a_lockout_of_guesses() {
    let log = Log::start();
    let file = |key: &str| {
        let client_ip = match key.contains("client-ip") {
            true => "client-ip = { hops = 1 }",
            false => "",
        };
        let rule = format!("[rules.login]\nmax-count = 9\nwindow = '1m'\nkey = {key}");
        format!("{client_ip}\n{rule}\n{LOCKOUT}")
    };
    for [key, name] in table(GUESSES) {
        let limits = of_toml(&file(&key.replace(" or ", " | ")));
        let lines = log.lines();
        assert_eq!(lines.len(), usize::from(!name.is_empty()), "{key}");
        let text = format!("\"login\" locks out by {name}");
        assert!(lines.iter().all(|it| it.contains(&text)), "{lines:?}");
        let expected = format!("LockoutOfGuesses login {name}");
        let expected = if name.is_empty() { "" } else { &expected };
        assert_eq!(told(&limits), expected, "{key}");
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

/// A success of one's own would end the failures of all guesses from an address. Offices behind one
/// address stay possible, and who is guessed may stand beside it.
#[tokio::test]
async fn a_success_of_ones_own_ends_guesses() {
    let log = Log::start();
    for (key, expected) in [
        ("'peer-ip'", "address"),
        ("'client-ip/24'", "address"),
        ("['peer-ip', 'header:x-tenant']", "address"),
        ("'basic-user | client-ip'", "address"),
        ("'header:x-user | peer-ip'", "header:x-user"),
        ("['client-ip', 'bearer']", "bearer"),
        ("['basic-user', 'client-ip']", ""),
        ("'basic-user'", ""),
        ("'header:x-user'", ""),
        ("'everyone'", "would lock everyone out"),
        ("['everyone', 'everyone']", "would lock everyone out"),
        ("'basic-user | everyone'", "would lock everyone out"),
    ] {
        let lockout = LOCKOUT.replace("on = ", "reset-on = ['2xx'], on = ");
        let rule = format!("[rules.login]\nmax-count = 9\nwindow = '1m'\nkey = {key}\n{lockout}");
        let limits = match Limits::from_toml(&format!("client-ip = {{ hops = 1 }}\n{rule}")) {
            Err(error) if key.contains("client-ip") => panic!("{error}"),
            Err(_) => Limits::from_toml(&rule),
            valid => valid,
        };
        let told = match limits {
            Ok(limits) => limits.warnings().iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        assert_eq!(
            told.len(),
            usize::from(!expected.is_empty()),
            "{key}: {told:?}"
        );
        assert!(
            told.iter().all(|it| it.contains(expected)),
            "{key}: {told:?}"
        );
        assert!(log.lines().len() <= 1, "{key}");
    }
    let of_code = |key: Arc<dyn KeyExtractor>| {
        let lockout = Lockout::after(3).hold([kit::HOUR]).on(["401"]);
        let rule = kit::per_hour("login", 9).with_key(key);
        let limits = limits([rule.with_lockout(lockout.reset_on(["2xx"])).expect("valid")]);
        limits
            .warnings()
            .iter()
            .any(|it| it.to_string().contains("BasicUser"))
    };
    let user = Extension::new(|user: &PeerAddr| user.0.ip());
    let named = of_code(Arc::new((PeerIp, BasicUser))) || of_code(Arc::new((user, PeerIp)));
    assert!(!named && of_code(Arc::new((PeerIp, Header::new("x-tenant")))));
}

/// The same of keys from code, alone, joined, of a subject and of a layer.
#[tokio::test]
async fn a_lockout_of_guesses_in_code() {
    let lockout = || Lockout::after(3).hold([kit::HOUR]).on(["401"]);
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
        let log = Log::start();
        let fields = [
            ("authorization", "Bearer x"),
            ("x-user", "alice"),
            ("cookie", "sid=1"),
            ("host", "acme.example"),
        ];
        for _ in 0..3 {
            ask(&app_of(&limits, &["login"]), "/login", &fields).await;
        }
        let is_told = kinds(&limits) == "LockoutOfGuesses";
        assert_eq!(is_told, expected, "{:?}", limits.warnings());
        assert!(log.lines().len() <= 1, "{:?}", log.lines());
    }
    let of_layer = limits([locked(rule().with_key(PeerIp))]);
    let app = kit::app(of_layer.layer("login").key(Bearer));
    ask(&app, "/", &[("authorization", "Bearer x")]).await;
    assert_eq!(kinds(&of_layer), "LockoutOfGuesses");
}

/// Who fills the store, or waits for an outage, guesses where nothing is decided. A rule says so
/// when it is loaded, `FailOpen` at the first request, another callback when it first proceeds.
#[tokio::test]
async fn a_lockout_that_fails_open() {
    let quota = "max-count = 9\nwindow = '1m'\n";
    let of = |more: &str| of_rule("login", &format!("{quota}key = 'header:x-user'\n{more}"));
    let open = format!("{LOCKOUT}on-error = 'proceed'");
    let log = Log::start();
    let rule = of(&open);
    assert_eq!(log.lines().len(), 1);
    let expected = "LockoutFailsOpen login on-error = \"proceed\"";
    says(&rule, expected, &["on-error = \"respond\""], "");
    let proceed = async |_: Failed| Recovery::Proceed;
    let refuse = async |_: Failed| StatusCode::BAD_GATEWAY;
    let here = MemoryStore::new;
    let proceeds = of(LOCKOUT).store(no_store()).on_error(proceed);
    let falls_back = of(&format!("{LOCKOUT}on-error = 'fallback'"));
    let plain = of("on-error = 'proceed'").store(no_store());
    for (row, limits, expected) in [
        (1, of(&open).store(no_store()), "on-error = \"proceed\""),
        (2, of(LOCKOUT).store(here()).on_error(FailOpen), "FailOpen"),
        (3, proceeds, "Recovery::Proceed"),
        (4, of(LOCKOUT).store(here()).on_error(proceed), ""),
        (5, of(LOCKOUT).store(no_store()).on_error(refuse), ""),
        (6, of(LOCKOUT).store(no_store()), ""),
        (7, falls_back.store(here()), ""),
        (8, plain.on_error(FailOpen), ""),
    ] {
        log.lines();
        let app = app_of(&limits, &["login"]);
        call(&app, from("10.0.0.7", "/login", &[("x-user", "alice")])).await;
        let mut open = limits.warnings();
        open.retain(|it| it.kind == WarningKind::LockoutFailsOpen);
        let names = open.iter().map(|it| it.name.as_deref().unwrap_or_default());
        let is_told = !expected.is_empty();
        assert!(names.eq(is_told.then_some(expected)), "{row}: {open:?}");
        let is_new = is_told && !expected.contains("on-error");
        let lines = log.count("guesses without a bound");
        assert_eq!(lines, usize::from(is_new), "{row}");
    }
    let of_checks = of(LOCKOUT).store(no_store()).on_error(FailOpen);
    assert!(of_checks.check("login", "alice").await.is_err());
    assert_eq!(of_checks.warnings(), []);
    let mended = Rules::from_toml(&format!("[rules.login]\n{quota}{LOCKOUT}"));
    rule.rules().replace(mended.expect("valid"));
    assert_eq!(rule.warnings(), []);
}

const LOCKOUT: &str = "lockout = { after = 5, hold = ['1h'], on = ['401'] }\n";

/// Quotas of a rule that locks out, by lines, and how many guesses they let in, where it is told.
const BURSTS: &str = "
  max-count = 50; window = '1m'                                   |
  max-count = 51; window = '1m'                                   | 51
  max-count = 6; window = '1s'                                    | 60
  max-count = 5; window = '1s'                                    |
  max-count = 51; window = '1m'; max-concurrent = 4               |
  max-count = 30; window = '1m'; algorithm = 'fixed-window'       | 60
  max-count = 60; window = '1m'; pace = 'even'                    |
  max-count = 60; window = '1m'; burst = 50; algorithm = 'gcra'   | 60
  max-count = 100; window = '1m'; cost = 2                        |
  max-count = 20; window = '1m'                                   |
  max-count = 20; window = '1m'; plans.pro = { max-count = 2000, window = '1m' } | 2000
  max-count = 20; window = '1m'; plans.pro = { max-count = 2000, window = '1m' }; max-concurrent = 4  |
  max-count = 20; window = '1m'; plans.pro = { max-count = 2000, window = '1m' }; max-concurrent = 60 | 60
  max-count = 20; window = '1m'; plans.pro = { max-count = 2000, window = '1m', \
    unlimited = ['max-concurrent'] }; max-concurrent = 4 | 2000
  quotas = [{ max-count = 99, window = '1s' }, { max-count = 50, window = '1m' }] |
  quotas = [{ max-count = 99, window = '1m' }, { max-count = 50, window = '1m', cost = 1 }] |
  quotas = [{ max-count = 99, window = '1m', subject = 'user' }, \
    { max-count = 9, window = '1m', key = 'everyone', subject = 'all' }, \
    { max-concurrent = 9, key = 'everyone' }] | 99";

/// Whoever keeps the ends of requests back guesses as often as the quotas let in ten seconds, or a
/// plan, or as many as run at a time.
#[test]
fn a_lockout_of_bursts() {
    for [quotas, guesses] in table(BURSTS) {
        let lockout = match quotas.contains("'all'") {
            true => LOCKOUT.replace(" }", ", subject = 'user' }"),
            false => LOCKOUT.to_owned(),
        };
        let quotas = quotas.replace("; ", "\n");
        let settings = format!("key = 'header:x-user'\n{quotas}\n{lockout}");
        let limits = of_rule("login", &settings);
        match guesses {
            "" => assert_eq!(limits.warnings(), [], "{quotas}"),
            _ => {
                let expected = format!("LockoutOfBursts login {guesses}");
                says(
                    &limits,
                    &expected,
                    &["max-concurrent = 2", "API keys"],
                    &quotas,
                );
            }
        }
    }
}

/// The list is bounded. Where clients choose the paths of checks, those that have no rule leave room
/// for what else is wrong, in the list and in the log.
#[tokio::test]
async fn unknown_paths_leave_room() {
    let log = Log::start();
    let limits = limits([roomy("login").with_key(PeerIp)]);
    for tool in 0..2_000 {
        let admitted = limits.check(&format!("a-tool:{tool}"), "alice").await;
        admitted.expect("there is no rule");
    }
    for at in 0..3_000 {
        let _layer = limits.layer(&format!("p{at}"));
    }
    ask(&app_of(&limits, &["login"]), "/login", FORWARDED).await;
    let kinds = kinds(&limits);
    let unknown = kinds.matches("NoRule").count();
    assert_eq!((unknown, limits.warnings().len()), (100, 101));
    assert!(kinds.contains("PeerIpBehindProxy"));
    assert_eq!(log.lines().len(), 101);
}

#[tokio::test]
async fn a_panic_is_no_warning() {
    struct Panics;
    impl KeyExtractor for Panics {
        fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
            PeerIp.extract(head)
        }

        fn warning(&self, _: &HeaderMap) -> Option<tidegate::warning::Warning> {
            panic!("on purpose")
        }
    }
    let (limits, app) = of(roomy("login").with_key(Panics));
    ask(&app, "/login", &[]).await;
    assert_eq!(limits.warnings(), []);
}

#[tokio::test]
async fn the_log_is_told_once() {
    let log = Log::start();
    let limits = limits([roomy("login").with_key(PeerIp)]);
    let app = app_of(&limits, &["login", "other"]);
    for _ in 0..50 {
        ask(&app, "/login", &[("x-forwarded-for", "203.0.113.9")]).await;
        ask(&app, "/other", &[]).await;
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("there is no rule for \"other\""));
    assert!(lines[1].contains("the key of \"login\" is PeerIp"));
}

/// A handler that mistypes a path would reserve and never give back. It may be mounted elsewhere.
#[tokio::test]
async fn charges_of_a_path_that_nobody_has() {
    let log = Log::start();
    let limits = limits(["chat", "draw"].map(roomy));
    let _ = limits.layer("open");
    let charged = |path: &'static str| limits.call(path).key("alice");
    for path in ["chat", "draw", "open"].repeat(2) {
        let called = charged(path).run(async || {
            let charges = Charges::current();
            let settled = charges.of("chta").settle(5).await.expect("no error");
            assert_eq!(settled.given_back, 0);
            for other in ["chat", "draw", "open"] {
                let _ = charges.of(other);
            }
        });
        called.await.expect("there is room");
    }
    let of_charges = || {
        let mut listed = limits.warnings();
        listed.retain(|it| it.kind == WarningKind::NoCharges);
        listed
    };
    assert_eq!(of_charges()[0].path.as_deref(), Some("chta"));
    assert_eq!(log.count("charges.of(\"chta\")"), 1);

    let many = charged("chat").run(async || {
        let charges = Charges::current();
        (0..2_000).for_each(|it| drop(charges.of(&format!("a-tool:{it}"))));
    });
    many.await.expect("there is room");
    assert_eq!(of_charges().len(), 100);
}
