//! Requests that are charged first, and given back by the outcome.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::{any, get as on_get};
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use kit::Redis;
use tidegate::metrics::RuleSnapshot;
use tidegate::rule::Quotas;
use tidegate::store::{Charges, StoreErrorKind, StoreFuture};
use tidegate::{
    Algorithm, Decision, FailOpen, Failed, Key, Limits, MemoryStore, Quota, RateLimitLayer,
    Recovery, Resilient, Rule, Rules, Store, StoreError, Take,
};
use tokio::sync::Notify;
use tower::{Layer, ServiceExt, service_fn};

use crate::{Stores, WINDOW, get, no_store, send, status, store_on};
use kit::per_minute;
use kit::stub::Stub;
use kit::stub::far;

const BOUND: Duration = Duration::from_secs(20);

fn refunding(max: u64, outcomes: &[&'static str]) -> Rule {
    per_minute("p", max)
        .with_refund_on(outcomes.iter().copied())
        .expect("valid")
}

fn limits(rule: Rule, store: &Arc<dyn Store>) -> Limits {
    Limits::new(Rules::from_iter([rule])).store(Arc::clone(store))
}

/// Answers `/200` with a 200, and so on.
fn status_app(layer: RateLimitLayer) -> Router {
    let handler = |Path(status): Path<u16>| async move {
        StatusCode::from_u16(status)
            .expect("a status")
            .into_response()
    };
    Router::new().route("/{status}", on_get(handler).layer(layer))
}

async fn used(store: &dyn Store, rule: &Rule) -> u64 {
    let take = Take::new(Arc::new(rule.clone()), Key::default());
    let left = store.peek(&take).await.expect("a decision").remaining();
    rule.quotas()[0].max() - left
}

/// The units that are charged after one request for each of these paths.
async fn used_after(layer: &RateLimitLayer, store: &dyn Store, rule: &Rule, paths: &[&str]) -> u64 {
    let app = status_app(layer.clone());
    for path in paths {
        send(&app, path).await;
    }
    assert!(layer.flush(BOUND).await);
    used(store, rule).await
}

fn counted(limits: &Limits) -> RuleSnapshot {
    limits.snapshot().rule("p").expect("a rule").clone()
}

#[tokio::test]
async fn only_failures_count() {
    for store in &Stores::start().await.all {
        // GCRA gives nothing back of a unit that has begun to drain.
        let exact = |algorithm: &Algorithm| *algorithm != Algorithm::Gcra;
        for algorithm in Algorithm::ALL.into_iter().filter(exact) {
            let rule = refunding(100, &["2xx", "304"]).with_algorithm(algorithm);
            let limits = limits(rule.clone(), store);
            let layer = limits.layer("p");
            let paths = ["/200", "/401", "/304", "/204", "/302", "/500", "/404"];
            let used = used_after(&layer, &**store, &rule, &paths).await;
            assert_eq!(used, 4, "{algorithm:?}");
            let p = counted(&limits);
            assert_eq!((p.refunds, p.refunded_units, p.refunds_lost), (3, 3, 0));
        }
    }
}

/// While four good requests of five allowed ones are in progress, a sixth is denied; not
/// afterwards.
#[tokio::test]
async fn requests_in_progress_count() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rule = refunding(5, &["2xx"]);
    let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(&store));
    let done = Arc::new(Notify::new());
    let wait = Arc::clone(&done);
    let handler = on_get(move || async move { wait.notified().await });
    let app = Router::new().route("/", handler.layer(layer));
    let running: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let app = app.clone();
                async move { status(&app, "/").await }
            })
        })
        .collect();
    while used(&*store, &rule).await < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(status(&app, "/").await, StatusCode::TOO_MANY_REQUESTS);
    done.notify_waiters();
    for running in running {
        assert_eq!(running.await.expect("no panic"), StatusCode::OK);
    }
    assert_eq!(used(&*store, &rule).await, 0);
}

#[tokio::test]
async fn a_condition_adds_to_the_rule() {
    for store in &Stores::start().await.all {
        let rule = refunding(100, &["204"]);
        let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(store));
        let layer = layer.refund_if(|response| match response.status.as_u16() {
            418 => panic!("a mistake"),
            status => status == 304,
        });
        let paths = ["/204", "/304", "/200", "/418", "/418"];
        let app = status_app(layer.clone());
        for path in paths {
            assert_eq!(status(&app, path).await.as_str(), &path[1..]);
        }
        assert!(layer.flush(BOUND).await);
        assert_eq!(used(&**store, &rule).await, 3);
    }
}

