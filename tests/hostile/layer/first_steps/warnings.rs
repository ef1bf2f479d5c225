//! Warnings: each once, whoever asks, and never anything of a request, a key, a password or a URL.

use std::net::SocketAddr;
use std::sync::OnceLock;

use kit::full_log::Log;
use kit::http::call;
use kit::proxy::{FlightFault, Part};
use tidegate::key::Forwarding;
use tidegate::store::{Capabilities, Condition};
use tidegate::warning::Warning;

use super::*;

/// What no warning may show.
const MARK: &str = "s3cret";

fn limits(rules: impl IntoIterator<Item = Rule>) -> Limits {
    Limits::new(rules.into_iter().collect::<Rules>())
}

/// A field that only a proxy sends.
const BY_PROXY: [(&str, &[u8]); 1] = [("forwarded", b"for=1.2.3.4")];

fn warned(log: &Log) -> Vec<String> {
    log.lines_of(tracing::Level::WARN)
}

/// How many lines have this in them.
fn told(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| line.contains(what)).count()
}

fn catch_all(limits: &Limits, path: &str) -> Router {
    let handler = get(async || "1").layer(limits.layer(path));
    Router::new().route("/{*rest}", handler)
}

fn request(fields: &[(&str, &[u8])]) -> Request<Body> {
    let peer: SocketAddr = "10.0.0.7:1".parse().expect("an address");
    let mut request = Request::get(format!("/{MARK}?{MARK}")).extension(PeerAddr(peer));
    for (name, value) in fields {
        request = request.header(*name, HeaderValue::from_bytes(value).expect("a value"));
    }
    request.body(Body::empty()).expect("valid")
}

async fn ask(app: &Router, fields: &[(&str, &[u8])]) -> StatusCode {
    call(app, request(fields)).await.status()
}

/// Whatever clients send, whatever the URL and the password are: warnings and the log name paths,
/// settings and fields.
#[tokio::test]
async fn nothing_of_a_request_is_shown() {
    let server = Server::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let user = format!("ACL SETUSER {MARK}user on >{MARK}word ~* &* +@all");
    run(&server, &user);
    let login = format!("//{MARK}user:{MARK}word@");
    let url = server.url.replace("//", &login);
    let log = Log::start();
    let values: Vec<Vec<u8>> = vec![
        MARK.into(),
        format!("for={MARK};by={MARK}").into(),
        [MARK.as_bytes(), b"\xff\xfe"].concat(),
        MARK.repeat(9_000).into(),
        format!("{MARK}, ").repeat(200).into(),
        b"".to_vec(),
    ];
    let fields = words("x-forwarded-for forwarded x-real-ip cf-connecting-ip via");
    let bare = RedisStore::connect(&*url).await.expect("a server");
    let safe = Resilient::redis(&*url, "shop").expect("an address");
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(bare.timeout(PATIENT)),
        Arc::new(safe.timeout(PATIENT)),
        Arc::new(MemoryStore::with_max_keys(4)),
    ];
    let secret = || Header::new("x-forwarded-for").secret();
    let keys: [fn(Rule) -> Rule; 3] = [
        |rule| rule.with_key(PeerIp),
        |rule| rule.with_key((ClientIp::behind_hops(2), PeerIp)),
        |rule| rule.with_key(ClientIp::behind_hops(9).field(Forwarding::XForwardedFor)),
    ];
    let mut found = 0;
    for store in stores {
        for key in keys {
            let limits = limits([key(roomy("login")), roomy("keyed").with_key(secret())]);
            let limits = limits.store(Arc::clone(&store));
            let apps = [catch_all(&limits, "login"), catch_all(&limits, "keyed")];
            for value in &values {
                for name in &fields {
                    for app in &apps {
                        ask(app, &[(*name, value), (*name, value)]).await;
                    }
                }
            }
            let warnings = limits.warnings();
            found += warnings.len();
            let text = format!("{warnings:?} {:?}", limits.verify());
            let shown = warnings.iter().map(ToString::to_string).collect::<String>();
            for text in [text, shown] {
                assert!(!text.contains(MARK) && !text.contains("redis://"), "{text}");
                assert!(!text.contains("10.0.0.7"), "{text}");
            }
        }
    }
    assert!(found >= 9, "{found}");
    let warned = warned(&log);
    assert!(warned.len() >= 6, "{warned:#?}");
    assert_eq!(told(&warned, MARK), 0, "{warned:#?}");
}

