//! Requests that are charged first, and given back by the outcome.

use std::future::pending;

use axum::extract::Path;
use axum::response::AppendHeaders;
use axum::routing::get as on_get;

use crate::*;

fn refunding(max: u64, outcomes: &[&'static str]) -> Rule {
    crate::refunding("p", max, outcomes)
}

fn layer(rule: &Rule, store: &Arc<dyn Store>) -> RateLimitLayer {
    RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(store))
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Answers `/200` with a 200, and so on.
fn status_app(layer: RateLimitLayer) -> Router {
    let handler = async |Path(status): Path<u16>| StatusCode::from_u16(status).expect("a status");
    Router::new().route("/{status}", on_get(handler).layer(layer))
}

/// Around a service that answers each request with an error.
async fn failing(layer: &RateLimitLayer) -> Result<Response<Body>, &'static str> {
    let fails = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("broken"));
    layer.layer(fails).oneshot(get("/")).await
}

async fn used(store: &Arc<dyn Store>, rule: &Rule) -> u64 {
    let take = Take::new(Arc::new(rule.clone()), Key::default());
    let left = store.peek(&take).await.expect("a decision").remaining();
    rule.quotas()[0].max() - left
}

/// Number and units of the refunds of `p`, and how many were lost.
fn refunds(limits: &Limits) -> (u64, u64, u64) {
    let p = counted(limits, "p");
    (p.refunds, p.refunded_units, p.refunds_lost)
}

/// What comes back.
#[test]
fn scenes() {
    kit::call_steps::play_calls("tests/layer/outcomes.txt");
}

#[tokio::test]
async fn a_condition_adds_to_the_rule() {
    for store in &Stores::start().await.all {
        let rule = refunding(100, &["204"]);
        let layer = layer(&rule, store).refund_if(|response| match response.status.as_u16() {
            418 => panic!("a mistake"),
            status => status == 304,
        });
        let app = status_app(layer.clone());
        for path in ["/204", "/304", "/200", "/418", "/418"] {
            assert_eq!(status(&app, path).await.as_str(), &path[1..]);
        }
        assert!(layer.flush(PATIENT).await);
        assert_eq!(used(store, &rule).await, 3);
    }
}

/// A handler that drops out, and one that ends with an error, with and without a callback.
#[tokio::test]
async fn what_has_no_response_has_failed() {
    let (store, rule) = (memory(), refunding(100, &["2xx", "5xx"]));
    let layer = layer(&rule, &store).refund_if(|_| true);
    let never = Router::new().route("/", on_get(pending::<()>).layer(layer.clone()));
    assert!(send(&never, "/").now_or_never().is_none());
    assert_eq!(used(&store, &rule).await, 1);

    assert_eq!(failing(&layer).await.map(|_| ()), Err("broken"));
    assert_eq!(used(&store, &rule).await, 2);

    let answering = layer.on_error_fn(|_| async { Recovery::from(OK) });
    let answered = failing(&answering).await.expect("an answer");
    assert_eq!(answered.status(), OK);
    assert_eq!(used(&store, &rule).await, 2, "it is the service's answer");
}

