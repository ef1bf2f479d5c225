//! What `tracing` is told: no secrets, no floods, and nothing that a client or a file could forge.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use http::request::Parts;
use kit::Redis;
use tidegate::key::KeyError;
use tidegate::rule::{Policy, Share};
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{
    Header, Key, Limits, MemoryStore, Quota, RedisStore, Resilient, Rule, Rules, Store, StoreError,
};
use tokio::time::{advance, sleep, timeout};
use tower::ServiceExt;
use tracing::Level;

use kit::full_log::Log;
use kit::stub::Stub;
use kit::{HOUR, app, millis};

fn limited(path: &str, max: u64) -> Rule {
    let quota = Quota::new(HOUR, max).expect("a valid quota");
    Rule::new(path, [quota]).expect("a valid rule")
}

async fn status_of(app: &Router, tenant: &str) -> u16 {
    let request = Request::get("/?query-s3cret").header("x-tenant", tenant);
    let request = request.header("authorization", "bearer-s3cret");
    let request = request.body(Body::empty()).expect("valid");
    let response = app.clone().oneshot(request).await.expect("no error");
    response.status().as_u16()
}

fn tenant() -> Header {
    Header::new("x-tenant")
}

fn is_summary(line: &&String) -> bool {
    line.contains("denied=")
}

fn has_secret(line: &&String) -> bool {
    line.contains("s3cret")
}

/// Keys, queries and passwords through decisions, denials, outages, waits and candidates.
#[tokio::test]
async fn no_secret_of_any_kind() {
    let log = Log::start();
    let mut server = Redis::start();
    let url = server.url.replace("//", "//default:s3cret@");
    redis::cmd("CONFIG")
        .arg(&["SET", "requirepass", "s3cret"])
        .exec(&mut server.connection())
        .expect("is set");
    let redis = RedisStore::connect(&*url).await.expect("the password");
    let around = Resilient::new(redis.timeout(millis(500)));
    let store = around.failures(3).fallback(Share::of_processes(1)).build();
    let secret = |head: &Parts| -> Result<Key, KeyError> {
        let value = head
            .headers
            .get("x-tenant")
            .map_or(&b""[..], |value| value.as_bytes());
        Ok(Key::from("s3cret").with_secret(value))
    };
    let rule = limited("a", 1).with_shadow(limited("a", 0));
    let limits = Limits::new([rule, limited("b", 0).into_shadow()]);
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
            for tenant in ["s3cret", "s3cret-of-another", "s3cret", "\u{1}s3cret"] {
                if !tenant.starts_with('\u{1}') {
                    status_of(app, tenant).await;
                    let hasty = timeout(Duration::from_micros(200), status_of(app, tenant));
                    let _ = hasty.await;
                }
            }
            // A key that is missing.
            let request = Request::get("/?s3cret").body(Body::empty()).expect("valid");
            app.clone().oneshot(request).await.expect("no error");
        }
        lines.extend(log.lines());
    }
    let ours = lines.iter().filter(|line| line.contains("tidegate"));
    assert!(ours.count() > 50, "too little was said: {lines:#?}");
    assert!(
        lines.iter().any(|line| line.contains("key=#")),
        "hashes were asked for"
    );
    let told: Vec<_> = lines.iter().filter(has_secret).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// Many rules, many requests: one line of a summary for each rule and ten seconds, and together the
/// summaries have all denials.
#[tokio::test(start_paused = true)]
async fn a_flood_over_many_rules() {
    const RULES: usize = 60;
    let log = Log::start();
    let paths: Vec<_> = (0..RULES).map(|number| format!("p{number}")).collect();
    let rules = paths.iter().map(|path| limited(path, 0));
    let limits = Limits::new(Rules::from_iter(rules)).store(MemoryStore::new().tokio_clock());
    let mut denied = vec![0_u64; RULES];
    let mut told = vec![0_u64; RULES];
    for second in 0..40 {
        for (number, path) in paths.iter().enumerate() {
            // A new layer each time: the counters are those of the rule.
            let app = app(limits.layer(path));
            for _ in 0..3 {
                assert_eq!(status_of(&app, "").await, 429);
                denied[number] += 1;
            }
        }
        let lines = log.lines_of(Level::INFO);
        let summaries: Vec<_> = lines.iter().filter(is_summary).collect();
        let expected = if second % 10 == 0 { RULES } else { 0 };
        assert_eq!(summaries.len(), expected, "at {second} s");
        assert_eq!(lines.len(), expected, "{lines:?}");
        for (number, path) in paths.iter().enumerate() {
            let of_path = summaries
                .iter()
                .filter(|line| line.contains(&format!("{path:?}")));
            for line in of_path {
                let after = line.split_once("denied=").expect("a number").1;
                let number_of = after.split(' ').next().expect("a number");
                told[number] += number_of.parse::<u64>().expect("a number");
            }
        }
        advance(Duration::from_secs(1)).await;
    }
    for app in paths.iter().map(|path| app(limits.layer(path))) {
        status_of(&app, "").await;
    }
    for line in log.lines_of(Level::INFO).iter().filter(is_summary) {
        let number = paths
            .iter()
            .position(|path| line.contains(&format!("{path:?}")));
        let after = line.split_once("denied=").expect("a number").1;
        let units: u64 = after
            .split(' ')
            .next()
            .expect("a number")
            .parse()
            .expect("a number");
        told[number.expect("a path")] += units;
        denied[number.expect("a path")] += 1;
    }
    assert_eq!(told, denied, "what was denied is in one summary");
}

