//! What `tracing` is told: no secrets, no floods, and nothing that a client or a file could forge.

use std::cell::Cell;
use std::rc::Rc;

use kit::full_log::Log;
use kit::http::{call, request};
use kit::per_hour as limited;
use tidegate::rule::Lockout;
use tracing::Level;

use crate::*;

async fn status_of(app: &Router, tenant: &str) -> u16 {
    let fields = format!("x-tenant: {tenant}, authorization: bearer-s3cret");
    let request = request("/?query-s3cret", &fields);
    call(app, request).await.status().as_u16()
}

/// Limits of one rule.
fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule]).store(store)
}

/// How many lines begin with this level.
fn of_level(lines: &[String], level: &str) -> usize {
    let begins = |line: &&String| line.trim_start().starts_with(level);
    lines.iter().filter(begins).count()
}

/// No line is one that a name has in it, and none has colours.
fn expect_nothing_forged(lines: &[String]) {
    for line in lines {
        let is_forged = line.starts_with("ERROR forged") || line.contains('\u{1b}');
        assert!(!is_forged, "{lines:#?}");
    }
}

fn has_secret(line: &&String) -> bool {
    line.contains("s3cret")
}

/// Keys, queries and passwords through decisions, denials, outages, waits and shadow rules.
#[tokio::test]
async fn no_secret_of_any_kind() {
    let log = Log::start();
    let mut server = Redis::start();
    let url = server.url.replace("//", "//default:s3cret@");
    kit::run(&server, "CONFIG SET requirepass s3cret");
    let redis = RedisStore::connect(&*url).await.expect("the password");
    let around = Resilient::new(redis.timeout(millis(500)));
    let store = around.failures(3).fallback(Share::of_processes(1)).build();
    let secret = |head: &Parts| -> Result<Key, KeyError> {
        let value = head.headers.get("x-tenant").map(|value| value.as_bytes());
        Ok(Key::from("s3cret").with_secret(value.unwrap_or_default()))
    };
    let limits = Limits::new([limited("a", 1), limited("b", 0).into_shadow()]);
    let limits = limits.store(store);
    let layer = || limits.layer("a");
    let apps = [
        app(layer().key(tenant())),
        app(layer().key(secret)),
        app(layer().key(tenant()).trace_hashed_keys()),
        app(layer().key(secret).trace_hashed_keys()),
        app(layer().key(tenant()).wait(millis(20))),
        app(limits.layer("b").key(tenant()).trace_hashed_keys()),
    ];
    let mut lines = Vec::new();
    for is_up in [true, false] {
        if !is_up {
            server.kill();
            sleep(millis(200)).await;
        }
        for app in &apps {
            for tenant in ["s3cret", "s3cret-of-another", "s3cret"] {
                status_of(app, tenant).await;
                let hasty = timeout(Duration::from_micros(200), status_of(app, tenant));
                let _ = hasty.await;
            }
            // A key that is missing.
            call(app, request("/?s3cret", "")).await;
        }
        lines.extend(log.lines());
    }
    let ours = lines.iter().filter(|line| line.contains("tidegate"));
    assert!(ours.count() > 50, "too little was said: {lines:#?}");
    let has_hash = lines.iter().any(|line| line.contains("key=#"));
    assert!(has_hash, "hashes were asked for");
    let told: Vec<_> = lines.iter().filter(has_secret).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// Rules that are replaced at every request, switched off and on, or turned into shadows bring no
/// further summary.
#[tokio::test(start_paused = true)]
async fn replaced_rules_bring_no_further_summary() {
    let log = Log::start();
    let limits = Limits::new([limited("a", 0)]);
    let app = app(limits.layer("a"));
    for round in 0..400 {
        let policy = Policy::new(&format!("n{round}"), quota(0, HOUR));
        let rule = Rule::with_policies("a", [policy]).expect("valid");
        limits.rules().replace(match round % 4 {
            0 => Rules::default(),
            1 => Rules::from_iter([rule]).enabled(false),
            2 => Rules::from_iter([rule.into_shadow()]),
            _ => Rules::from_iter([rule]),
        });
        status_of(&app, "").await;
        advance(millis(20)).await;
    }
    let lines = log.lines();
    assert_eq!(of_level(&lines, "INFO"), 1, "in 8 s");
    // There was no rule for a while, which is told once for each path.
    assert!(of_level(&lines, "WARN") <= 1, "{lines:?}");
    let denials = lines.iter().filter(|line| line.contains(": denied "));
    assert_eq!(denials.count(), 100, "one event for each denial");
}

/// A store that always fails, also for a shadow rule: a few lines, however many ask.
#[tokio::test(start_paused = true)]
async fn failures_are_told_on_changes_only() {
    let refused = || StoreError::new(StoreErrorKind::Refused, "a test refuses");
    let ask_for_100_s = async |limits: Limits, status: u16| {
        let app = app(limits.layer("a").key(Everyone));
        for _ in 0..1_000 {
            assert_eq!(status_of(&app, "").await, status);
            advance(millis(100)).await;
        }
    };
    let log = Log::start();
    let store = Stub::answering(MemoryStore::new(), move |_| {
        Some(StoreFuture::ready(Err(refused())))
    });
    ask_for_100_s(limits(limited("a", 9), store), 503).await;
    let lines = log.lines_of(Level::WARN);
    assert_eq!(lines.len(), 1, "in 100 s without a change: {lines:?}");

    // An outage of a shadow rule.
    let store = Stub::answering(MemoryStore::new(), move |take| {
        let error = || StoreFuture::boxed(async move { Err(refused()) });
        take.name("").contains("~shadow").then(error)
    });
    ask_for_100_s(limits(limited("a", 9).into_shadow(), store), 200).await;
    let mut lines = log.lines();
    lines.retain(|line| {
        !["TRACE ", "DEBUG "]
            .iter()
            .any(|it| line.trim_start().starts_with(it))
    });
    assert!(lines.len() <= 10, "{:?} is the last", lines.last());
}

/// A name with a line end begins no line of its own, whatever it is the name of.
#[tokio::test]
async fn nothing_forges_a_line() {
    let log = Log::start();
    let forged = "a\nERROR forged: \u{1b}[31m by \"name\"\r\nERROR forged";
    for max in [0, 1] {
        let policy = Policy::new(forged, quota(max, HOUR));
        let rule = Rule::with_policies(forged, [policy]).expect("valid");
        let store: Arc<dyn Store> = match max {
            0 => Arc::new(MemoryStore::new()),
            _ => Arc::new(Stub::answering(MemoryStore::new(), |_| {
                let error = "a\nERROR forged: \u{1b}[31m";
                let error = StoreError::new(StoreErrorKind::Refused, error);
                Some(StoreFuture::ready(Err(error)))
            })),
        };
        let limits = limits(rule, store);
        for layer in [
            limits.layer(forged).trace_hashed_keys(),
            limits.layer("b\nERROR forged"),
        ] {
            status_of(&app(layer), "x").await;
        }
    }
    let lines = log.lines();
    assert!(!lines.is_empty());
    expect_nothing_forged(&lines);
}

/// A subscriber that reads everything at each event, as one does that publishes metrics: no event
/// is told while something is locked.
#[test]
fn a_subscriber_that_reads_everything() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let text = |path: &str| format!("[rules.{path}]\nmax-count = 0\nwindow = \"1h\"\n");
        let file = LimitsFile::new(text("a"));
        let limits = file.limits();
        let (reader, told) = (limits.clone(), Rc::new(Cell::new(0)));
        let counting = Rc::clone(&told);
        Log::start().on_event(move || {
            counting.set(counting.get() + 1);
            let _ = (reader.status(), reader.snapshot());
            let _ = reader.paths_without_rule();
            let rules = reader.rules().load();
            reader.rules().replace(Rules::clone(&rules));
            let _ = reader.layer("c").snapshot();
        });
        paused_runtime().block_on(async {
            let app_of_a = app(limits.layer("a"));
            assert_eq!(status_of(&app_of_a, "").await, 429);
            assert_eq!(status_of(&app(limits.layer("b")), "").await, 200);
            limits.watch(&file.path).expect("a runtime");
            for text in [text("b"), text("a") + &text("b"), "x".to_owned(), text("b")] {
                file.write(text);
                let _ = limits.reload(&file.path);
                sleep(Duration::from_secs(3)).await;
                assert_eq!(status_of(&app_of_a, "").await, 429);
            }
        });
        sender.send(told.get()).expect("is awaited");
    });
    let told = receiver.recv_timeout(Duration::from_secs(60));
    assert!(told.expect("nothing is locked") > 10);
}