/// The runtime of the first request ends before ten seconds have passed, and others serve on: the
/// log is told nevertheless.
#[test]
fn the_runtime_of_the_first_request_ends() {
    let limits = limits([roomy("login"), roomy("unused")]).key(Everyone);
    let app = catch_all(&limits, "login");
    let log = Log::start();
    let mut lines = Vec::new();
    still_runtime().block_on(ask(&app, &[]));
    still_runtime().block_on(eventually("the log is told", async || {
        sleep(millis(500)).await;
        ask(&app, &[]).await;
        lines.extend(warned(&log));
        told(&lines, "\"unused\"") > 0
    }));
    still_runtime().block_on(ask(&app, &[]));
    lines.extend(warned(&log));
    assert_eq!(kinds(&limits), "UnusedRule");
    assert_eq!(told(&lines, "\"unused\""), 1, "{lines:#?}");
}

/// A layer over memory needs no runtime, and no timer: neither do its warnings.
#[test]
fn without_a_runtime() {
    let check = |run: &dyn Fn(&Router)| {
        let limits = limits([roomy("login").with_key(PeerIp), roomy("unused")]);
        let app = catch_all(&limits, "login");
        run(&app);
        assert_eq!(kinds(&limits), "PeerIpBehindProxy");
    };
    check(&|app| assert_eq!(at_once(ask(app, &BY_PROXY)), StatusCode::OK));
    check(&|app| {
        let log = Log::start();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("without a timer").block_on(async {
            let tasks = tokio::runtime::Handle::current().metrics();
            let before = tasks.num_alive_tasks();
            let app = app.clone();
            let asks = tokio::spawn(async move { ask(&app, &BY_PROXY).await });
            assert_eq!(asks.await.expect("no panic"), StatusCode::OK);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(tasks.num_alive_tasks(), before);
        });
        drop(log.text());
    });
}

fn some_warning() -> Warning {
    let mut fields = HeaderMap::new();
    fields.insert("forwarded", HeaderValue::from_static("for=1.2.3.4"));
    PeerIp.warning(&fields).expect("behind a proxy")
}

/// Makes a warning of the fields.
struct Lies<F>(F);

impl<F: Fn(&HeaderMap) -> Option<Warning> + Send + Sync + 'static> KeyExtractor for Lies<F> {
    fn extract(&self, _: &http::request::Parts) -> Result<Key, KeyError> {
        Ok(Key::default())
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        (self.0)(fields)
    }
}

/// An extractor of one's own has another warning for each request: one for each kind and path is
/// listed and logged, and never more than a thousand.
#[tokio::test]
async fn an_extractor_that_lies() {
    let number = Arc::new(AtomicU64::new(0));
    let lies = |lie: fn(&mut Warning, u64)| {
        let number = Arc::clone(&number);
        Lies(move |_: &HeaderMap| {
            let mut warning = some_warning();
            lie(&mut warning, number.fetch_add(1, Ordering::Relaxed));
            Some(warning)
        })
    };
    let asks = async |limits: &Limits, path: &str| {
        let app = catch_all(limits, path);
        for _ in 0..100 {
            ask(&app, &[]).await;
        }
    };
    let names = lies(|it, number| it.name = Some(format!("field {number}").into()));
    let log = Log::start();
    let of_names = limits([roomy("login").with_key(names)]);
    asks(&of_names, "login").await;
    let warnings = of_names.warnings();
    // One for each kind and path.
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert_eq!(warned(&log).len(), 1);

    let of_paths = limits((0..60).map(|at| {
        let paths = lies(|warning, number| {
            warning.path = Some(format!("path {number}\nINFO forged").into());
        });
        roomy(&format!("p{at}")).with_key(paths)
    }));
    for at in 0..60 {
        asks(&of_paths, &format!("p{at}")).await;
    }
    let listed = of_paths.warnings().len();
    assert!(listed <= 1_000, "{listed}");
    let lines = log.lines();
    let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    let warned = count(" WARN");
    assert!(warned <= 1_000, "{warned}");
    assert_eq!(count("INFO forged"), 0);
}

/// An extractor that asks for the warnings while it is asked for one: no deadlock.
#[test]
fn an_extractor_that_asks_back() {
    let cell: Arc<OnceLock<Limits>> = Arc::default();
    let asks = Arc::clone(&cell);
    let asks = Lies(move |_: &HeaderMap| {
        let limits = asks.get()?;
        let _ = limits.warnings();
        let _ = limits.verify();
        let _layer = limits.layer("another");
        Some(some_warning())
    });
    let limits = limits([roomy("login").with_key(asks)]);
    let _ = cell.set(limits.clone());
    let app = catch_all(&limits, "login");
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = done.send(at_once(ask(&app, &[])));
    });
    let status = is_done.recv_timeout(PATIENT);
    assert_eq!(status.expect("no deadlock"), StatusCode::OK);
    assert!(kinds(&limits).contains("PeerIpBehindProxy"));
}