/// Rules that are replaced at every request, switched off and on, or turned into shadows bring no
/// further summary.
#[tokio::test(start_paused = true)]
async fn replaced_rules_bring_no_further_summary() {
    let log = Log::start();
    let limits = Limits::new(Rules::from_iter([limited("a", 0)]));
    let app = app(limits.layer("a"));
    for round in 0..400 {
        let quota = Quota::new(HOUR, 0).expect("valid");
        let policy = Policy::new(&format!("n{round}"), quota);
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
    let infos = lines
        .iter()
        .filter(|line| line.trim_start().starts_with("INFO"));
    let warnings = lines
        .iter()
        .filter(|line| line.trim_start().starts_with("WARN"));
    assert_eq!(infos.count(), 1, "in 8 s");
    // There was no rule for a while, which is told once for each path.
    assert!(warnings.count() <= 1, "{lines:?}");
    let denials = lines.iter().filter(|line| line.contains(": denied "));
    assert_eq!(denials.count(), 100, "one event for each denial");
}

/// A store that always fails, and one that fails for a candidate alone: a few lines, however many
/// ask.
#[tokio::test(start_paused = true)]
async fn failures_are_told_on_changes_only() {
    let refused = || StoreError::new(StoreErrorKind::Refused, "a test refuses");
    let log = Log::start();
    let store = Stub::answering(MemoryStore::new(), move |_| {
        Some(StoreFuture::ready(Err(refused())))
    });
    let limits = Limits::new(Rules::from_iter([limited("a", 9)])).store(store);
    let app_of_a = app(limits.layer("a"));
    for _ in 0..1_000 {
        assert_eq!(status_of(&app_of_a, "").await, 503);
        advance(millis(100)).await;
    }
    let lines = log.lines_of(Level::WARN);
    assert_eq!(lines.len(), 1, "in 100 s without a change: {lines:?}");

    // An outage of candidates alone.
    let store = Stub::answering(MemoryStore::new(), move |take| {
        let error = || StoreFuture::boxed(async move { Err(refused()) });
        take.rule().is_shadow().then(error)
    });
    let rule = limited("a", 1_000_000).with_shadow(limited("a", 9));
    let limits = Limits::new(Rules::from_iter([rule])).store(store);
    let app_of_a = app(limits.layer("a"));
    for _ in 0..1_000 {
        assert_eq!(status_of(&app_of_a, "").await, 200);
        advance(millis(100)).await;
    }
    let mut lines = log.lines();
    lines.retain(|line| {
        !["TRACE", "DEBUG"].contains(&line.trim_start().split(' ').next().unwrap_or(""))
    });
    assert!(
        lines.len() <= 10,
        "{} lines: {:?}",
        lines.len(),
        lines.last()
    );
}

/// One store, many layers: each tells of an outage once, however long it lasts.
#[tokio::test(start_paused = true)]
async fn one_outage_of_many_layers() {
    let log = Log::start();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_max_keys(0));
    let paths: Vec<_> = (0..200).map(|number| format!("p{number}")).collect();
    let rules = paths.iter().map(|path| limited(path, 1));
    let limits = Limits::new(Rules::from_iter(rules)).store(store);
    let apps: Vec<_> = paths.iter().map(|path| app(limits.layer(path))).collect();
    for _ in 0..20 {
        for app in &apps {
            assert_eq!(status_of(app, "").await, 503);
        }
        advance(Duration::from_secs(1)).await;
    }
    let lines = log.lines_of(Level::WARN);
    assert!(lines.len() <= apps.len(), "{} lines", lines.len());
}