/// A handler that drops out, and one that ends with an error, with and without a callback.
#[tokio::test]
async fn what_has_no_response_has_failed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rule = refunding(100, &["2xx", "5xx"]);
    let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(&store));
    let layer = layer.refund_if(|_| true);
    let never = Router::new().route("/", on_get(std::future::pending::<()>).layer(layer.clone()));
    let dropped = tokio::time::timeout(Duration::from_millis(50), send(&never, "/")).await;
    assert!(dropped.is_err());
    assert_eq!(used(&*store, &rule).await, 1);

    let fails = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("broken"));
    let failed = layer.layer(fails).oneshot(get("/")).await;
    assert_eq!(failed.map(|_| ()), Err("broken"));
    assert_eq!(used(&*store, &rule).await, 2);

    let answering = layer.on_error_fn(|_| async { Recovery::from(StatusCode::OK) });
    let answered = answering.layer(fails).oneshot(get("/")).await;
    assert_eq!(answered.expect("an answer").status(), StatusCode::OK);
    assert_eq!(used(&*store, &rule).await, 3);
}

/// What a layer answers in the place of the handler is no outcome of the request.
#[tokio::test]
async fn responses_of_inner_layers_are_no_outcomes() {
    let all = ["1xx", "2xx", "3xx", "4xx", "5xx", "429", "503"];
    let inner = |max| RateLimitLayer::new("inner", WINDOW, max);
    let no_key = |_: &http::request::Parts| Err(tidegate::key::KeyError::absent("no key"));
    let panics = |_: &http::request::Parts| -> u64 { panic!("a mistake") };
    let teapot = |_: Failed| async { Recovery::from(StatusCode::IM_A_TEAPOT) };
    let cases = [
        ("denied", inner(0), 429),
        ("degraded", inner(0).degrade_fn(|_| async { "later" }), 200),
        ("failed", inner(5).store(no_store()), 503),
        (
            "answered by a callback",
            inner(5).store(no_store()).on_error_fn(teapot),
            418,
        ),
        ("without a key", inner(5).key(no_key), 400),
        ("a panic", inner(5).cost(panics), 500),
    ];
    for (what, inner, expected) in cases {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let rule = refunding(100, &all);
        let outer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(&store));
        let app = Router::new().route("/", on_get(async || "1").layer(inner.clone()));
        let response = send(&app.clone().layer(outer.clone()), "/").await;
        assert_eq!(response.status().as_u16(), expected, "{what}");
        assert_eq!(used(&*store, &rule).await, 1, "{what}");
        // A closure may say otherwise.
        let response = send(&app.layer(outer.refund_if(|_| true)), "/").await;
        assert_eq!(response.status().as_u16(), expected, "{what}");
        assert_eq!(used(&*store, &rule).await, 1, "{what}");
    }
    // An inner layer that admits is none of these.
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rule = refunding(100, &all);
    let outer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(&store));
    let proceeds = inner(5).store(no_store()).on_error(FailOpen);
    let app = Router::new().route("/", on_get(async || "1").layer(inner(5)));
    let app = app.layer(proceeds);
    assert_eq!(status(&app.layer(outer), "/").await, StatusCode::OK);
    assert_eq!(used(&*store, &rule).await, 0);
}

#[tokio::test]
async fn a_grpc_request_is_settled_by_its_status_in_the_head() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rule = refunding(100, &["2xx", "grpc-0", "grpc-5"]);
    let limits = limits(rule.clone(), &store);
    let handler = any(|Path(status): Path<String>| async move {
        match &*status {
            "trailers" => StatusCode::OK.into_response(),
            "proxy" => StatusCode::BAD_GATEWAY.into_response(),
            status => [("grpc-status", status.to_owned())].into_response(),
        }
    });
    let app = Router::new().route("/{status}", handler.layer(limits.layer("p")));
    let ask = async |content_type: &str, path: &str| {
        let before = used(&*store, &rule).await;
        let request = Request::post(path).header("content-type", content_type);
        let request = request.body(Body::empty()).expect("valid");
        app.clone().oneshot(request).await.expect("never fails");
        used(&*store, &rule).await - before
    };
    for (status, charged) in [("/0", 0), ("/5", 0), ("/8", 1), ("/proxy", 1), ("/ok", 1)] {
        assert_eq!(ask("application/grpc", status).await, charged, "{status}");
    }
    assert_eq!(ask("application/json", "/8").await, 0, "an HTTP request");
    let warnings = limits.warnings();
    assert!(warnings.is_empty(), "{warnings:?}");
    for _ in 0..3 {
        assert_eq!(ask("application/grpc+proto", "/trailers").await, 1);
    }
    let warnings = limits.warnings();
    assert_eq!(warnings.len(), 1);
    insta::assert_snapshot!(warnings[0], @r#""p" has refund-on, but a gRPC response has its grpc-status in the trailers, which come too late: nothing is given back; let the handler call Charges::refund"#);
}