/// What a layer answers in the place of the handler is no outcome of the request.
#[tokio::test]
async fn responses_of_inner_layers_are_no_outcomes() {
    let rule = refunding(100, &["1xx", "2xx", "3xx", "4xx", "5xx", "429", "503"]);
    let inner = |max| RateLimitLayer::new("inner", WINDOW, max);
    let undecided = || inner(5).store(no_store());
    let no_key = |_: &http::request::Parts| Err(tidegate::key::KeyError::absent("no key"));
    let panics = |_: &http::request::Parts| -> u64 { panic!("a mistake") };
    let teapot = |_: Failed| async { Recovery::from(StatusCode::IM_A_TEAPOT) };
    let cases = [
        ("denied", inner(0), 429),
        ("degraded", inner(0).degrade_fn(|_| async { "later" }), 200),
        ("failed", undecided(), 503),
        ("answered", undecided().on_error_fn(teapot), 418),
        ("without a key", inner(5).key(no_key), 400),
        ("a panic", inner(5).cost(panics), 500),
    ];
    for (what, inner, expected) in cases {
        let store = memory();
        let app = kit::app(inner);
        let status = status(&app.clone().layer(layer(&rule, &store)), "/").await;
        let found = (status.as_u16(), used(&store, &rule).await);
        assert_eq!(found, (expected, 1), "{what}");
        // A closure may say otherwise.
        let all = layer(&rule, &store).refund_if(|_| true);
        let status = crate::status(&app.layer(all), "/").await;
        let got = (status.as_u16(), used(&store, &rule).await);
        assert_eq!(got, (expected, 1), "{what}");
    }
    // An inner layer that admits is none of these.
    let store = memory();
    let app = kit::app(inner(5)).layer(undecided().on_error(FailOpen));
    assert_eq!(status(&app.layer(layer(&rule, &store)), "/").await, OK);
    assert_eq!(used(&store, &rule).await, 0);
}

/// What comes in trailers comes too late, which is told once: where no status is asked for, nothing
/// is given back either. A request that only looks like one of gRPC changes nothing.
#[tokio::test]
async fn a_grpc_answer_without_a_status_in_its_head() {
    const JSON: &str = "application/json";
    const GRPC: &str = "application/grpc";
    const PROTO: &str = "application/grpc+proto";
    for (outcomes, request, response, status, is_warned) in [
        ("2xx grpc-0 grpc-5", JSON, PROTO, "", true),
        ("grpc-0", GRPC, GRPC, "", true),
        ("grpc-0", GRPC, GRPC, "0", false),
        ("grpc-0 2xx", GRPC, GRPC, "", true),
        ("2xx", GRPC, GRPC, "", true),
        ("grpc-0", "", "text/plain", "", false),
        ("2xx", "", "text/plain", "", false),
    ] {
        let (store, rule) = (memory(), refunding(100, &words(outcomes)));
        let limits = limits_of(&rule, &store).key(Everyone);
        let handler = any(move || async move {
            let status = (!status.is_empty()).then_some(("grpc-status", status));
            AppendHeaders([("content-type", response)].into_iter().chain(status))
        });
        let app = Router::new().route("/", handler.layer(limits.layer("p")));
        let case = format!("{outcomes}: {request} {response} {status}");
        for _ in 0..4 {
            let answer = call(&app, post("/", &format!("content-type: {request}"))).await;
            assert_eq!(answer.status(), OK, "{case}");
        }
        let warnings = limits.warnings();
        assert_eq!(warnings.len(), usize::from(is_warned), "{case}");
        for warning in warnings {
            assert_eq!(used(&store, &rule).await, 4, "{case}");
            insta::allow_duplicates! {
                insta::assert_snapshot!(warning, @r#""p" has refund-on, but a gRPC response has its grpc-status in the trailers, or in the body of gRPC-Web, which come too late: it gives nothing back, and is no failure; let the handler call Charges::refund, or Charges::failed under a lockout, or add such as "grpc-16" to its on, and put GrpcWebLayer outside"#);
            }
        }
    }
}

/// The store answers the take of a shadow rule when the response has gone.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_response_is_given_back() {
    let store: Arc<dyn Store> = Arc::new(far(SECOND));
    let rule = refunding(100, &["2xx"]).into_shadow();
    let limits = limits_of(&rule, &store);
    let app = status_app(limits.layer("p"));
    for path in ["/200", "/401"] {
        send(&app, path).await;
    }
    assert!(!limits.flush(millis(10)).await, "it is asked");
    assert!(limits.flush(5 * SECOND).await);
    assert_eq!(used(&store, &rule).await, 1);
}

/// Refunds of a store in each of the ways in which it may fail to answer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Refunds {
    Never,
    Fail,
    Panic,
    PanicLater,
}

