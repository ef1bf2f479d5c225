//! What is logged, and how often.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate::store::StoreFuture;

use crate::*;

/// The only line, which has all these parts.
fn only(lines: &[String], parts: &[&str]) {
    let [line] = lines else {
        panic!("{lines:?}");
    };
    for part in parts {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test]
async fn a_panic_is_logged() {
    let log = Log::start();
    let panics = async |_: Denied| -> () { panic!("oops\u{202e}") };
    let layer = RateLimitLayer::new("p", WINDOW, 0).degrade(panics);
    assert_eq!(status(&app_at("/p", layer), "/p").await, 500);
    let mut lines = log.lines();
    lines.retain(|line| !line.contains("requests were denied"));
    only(&lines, &["ERROR", "degrade callback", "oops"]);
    assert!(!lines[0].contains('\u{202e}'), "{lines:?}");
}

/// A server without peer addresses: logged once, with what to do about it.
#[tokio::test]
async fn a_servers_mistake_is_logged_once() {
    let log = Log::start();
    let app = app_at("/p", RateLimitLayer::new("p", WINDOW, 5).key(PeerIp));
    for _ in 0..50 {
        assert_eq!(status(&app, "/p").await, 500);
    }
    only(
        &log.lines(),
        &["WARN", "into_make_service_with_connect_info"],
    );
}

/// A client that leaves its key out is no failure of the store. Each key of a rule is told of once,
/// however many layers and new rules it has, and nothing that clients send.
#[tokio::test]
async fn a_clients_mistake_is_logged_once() {
    let log = Log::start();
    let rule = |key: &str| {
        let quota = |key| format!("{{ max-count = 1000, window = '1h', key = '{key}' }}");
        let quotas = key.split(", ").map(quota).collect::<Vec<_>>().join(", ");
        Rules::from_toml(&format!("[rules.p]\nquotas = [{quotas}]")).expect("valid")
    };
    let limits = Limits::new([]);
    for (key, field, expected) in [
        ("header:x-tenant", "", "header.x-tenant"),
        ("header:x-tenant", "", ""),
        ("basic-user", "authorization: Basic s3cret", "basic-user"),
        (
            "bearer | cookie:id",
            "cookie: id=a; id=s3cret",
            "bearer | cookie.id",
        ),
        (
            "basic-user, header:x-user",
            "authorization: Basic eDp4",
            "header.x-user",
        ),
        ("bearer | cookie:id", "", ""),
    ] {
        limits.rules().replace(rule(key));
        let apps = [app_of(&limits, &["p"]), app_of(&limits, &["p"])];
        let usage = limits.usage(["p"]).expect("a key");
        for app in &apps {
            assert_eq!(statuses(app, "/p", field, 20).await, [400; 20]);
            let head = request("/p", field).into_parts().0;
            usage.read(head).await.expect_err("no key");
        }
        let lines = log.lines();
        match expected {
            "" => assert_eq!(lines, Vec::<String>::new(), "{key}"),
            _ => only(
                &lines,
                &["WARN", "gets a 400", "path=\"p\"", &format!("{expected:?}")],
            ),
        }
        assert!(!lines.concat().contains("s3cret"), "{lines:?}");
    }
}

/// A debug event for each denial says which quota had no room, and no key.
#[tokio::test(start_paused = true)]
async fn a_denial_is_a_debug_event() {
    let log = Log::start();
    let policies = [("burst", 2, WINDOW), ("daily", 5, 2 * WINDOW)];
    let policies = policies.map(|(name, max, window)| Policy::new(name, quota(max, window)));
    let rule = Rule::with_policies("p", policies).expect("valid");
    let layer = RateLimitLayer::from_rule(rule)
        .key(|_: &Parts| Ok(Key::from("alice")))
        .store(paused());
    let app = app_at("/p", layer.clone());
    for _ in 0..2 {
        assert_eq!(status(&app, "/p").await, 200);
    }
    assert_eq!(denials(&log), Vec::<String>::new());
    assert_eq!(status(&app, "/p").await, 429);
    let lines = denials(&log);
    let parts = [
        "path=\"p\"",
        "quotas=\"burst\"",
        "cost=1",
        "retry_after_seconds=60.0",
        "source=\"local\"",
    ];
    only(&lines, &parts);
    assert!(!lines[0].contains("alice") && !lines[0].contains("key"));

    let app = app_at("/p", layer.trace_hashed_keys());
    assert_eq!(status(&app, "/p").await, 429);
    let lines = denials(&log);
    // The first 128 bits of SHA-256 of "alice".
    only(&lines, &["key=#2bd806c97f0e00af1a1fc3328fa763a9"]);
    assert!(!lines[0].contains("alice"));
}

fn denials(log: &Log) -> Vec<String> {
    let mut lines = log.lines_with_debug();
    lines.retain(|line| line.contains(": denied "));
    lines
}

/// However many requests are denied, and by however many layers of the rule: the first at once, the
/// others at the end of the ten seconds, or where the process ends before.
#[tokio::test(start_paused = true)]
async fn denials_are_summed_up_every_ten_seconds() {
    let log = Log::start();
    let rule = Rule::new("p", [Quota::per_day(2)]).expect("valid");
    let limits = Limits::new([rule]).key(Everyone);
    let apps = [(); 2].map(|()| app_at("/p", limits.layer("p")));
    let denied = async |times: usize| {
        for _ in 0..times {
            send(&apps[0], "/p").await;
        }
    };
    for _ in 0..99 {
        for app in &apps {
            send(app, "/p").await;
        }
        sleep(millis(10)).await;
    }
    let first = "path=\"p\" denied=1 allowed=2 seconds=0";
    only(&log.lines(), &["INFO", first]);
    sleep(9 * SECOND).await;
    assert_eq!(log.lines(), [""; 0]);
    sleep(SECOND).await;
    only(&log.lines(), &["denied=195 allowed=0 seconds=10"]);
    sleep(11 * SECOND).await;
    assert_eq!(log.lines(), [""; 0], "nothing was denied");
    denied(3).await;
    only(&log.lines(), &["denied=1 allowed=0 seconds=11"]);
    assert!(limits.flush(SECOND).await);
    only(&log.lines(), &["denied=2 allowed=0 seconds=0"]);
}

/// The last line of a process that ends within the ten seconds.
#[test]
fn denials_are_told_when_the_runtime_ends() {
    let log = Log::start();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let app = app_at("/p", RateLimitLayer::new("p", WINDOW, 0));
        for _ in 0..5 {
            send(&app, "/p").await;
        }
    });
    only(&log.lines(), &["denied=1 "]);
    drop(runtime);
    only(&log.lines(), &["denied=4 "]);
}