fn warns(warnings: impl Fn() -> Vec<Warning> + Send + Sync + 'static) -> Stub {
    Stub::in_memory()
        .named("warns")
        .capabilities_fn(|_| {
            let mut capabilities = Capabilities::default();
            capabilities.timeout = Some(millis(123));
            capabilities
        })
        .condition_fn(move |_| {
            let mut condition = Condition::default();
            condition.warnings = warnings();
            condition
        })
}

#[tokio::test]
async fn a_store_that_panics() {
    let panics = limits([roomy("login").with_key(PeerIp)]).store(warns(|| panic!("on purpose")));
    let app_of_panics = catch_all(&panics, "login");
    for at in 0..3 {
        let app = app_of_panics.clone();
        let status = tokio::spawn(async move { ask(&app, &BY_PROXY).await }).await;
        let status = status.unwrap_or_else(|error| panic!("request {at} pays: {error}"));
        assert_eq!(status, StatusCode::OK);
    }
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics.warnings()));
    assert_eq!(ask(&app_of_panics, &[]).await, StatusCode::OK);
    let _layer = panics.layer("no rule");
}

/// The question whether Redis evicts is answered wrongly, late, never or by an error: decisions stay
/// right, and no reply is taken for another one.
#[tokio::test]
async fn the_question_for_evictions_goes_wrong() {
    let faults = [
        FlightFault::Lose(Part::All),
        FlightFault::Replace(Part::All, "-ERR unknown command 's3cret'"),
        FlightFault::Replace(Part::All, ":1"),
        FlightFault::Replace(Part::All, "+maxmemory:s3cret"),
        FlightFault::Replace(Part::All, "_"),
    ];
    for fault in faults {
        let server = Server::start();
        let proxy = Proxy::start_with_flights(&server.url).await;
        proxy.break_flight(fault, "$4\r\nINFO", 0);
        let store = shop(&proxy.url);
        let store = store.timeout(PATIENT);
        let rules = [0, 1, 2, 3].map(|at| Arc::new(per_hour(&format!("p{at}"), 100 + at)));
        let began = Instant::now();
        // While the link is replaced there may be no decision.
        let mut right = 0;
        while right < 40 {
            for (at, rule) in rules.iter().enumerate() {
                let take = Take::new(Arc::clone(rule), Key::default()).looking();
                match store.take(&take).await {
                    Ok(state) => {
                        assert_eq!(state.remaining(), 100 + at as u64, "{fault:?}");
                        right += 1;
                    }
                    Err(_) => sleep(millis(5)).await,
                }
            }
            assert!(began.elapsed() < PATIENT, "{fault:?}: {right}");
        }
        let text = format!("{:?}", store.condition().warnings);
        assert!(!text.contains(MARK), "{text}");
    }
}

/// A Redis begins to evict: it is asked once for each new link, and no more often.
#[tokio::test]
async fn a_redis_that_begins_to_evict() {
    let server = Server::start();
    let store = connected(&server.url).await;
    let limits = limits([roomy("login")]).key(Everyone).store(store.clone());
    let app = catch_all(&limits, "login");
    ask(&app, &[]).await;
    assert_eq!(kinds(&limits), "");
    run(&server, "CONFIG SET maxmemory 100mb");
    run(&server, "CONFIG SET maxmemory-policy volatile-lru");
    let log = Log::start();
    let before = calls(&server, "info");
    for _ in 0..5 {
        run(&server, "CLIENT KILL TYPE normal SKIPME yes");
        let take = Take::new(roomy("again").into(), Key::default());
        eventually("it is connected again", async || {
            let answer = store.take(&take).await;
            answer.is_ok_and(|it| it.failure().is_none())
        })
        .await;
        for _ in 0..50 {
            ask(&app, &[]).await;
        }
    }
    let is_known = async || kinds(&limits) == "RedisEvicts";
    eventually("it is known", is_known).await;
    // The looks of this test are some of them.
    let asked = calls(&server, "info") - before;
    assert!(asked <= 5 * 2 + 4, "{asked} times");
    let lines = warned(&log);
    assert_eq!(told(&lines, "evict"), 1, "{lines:#?}");
}