/// A memory store that does not answer refunds, which it counts. It takes 5 ms to answer those of
/// the rule `good`.
fn hostile(refunds: Refunds) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&asked);
    let memory = Stub::around(MemoryStore::new().tokio_clock());
    let store = memory.refund_fn(move |memory, take, receipt| {
        if take.name("").starts_with("good") {
            let answer = memory.refund(take, receipt);
            return StoreFuture::boxed(async { sleep(millis(5)).then(|()| answer).await });
        }
        let number = counted.fetch_add(1, Ordering::Relaxed);
        let kinds = [StoreErrorKind::Unavailable, StoreErrorKind::Refused];
        let error = StoreError::new(kinds[number % 2], "it fails");
        match refunds {
            Refunds::Never => StoreFuture::boxed(pending()),
            Refunds::Fail => StoreFuture::ready(Err(error)),
            Refunds::Panic => panic!("a mistake"),
            Refunds::PanicLater => StoreFuture::boxed(async {
                sleep(millis(5)).await;
                panic!("a mistake")
            }),
        }
    });
    (Arc::new(store), asked)
}

/// Sends good requests through a layer, all of which are answered.
async fn pass(layer: &RateLimitLayer, times: u64) {
    let app = status_app(layer.clone());
    for number in 0..times {
        assert_eq!(status(&app, "/200").await, OK, "request {number}");
    }
}

/// What is lost stays charged and is counted, no request notices it, and it is bounded in number
/// and time, for each layer of its own, and for limits. Law 13: another rule of the store gets its
/// own back at once, unless the queue is full, and again when it is not.
#[tokio::test(start_paused = true)]
async fn lost_refunds_are_counted_and_bounded() {
    for (refunds, requests) in [
        (Refunds::Never, 5_000),
        (Refunds::Fail, 500),
        (Refunds::Panic, 100),
        (Refunds::PanicLater, 100),
    ] {
        let (store, asked) = hostile(refunds);
        let (rule, good) = (refunding(100_000, &["2xx"]), per_minute("good", 500));
        let good = good.with_refund_on(["2xx"]).expect("valid outcomes");
        let limits = Limits::new([rule.clone(), good.clone()]).store(Arc::clone(&store));
        let [bad_layer, good_layer] = ["p", "good"].map(|path| limits.layer(path));
        let good_ones = || {
            let it = counted(&limits, "good");
            (it.refunds, it.refunded_units, it.refunds_lost)
        };
        for _ in 0..100 {
            pass(&bad_layer, 1).await;
            pass(&good_layer, 1).await;
        }
        sleep(SECOND).await;
        assert_eq!(good_ones(), (100, 100, 0), "{refunds:?}");
        assert_eq!(used(&store, &good).await, 0, "{refunds:?}");
        pass(&bad_layer, requests - 100).await;
        if refunds == Refunds::Never {
            assert_eq!(asked.load(Ordering::Relaxed), 4_096);
            assert_eq!(counted(&limits, "p").refunds_lost, requests - 4_096);
            assert!(!limits.flush(SECOND).await);
            pass(&good_layer, 10).await;
            assert_eq!(good_ones(), (100, 100, 10));
            for path in ["l0", "l1", "l2"] {
                let alone = layer(&crate::refunding(path, 100_000, &["2xx"]), &store);
                pass(&alone, 4_100).await;
                assert_eq!(alone.snapshot().expect("used").refunds_lost, 4, "{path}");
            }
        }
        assert!(limits.flush(11 * SECOND).await, "{refunds:?}");
        assert_eq!(self::refunds(&limits), (0, 0, requests), "{refunds:?}");
        assert_eq!(used(&store, &rule).await, requests);
        pass(&good_layer, 1).await;
        assert!(limits.flush(SECOND).await, "{refunds:?}");
        let lost = if refunds == Refunds::Never { 10 } else { 0 };
        assert_eq!(good_ones(), (101, 101, lost), "{refunds:?}");
        assert_eq!(used(&store, &good).await, lost, "{refunds:?}");
    }
}