/// Whoever comes first gives it back, and whoever settles has decided.
#[tokio::test]
async fn a_charge_is_given_back_or_settled_once() {
    for store in &Stores::start().await.all {
        let rule = refunding(100, &["2xx"]).with_cost(10);
        let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(store));
        let handler = on_get(async |Path(used): Path<u64>, charges: Charges| {
            let given_back = charges[0].settle(used).await.expect("an answer").given_back;
            assert_eq!(given_back, 10_u64.saturating_sub(used));
            assert_eq!(charges[0].settle(0).await.expect("an answer").given_back, 0);
            assert_eq!(charges.refund().await.expect("an answer"), 0);
        });
        let app = Router::new().route("/{used}", handler.layer(layer.clone()));
        for (path, expected) in [("/3", 3), ("/10", 13), ("/11", 24), ("/0", 24)] {
            assert_eq!(status(&app, path).await, StatusCode::OK);
            assert!(layer.flush(BOUND).await);
            assert_eq!(used(&**store, &rule).await, expected, "{path}");
        }
    }
}

/// A shadow rule counts what it would if it were enforced, and shows nothing of it.
#[tokio::test]
async fn a_shadow_rule_is_given_back() {
    for store in &Stores::start().await.all {
        let rule = refunding(100, &["2xx"]).into_shadow();
        let limits = limits(rule.clone(), store);
        let app = status_app(limits.layer("p"));
        for path in ["/200", "/200", "/401", "/200"] {
            let response = send(&app, path).await;
            assert!(
                response
                    .headers()
                    .keys()
                    .all(|name| !name.as_str().contains("ratelimit"))
            );
            assert!(Decision::from_extensions(response.extensions()).is_none());
            assert!(Charges::from_extensions(response.extensions()).is_empty());
        }
        assert!(limits.flush(BOUND).await);
        assert_eq!(used(&**store, &rule).await, 1);
        assert_eq!(counted(&limits).refunds, 3);
    }
}

/// The store answers the take of a shadow rule when the response has gone.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_response_is_given_back() {
    let store: Arc<dyn Store> = Arc::new(far(Duration::from_secs(1)));
    let rule = refunding(100, &["2xx"]).into_shadow();
    let limits = limits(rule.clone(), &store);
    let app = status_app(limits.layer("p"));
    for path in ["/200", "/401"] {
        send(&app, path).await;
    }
    assert!(
        !limits.flush(Duration::from_millis(10)).await,
        "it is asked"
    );
    assert!(limits.flush(Duration::from_secs(5)).await);
    assert_eq!(used(&*store, &rule).await, 1);
}

/// Whatever is given back of the rule is given back of its candidate.
#[tokio::test]
async fn a_candidate_is_given_back_with_its_rule() {
    for store in &Stores::start().await.all {
        let candidate = per_minute("p", 1_000).with_algorithm(Algorithm::FixedWindow);
        let rule = refunding(100, &["2xx"])
            .with_cost(10)
            .with_shadow(candidate);
        let candidate = rule.shadow().expect("it has one");
        let limits = limits(rule.clone(), store);
        let layer = limits.layer("p");
        let handler = on_get(
            async |Path(of): Path<String>, charges: Charges| match &*of {
                "refund" => {
                    (
                        charges.refund().await.expect("an answer"),
                        StatusCode::CONFLICT,
                    )
                        .1
                }
                "settle" => {
                    (
                        charges[0].settle(3).await.expect("an answer").given_back,
                        StatusCode::CONFLICT,
                    )
                        .1
                }
                "fail" => StatusCode::CONFLICT,
                _ => StatusCode::OK,
            },
        );
        let app = Router::new().route("/{of}", handler.layer(layer));
        for (path, expected) in [("/refund", 0), ("/settle", 3), ("/fail", 13), ("/ok", 13)] {
            send(&app, path).await;
            assert!(limits.flush(BOUND).await);
            assert_eq!(used(&**store, &rule).await, expected, "{path}");
            assert_eq!(used(&**store, candidate).await, expected, "{path}");
        }
        let p = counted(&limits);
        assert_eq!((p.refunds, p.refunded_units), (3, 27));
        let charge = limits
            .check("p", Key::default())
            .await
            .expect("admitted")
            .charge;
        assert_eq!(
            charge.expect("a charge").refund().await.expect("an answer"),
            10
        );
        assert!(limits.flush(BOUND).await);
        assert_eq!(used(&**store, candidate).await, 13);
    }
}