/// Guesses at six accounts, a burst, silence, and a Redis that stands still for five seconds: page,
/// metrics and log tell the same numbers, and the log stays short.
#[tokio::test]
async fn a_storm_is_told_alike() {
    let (log, mut server) = (kit::log::Log::start(), Redis::start());
    let lockout = Lockout::after(5).hold([HOUR]).on(["401"]);
    let login = Rule::new("login", [Quota::per_minute(600)]).expect("valid");
    let rules = [
        login.with_lockout(lockout).expect("valid"),
        limited("search", 2),
    ];
    let store = Resilient::redis(&*server.url, "shop").expect("an address");
    let limits = Limits::new(rules)
        .store(store.processes(1).build())
        .key(tenant());
    let wrong = axum::routing::post(async || StatusCode::UNAUTHORIZED);
    let app = Router::new()
        .route("/login", wrong.layer(limits.layer("login")))
        .route("/search", get("found").layer(limits.layer("search")))
        .nest_service("/limits", limits.page().router());
    limits.ready(5 * SECOND).await.expect("Redis");
    let ask = async |path: &str, tenant: &str| {
        let mut request = request(path, &format!("x-tenant: {tenant}"));
        if path == "/login" {
            *request.method_mut() = Method::POST;
        }
        call(&app, request).await.status().as_u16()
    };
    let mut locked = 0;
    for guess in 0..25 {
        for account in ["a", "b", "c", "d", "e", "f"] {
            let status = ask("/login", account).await;
            assert_eq!(status, if guess < 5 { 401 } else { 429 }, "guess {guess}");
            locked += u64::from(status == 429);
        }
    }
    let mut denied = 0;
    for _ in 0..202 {
        denied += u64::from(ask("/search", "bob").await == 429);
        sleep(millis(7)).await;
    }
    assert_eq!((locked, denied), (120, 200));
    sleep(millis(11_000)).await;
    let now = call(&app, request("/limits/api/now", "host: 127.0.0.1:3000")).await;
    let now = axum::body::to_bytes(now.into_body(), usize::MAX)
        .await
        .expect("a body");
    let now: serde_json::Value = serde_json::from_slice(&now).expect("JSON");
    let snapshot = limits.snapshot();
    let lines = log.lines();
    for (path, all) in [("login", locked), ("search", denied)] {
        let rules = now["rules"].as_array().expect("a list");
        let shown = rules.iter().find(|it| it["rule"] == path).expect(path);
        assert_eq!(shown["total"]["denied"], all, "{shown}");
        let counted = snapshot.rule(path).expect(path);
        let denials = DecisionOutcome::ALL.into_iter().filter(|it| it.is_denial());
        assert_eq!(denials.map(|it| counted.decisions(it)).sum::<u64>(), all);
        let of_path = |line: &&String| {
            line.contains("requests were denied") && line.contains(&format!("path=\"{path}\""))
        };
        let number = |line: &String| {
            let (_, number) = line.split_once("denied=")?;
            number.split(' ').next()?.parse::<u64>().ok()
        };
        let told = lines.iter().filter(of_path).filter_map(number);
        assert_eq!(told.sum::<u64>(), all, "{lines:#?}");
    }
    assert_eq!(snapshot.rule("login").expect("a rule").lockouts, 6);
    server.go_away(false);
    let begun = Instant::now();
    while begun.elapsed() < 5 * SECOND {
        ask("/search", "carol").await;
        sleep(millis(20)).await;
    }
    server.come_back(false);
    eventually("Redis decides", async || {
        let answer = call(&app, request("/search", "x-tenant: dave")).await;
        Decision::from_extensions(answer.extensions())
            .is_some_and(|it| it.source() == Source::Redis)
    })
    .await;
    sleep(millis(11_000)).await;
    let later = log.lines();
    let has = |text: &str| later.iter().any(|line| line.contains(text));
    assert!(
        has("the fallback decides") && has("the store decides again"),
        "{later:#?}"
    );
    let all = lines.len() + later.len();
    assert!(all <= 30, "{all} lines: {lines:#?} {later:#?}");
}