/// The runtime of a request ends while the store has not answered, and another one goes on: nothing
/// is under way there, whoever asks.
#[test]
fn a_runtime_that_ends_loses_its_own_refunds() {
    let (store, _) = hostile(Refunds::Never);
    let limits = limits_of(&refunding(1_000, &["2xx"]), &store);
    let layer = limits.layer("p");
    for round in 1..=3 {
        let runtime = [runtime, still_runtime][usize::from(round > 1)]();
        runtime.block_on(async {
            pass(&layer, 10).await;
            assert!(!layer.flush(millis(20)).await);
        });
        match round {
            1 => runtime.shutdown_background(),
            _ => drop(runtime),
        }
        let other = still_runtime();
        assert!(other.block_on(limits.flush(15 * SECOND)), "round {round}");
        assert_eq!(refunds(&limits), (0, 0, 10 * round));
    }
}

/// A layer around a memory store needs no runtime, also where it gives back.
#[test]
fn a_memory_store_gives_back_inline() {
    let (store, rule) = (memory(), refunding(100, &["2xx"]));
    let ok = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let response = layer(&rule, &store).layer(ok).oneshot(get("/"));
    response
        .now_or_never()
        .expect("it is there")
        .expect("never fails");
    assert_eq!(used(&store, &rule).now_or_never(), Some(0));
}

/// Refunds that are not answered need no permits of those that takes need.
#[tokio::test(start_paused = true)]
async fn refunds_crowd_out_no_takes() {
    let store = Resilient::bare(hostile(Refunds::Never).0).in_flight(1);
    let limits = Limits::new([refunding(100, &["2xx"])]).store(store);
    let app = status_app(limits.layer("p"));
    for _ in 0..50 {
        assert_eq!(status(&app, "/200").await, OK);
    }
}

/// A rule that counts by the minute and by the hour loses the hour, or a plan with it: good
/// requests are still given back, at once.
#[tokio::test]
async fn a_reload_that_takes_the_longest_window_away_leaves_refunds_as_they_are() {
    let quota =
        |window, max| format!("[[rules.p.quotas]]\nwindow = \"{window}\"\nmax-count = {max}\n");
    let minute = format!("[rules.p]\nrefund-on = [\"2xx\"]\n{}", quota("60s", 4));
    let plan = "[rules.p.plans.pro]\nmax-count = 100\nwindow = \"1h\"\n";
    for more in [&quota("1h", 100), plan] {
        for store in &Stores::start().await.all {
            let file = LimitsFile::new(format!("{minute}{more}"));
            let limits = file.limits().store(Arc::clone(store));
            let app = status_app(limits.layer("p"));
            assert_eq!(status(&app, "/401").await, StatusCode::UNAUTHORIZED);
            file.reload(&limits, &minute);
            for _ in 0..20 {
                assert_eq!(status(&app, "/200").await, OK);
                assert!(limits.flush(PATIENT).await);
            }
            assert_eq!(refunds(&limits), (20, 20, 0));
        }
    }
}

/// Two processes that know of different quotas take turns on a key.
#[tokio::test]
async fn quotas_from_code_that_other_processes_do_not_know_leave_refunds_as_they_are() {
    for store in &Stores::start().await.all {
        let process = |window| {
            let quotas = crate::plan_value([quota(4, window)]);
            let layer = layer(&refunding(4, &["2xx"]), store);
            layer.plan_value(move |_| Some(quotas.clone()))
        };
        let (one, other) = (process(100 * WINDOW), process(WINDOW));
        let take_turns = async |layers: [&RateLimitLayer; 2]| {
            for layer in layers.into_iter().cycle().take(20) {
                let app = status_app(layer.clone());
                assert_eq!(status(&app, "/200").await, OK);
                assert!(layer.flush(PATIENT).await);
            }
        };
        take_turns([&one, &other]).await;
        let app = status_app(one.clone());
        for _ in 0..3 {
            assert_eq!(status(&app, "/401").await, StatusCode::UNAUTHORIZED);
        }
        take_turns([&other, &one]).await;
    }
}