/// What becomes of the requests of an outage, once for all rules of its store, and what it was.
#[tokio::test(start_paused = true)]
async fn an_outage_is_told_once() {
    let on_error = |path: &str, what: OnError| {
        let rule = Rule::new(path, [Quota::per_day(9)]).expect("valid");
        rule.with_on_error(what)
    };
    let paths = ["a", "b", "c"];
    for (what, callback, said) in [
        (OnError::Proceed, false, "admitted without a limit"),
        (OnError::Respond, false, "answered 503"),
        (OnError::Respond, true, "the error callback answers"),
    ] {
        let log = Log::start();
        let fails = Arc::new(AtomicBool::new(true));
        let is_failing = Arc::clone(&fails);
        let store = Stub::answering(paused(), move |_| {
            let error = StoreError::new(StoreErrorKind::Unavailable, "down");
            let fails = is_failing.load(Ordering::Relaxed);
            fails.then(|| StoreFuture::ready(Err(error)))
        });
        let mut limits = kit::limits(paths.map(|path| on_error(path, what)), store);
        if callback {
            limits = limits.on_error(FailOpen);
        }
        for path in paths {
            let app = app_at("/", limits.layer(path));
            statuses(&app, "/", "", 4).await;
            advance(SECOND).await;
        }
        only(
            &log.lines(),
            &["WARN", "path=\"a\"", "no decisions: ", said],
        );
        fails.store(false, Ordering::Relaxed);
        statuses(&app_at("/", limits.layer("b")), "/", "", 4).await;
        let all = "the store decides again rules=3 requests=12 seconds=3";
        only(&log.lines(), &["INFO", all]);
        // A short one soon after it is not told, and no part of the next one.
        let app = app_at("/", limits.layer("b"));
        for (pause, told) in [(SECOND, 0), (10 * SECOND, 2)] {
            advance(pause).await;
            fails.store(true, Ordering::Relaxed);
            statuses(&app, "/", "", 2).await;
            fails.store(false, Ordering::Relaxed);
            statuses(&app, "/", "", 2).await;
            let lines = log.lines();
            assert_eq!(lines.len(), told, "{lines:?}");
            let ends = lines
                .last()
                .is_none_or(|it| it.contains("rules=1 requests=2 "));
            assert!(ends, "{lines:?}");
        }
    }
}

/// The span ends with the answer, also if that had to be waited for.
#[tokio::test]
async fn a_span_around_the_call_of_the_store() {
    let stores = Stores::start().await;
    let limited = || RateLimitLayer::new("p", WINDOW, 1);
    for (store, name) in stores.all.iter().zip(["memory", "redis"]) {
        let log = Log::start();
        let app = app_at("/p", limited().store(Arc::clone(store)));
        for outcome in ["allowed", "denied"] {
            send(&app, "/p").await;
            let mut lines = log.lines_with_debug();
            lines.retain(|line| line.contains("tidegate.take") && line.contains("close"));
            only(
                &lines,
                &["path=\"p\"", name, &format!("outcome=\"{outcome}\"")],
            );
        }
    }
    let log = Log::start();
    send(&app_at("/p", limited().store(no_store())), "/p").await;
    let lines = log.lines_with_debug();
    let is_told = lines.iter().any(|line| line.contains("error="));
    assert!(is_told, "{lines:?}");
}