/// A reload between charge and outcome: the rule of the take says what happens.
#[tokio::test]
async fn the_rule_of_the_take_counts() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let old = refunding(100, &["2xx"]);
    let limits = limits(old.clone(), &store);
    let reload = limits.clone();
    let handler = on_get(move || async move {
        reload
            .rules()
            .replace(Rules::from_iter([per_minute("p", 100)]));
    });
    let app = Router::new().route("/", handler.layer(limits.layer("p")));
    send(&app, "/").await;
    assert_eq!(used(&*store, &old).await, 0);
    send(&app, "/").await;
    assert_eq!(used(&*store, &old).await, 1);
}

/// Refunds of a store in each of the ways in which it may fail to answer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Refunds {
    Never,
    Fail,
    Panic,
    PanicLater,
}

/// A memory store that counts the refunds that it is asked for, and does not answer them.
fn hostile(refunds: Refunds) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let memory = Stub::around(MemoryStore::new().tokio_clock());
    let store = memory.refund_fn(move |_, _, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        match refunds {
            Refunds::Never => StoreFuture::boxed(std::future::pending()),
            Refunds::Fail => StoreFuture::ready(Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "it fails",
            ))),
            Refunds::Panic => panic!("a mistake"),
            Refunds::PanicLater => StoreFuture::boxed(async { panic!("a mistake") }),
        }
    });
    (Arc::new(store), asked)
}

/// What is lost stays charged and is counted, no request notices it, and it is bounded in number
/// and time.
#[tokio::test(start_paused = true)]
async fn lost_refunds_are_counted_and_bounded() {
    for refunds in [
        Refunds::Never,
        Refunds::Fail,
        Refunds::Panic,
        Refunds::PanicLater,
    ] {
        let (store, asked) = hostile(refunds);
        let rule = refunding(100_000, &["2xx"]);
        let limits = limits(rule.clone(), &store);
        let app = status_app(limits.layer("p"));
        for _ in 0..5_000 {
            assert_eq!(status(&app, "/200").await, StatusCode::OK);
        }
        if refunds == Refunds::Never {
            assert_eq!(asked.load(Ordering::Relaxed), 4_096);
            assert_eq!(counted(&limits).refunds_lost, 5_000 - 4_096);
            assert!(!limits.flush(Duration::from_secs(1)).await);
        }
        assert!(limits.flush(Duration::from_secs(11)).await, "{refunds:?}");
        let p = counted(&limits);
        assert_eq!((p.refunds, p.refunds_lost), (0, 5_000), "{refunds:?}");
        assert_eq!(used(&*store, &rule).await, 5_000);
    }
}

/// The runtime of a request ends while the store has not answered, and another one goes on.
#[test]
fn a_runtime_that_ends_loses_its_own_refunds() {
    let (store, _) = hostile(Refunds::Never);
    let limits = limits(refunding(100, &["2xx"]), &store);
    let layer = limits.layer("p");
    for round in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let app = status_app(layer.clone());
            assert_eq!(status(&app, "/200").await, StatusCode::OK);
            assert!(!layer.flush(Duration::from_millis(20)).await);
        });
        drop(runtime);
        assert_eq!(counted(&limits).refunds_lost, round);
    }
}

/// A layer around a memory store needs no runtime, also where it gives back.
#[test]
fn a_memory_store_gives_back_inline() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rule = refunding(100, &["2xx"]);
    let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(&store));
    let ok = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let response = futures_util::FutureExt::now_or_never(layer.layer(ok).oneshot(get("/")));
    response.expect("it is there").expect("never fails");
    let left = futures_util::FutureExt::now_or_never(used(&*store, &rule));
    assert_eq!(left, Some(0));
}