/// A name with a line end begins no line of its own, whatever it is the name of.
#[tokio::test]
async fn nothing_forges_a_line() {
    let log = Log::start();
    let forged = "a\nERROR forged: \u{1b}[31m by \"name\"\r\nERROR forged";
    for max in [0, 1] {
        let quota = Quota::new(HOUR, max).expect("valid");
        let rule = Rule::with_policies(forged, [Policy::new(forged, quota)]).expect("valid");
        let store: Arc<dyn Store> = match max {
            0 => Arc::new(MemoryStore::new()),
            _ => Arc::new(Stub::answering(MemoryStore::new(), |_| {
                let error = "a\nERROR forged: \u{1b}[31m";
                let error = StoreError::new(StoreErrorKind::Refused, error);
                Some(StoreFuture::ready(Err(error)))
            })),
        };
        let limits = Limits::new(Rules::from_iter([rule])).store(store);
        let app = app(limits.layer(forged).trace_hashed_keys());
        status_of(&app, "x").await;
        let other = self::app(limits.layer("b\nERROR forged"));
        status_of(&other, "x").await;
    }
    let lines = log.lines();
    assert!(!lines.is_empty());
    let forged = lines.iter().filter(|line| line.starts_with("ERROR forged"));
    assert_eq!(forged.count(), 0, "{lines:#?}");
    assert!(
        lines.iter().all(|line| !line.contains('\u{1b}')),
        "{lines:#?}"
    );
}

/// The span of a call ends, also if the request is dropped meanwhile.
#[tokio::test(start_paused = true)]
async fn spans_end_with_dropped_requests() {
    let log = Log::start();
    let store = Stub::answering(MemoryStore::new(), |_| {
        Some(StoreFuture::boxed(std::future::pending()))
    });
    let limits = Limits::new(Rules::from_iter([limited("a", 9)])).store(store);
    let app = app(limits.layer("a"));
    for _ in 0..20 {
        let answer = timeout(millis(10), status_of(&app, "")).await;
        assert!(answer.is_err());
    }
    let lines = log.lines();
    let of = |what: &str| {
        let lines = lines.iter().filter(|line| line.contains("tidegate.take"));
        lines
            .filter(|line| line.contains(&format!(": {what}")))
            .count()
    };
    assert_eq!((of("new"), of("close")), (20, 20), "{lines:#?}");
    assert_eq!(of("enter"), of("exit"));
}

/// What a watcher logs about a file that goes on being wrong: each content once.
#[tokio::test(start_paused = true)]
async fn a_wrong_file_is_told_once_for_each_content() {
    let log = Log::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let good = "[rules.a]\nmax-count = 5\nwindow = \"1h\"\n";
    std::fs::write(&file, good).expect("is written");
    let limits = Limits::from_file(&file).expect("valid");
    let _layer = limits.layer("a");
    limits.watch(&file).expect("a runtime");
    for text in [
        "[rules.a]\nmax-count = \"\u{1b}[31m\\nERROR forged\"",
        "",
        "\0",
        good,
    ] {
        std::fs::write(&file, text).expect("is written");
        sleep(Duration::from_secs(120)).await;
        let lines = log.lines();
        let loud = lines.iter().filter(|line| {
            ["WARN", "ERROR"]
                .iter()
                .any(|level| line.trim_start().starts_with(level))
        });
        let expected = usize::from(text != good);
        assert_eq!(loud.count(), expected, "{text:?}: {lines:#?}");
        assert!(
            lines.iter().all(|line| !line.contains('\u{1b}')),
            "{lines:#?}"
        );
        assert!(
            !lines.iter().any(|line| line.starts_with("ERROR forged")),
            "{lines:#?}"
        );
    }
}

/// A subscriber that reads everything at each event, as one does that publishes metrics: no event
/// is told while something is locked.
#[test]
fn a_subscriber_that_reads_everything() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("limits.toml");
        let text = |path: &str| format!("[rules.{path}]\nmax-count = 0\nwindow = \"1h\"\n");
        std::fs::write(&file, text("a")).expect("is written");
        let limits = Limits::from_file(&file).expect("valid");
        let (reader, told) = (limits.clone(), Rc::new(Cell::new(0)));
        let counting = Rc::clone(&told);
        Log::start().on_event(move || {
            counting.set(counting.get() + 1);
            let _ = (
                reader.status(),
                reader.snapshot(),
                reader.paths_without_rule(),
            );
            let rules = reader.rules().load();
            reader.rules().replace(Rules::clone(&rules));
            let _ = reader.layer("c").snapshot();
        });
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let app_of_a = app(limits.layer("a"));
            assert_eq!(status_of(&app_of_a, "").await, 429);
            assert_eq!(status_of(&app(limits.layer("b")), "").await, 200);
            limits.watch(&file).expect("a runtime");
            for text in [text("b"), text("a") + &text("b"), "x".to_owned(), text("b")] {
                std::fs::write(&file, text).expect("is written");
                let _ = limits.reload(&file);
                sleep(Duration::from_secs(3)).await;
                assert_eq!(status_of(&app_of_a, "").await, 429);
            }
        });
        sender.send(told.get()).expect("is awaited");
    });
    let told = receiver.recv_timeout(Duration::from_secs(60));
    assert!(told.expect("nothing is locked") > 10);
}