/// Redis goes away between takes and refunds: bounded, counted, and nothing is over the max.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_gone_between_take_and_refund() {
    let server = Redis::start();
    let store: Arc<dyn Store> = Arc::new(store_on(&server).await.timeout(Duration::from_secs(1)));
    let rule = refunding(1_000, &["2xx"]);
    let limits = limits(rule.clone(), &store);
    let (taken, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let handler = on_get({
        let (taken, gone) = (Arc::clone(&taken), Arc::clone(&gone));
        move || async move {
            let is_gone = gone.notified();
            taken.fetch_add(1, Ordering::Relaxed);
            is_gone.await;
        }
    });
    let app = Router::new().route("/", handler.layer(limits.layer("p")));
    let requests = (0..50).map(|_| status(&app, "/"));
    let stop = async {
        while taken.load(Ordering::Relaxed) < 50 {
            tokio::task::yield_now().await;
        }
        drop(server);
        gone.notify_waiters();
    };
    let (answers, ()) = tokio::join!(join_all(requests), stop);
    assert!(answers.iter().all(|status| *status == StatusCode::OK));
    assert!(limits.flush(BOUND).await);
    let p = counted(&limits);
    assert_eq!((p.refunds, p.refunds_lost), (0, 50));
}

/// Refunds that are not answered need no permits of those that takes need.
#[tokio::test(start_paused = true)]
async fn refunds_crowd_out_no_takes() {
    let store = Resilient::bare(hostile(Refunds::Never).0).in_flight(1);
    let limits = Limits::new([refunding(100, &["2xx"])]).store(store);
    let app = status_app(limits.layer("p"));
    for _ in 0..50 {
        assert_eq!(status(&app, "/200").await, StatusCode::OK);
    }
}

/// A rule that counts by the minute and by the hour loses the hour, or a plan with it: good
/// requests are still given back, at once.
#[tokio::test]
async fn a_reload_that_takes_the_longest_window_away_leaves_refunds_as_they_are() {
    let (minute, hour) = (("60s", 4), ("1h", 100));
    let file = |quotas: &[(&str, u64)], plan: &str| {
        let quota = |(window, max): &(&str, u64)| {
            format!("[[rules.p.quotas]]\nwindow = \"{window}\"\nmax-count = {max}\n")
        };
        let quotas: String = quotas.iter().map(quota).collect();
        format!("[rules.p]\nrefund-on = [\"2xx\"]\n{quotas}{plan}")
    };
    let plan = "[rules.p.plans.pro]\nmax-count = 100\nwindow = \"1h\"\n";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    for before in [file(&[minute, hour], ""), file(&[minute], plan)] {
        for store in &Stores::start().await.all {
            std::fs::write(&path, &before).expect("is written");
            let limits = Limits::from_file(&path)
                .expect("valid")
                .store(Arc::clone(store));
            let layer = limits.layer("p");
            let app = status_app(layer.clone());
            assert_eq!(status(&app, "/401").await, StatusCode::UNAUTHORIZED);
            std::fs::write(&path, file(&[minute], "")).expect("is written");
            limits.reload(&path).expect("valid");
            for _ in 0..20 {
                assert_eq!(status(&app, "/200").await, StatusCode::OK);
                assert!(layer.flush(BOUND).await);
            }
            let p = counted(&limits);
            assert_eq!((p.refunds, p.refunds_lost), (20, 0));
        }
    }
}

/// Two processes that know of different quotas take turns on a key.
#[tokio::test]
async fn quotas_from_code_that_other_processes_do_not_know_leave_refunds_as_they_are() {
    for store in &Stores::start().await.all {
        let process = |quota: Quota| {
            let quotas = Arc::new(Quotas::new([quota]).expect("valid"));
            let layer = RateLimitLayer::from_rule(refunding(4, &["2xx"]));
            let layer = layer.store(Arc::clone(store));
            layer.quotas(move |_| Some(Arc::clone(&quotas)))
        };
        let one = process(Quota::new(100 * WINDOW, 4).expect("valid"));
        let other = process(Quota::new(WINDOW, 4).expect("valid"));
        for layer in [&one, &other].into_iter().cycle().take(20) {
            let app = status_app(layer.clone());
            assert_eq!(status(&app, "/200").await, StatusCode::OK);
            assert!(layer.flush(BOUND).await);
        }
        for _ in 0..3 {
            assert_eq!(
                status(&status_app(one.clone()), "/401").await,
                StatusCode::UNAUTHORIZED
            );
        }
        for layer in [&other, &one].into_iter().cycle().take(20) {
            let app = status_app(layer.clone());
            assert_eq!(status(&app, "/200").await, StatusCode::OK);
            assert!(layer.flush(BOUND).await);
        }
    }
}
