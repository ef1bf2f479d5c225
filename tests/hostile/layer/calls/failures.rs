//! Stores that hang and fail: in bounded time, and answered as in a layer.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::{IntoResponse, Response};
use kit::proxy::Mode;
use tidegate::callback::{AlsoWithFallback, FailureKind};
use tidegate::layer::CallError;
use tidegate::rule::{OnError, Share};
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{ErrorCallbackChain, Failed, Recovery, Resilient, StoreError};
use tower::ServiceExt;

use super::*;
use kit::http::text;
use kit::stub::Stub;

/// It hangs for ever, except for the questions of other rules.
fn hangs() -> Stub {
    Stub::in_memory().take_fn(|_, _| StoreFuture::boxed(std::future::pending()))
}

fn fails() -> Stub {
    Stub::in_memory().take_fn(|_, _| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        StoreFuture::ready(Err(error))
    })
}

/// Law 6, through a proxy that holds everything back: callbacks, chains and errors in bounded time.
#[tokio::test]
async fn a_server_that_hangs_costs_the_timeout() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = Resilient::redis(&*proxy.url, "shop").expect("valid");
    let store = store.timeout(millis(100)).fallback(None);
    let limits = limits(at_a_time(5), store);
    let call = || limits.call("p").key("k").wait(PATIENT);
    until("it is connected", async || {
        call().run(async || ()).await.is_ok()
    })
    .await;
    proxy.all(Mode::Hold);
    let chain = ErrorCallbackChain::<u8>::default()
        .on::<StoreError>(async |_: Failed| Recovery::Respond(3));
    for round in 0..5 {
        let began = Instant::now();
        let failed = call().run(async || 0).await;
        assert!(failed.expect_err("no decision").error().is_some());
        let answers = call().degrade(async |_| 1).on_error(async |_| 2);
        assert_eq!(answers.run(async || 0).await, 2);
        let answers = call().on_error_chain(&chain);
        assert_eq!(answers.run(async || 0).await.expect("answered"), 3);
        let took = began.elapsed();
        assert!(took < 10 * SECOND, "round {round}: {took:?}");
    }
    proxy.all(Mode::Pass);
    until("it decides again", async || {
        call().run(async || ()).await.is_ok()
    })
    .await;
    until("all permits are back", async || held(&server) == 0).await;
}

/// A store of one's own that never answers is bounded by `Resilient` around it.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers() {
    let store = Resilient::new(hangs()).timeout(millis(100)).tokio_clock();
    for share in [None, Some(Share::new(1, 1))] {
        let limits = limits(hourly(1), store.clone().fallback(share));
        let began = Instant::now();
        let call = limits.call("p").key("k").degrade(async |_| 1);
        let answer = call.on_error(async |_| 2).run(async || 0).await;
        let after = began.elapsed();
        assert!(after <= millis(200), "{after:?}");
        assert_eq!(answer, if share.is_some() { 0 } else { 2 });
    }
}

/// Precedence: a chain of the call, else what the rule says, else an error; never the callbacks of
/// `Limits`, which are of responses. What a layer does with the same chain is alike.
#[tokio::test(start_paused = true)]
async fn what_answers_a_failure_is_alike_in_a_layer() {
    type Answer = fn() -> Recovery<Response>;
    let answers: [(&str, Option<Answer>); 4] = [
        ("none", None),
        ("proceeds", Some(|| Recovery::Proceed)),
        (
            "responds",
            Some(|| Recovery::Respond("busy".into_response())),
        ),
        ("propagates", Some(|| Recovery::Propagate)),
    ];
    let rules = [
        None,
        Some(OnError::Respond),
        Some(OnError::Proceed),
        Some(OnError::Fallback),
    ];
    for (name, answer) in answers {
        for on_error in rules {
            for with_fallback in [false, true] {
                let rule = match on_error {
                    Some(it) => hourly(5).with_on_error(it),
                    None => hourly(5),
                };
                let store = Resilient::new(fails()).tokio_clock();
                let store = store.fallback(with_fallback.then(|| Share::new(1, 1)));
                let limits = limits(rule, store);
                let chain = || {
                    let chain = ErrorCallbackChain::<Response>::default();
                    match answer {
                        Some(answer) => {
                            chain.on::<StoreError>(move |_: Failed| std::future::ready(answer()))
                        }
                        None => chain,
                    }
                };
                let service = limits.layer("p").on_error(chain());
                let service = tower::ServiceBuilder::new()
                    .layer(service)
                    .service_fn(async |_| Ok::<_, io::Error>("ran".into_response()));
                let layered = service.oneshot(kit::http::get("/")).await;
                let layered = text(layered.expect("an answer")).await;
                let chain = chain();
                let call = limits.call("p").key("k").on_error_chain(&chain);
                let called = match call.run(async || "ran".into_response()).await {
                    Ok(response) => response,
                    Err(refused) => refused.into_response(),
                };
                let called = text(called).await;
                assert_eq!(
                    called, layered,
                    "{name}, {on_error:?}, fallback {with_fallback}"
                );
            }
        }
    }
}

/// A callback that wants to hear of failures that a fallback has answered hears of them.
#[tokio::test(start_paused = true)]
async fn with_a_fallback_only_those_that_want_to_know_are_asked() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    let hears = async |failed: Failed| {
        HEARD.fetch_add(1, Ordering::Relaxed);
        assert!(failed.fallback().is_some());
        Recovery::Propagate
    };
    let never = async |_: Failed| -> Recovery<u8> { panic!("there is a fallback") };
    let chain = ErrorCallbackChain::<u8>::default()
        .on::<StoreError>(never)
        .any_with_priority(9, AlsoWithFallback(hears));
    let store = Resilient::new(fails())
        .fallback(Share::new(1, 1))
        .tokio_clock();
    let limits = limits(hourly(2), store);
    let mut denied = 0;
    for _ in 0..4 {
        let call = limits.call("p").key("k").on_error_chain(&chain);
        match call.run(async || 7).await {
            Ok(answer) => assert_eq!(answer, 7),
            Err(refused) => {
                assert!(refused.decision().is_some(), "the fallback denies");
                denied += 1;
            }
        }
    }
    // A layer asks as often.
    let of_calls = HEARD.swap(0, Ordering::Relaxed);
    let layers = ErrorCallbackChain::<Response>::default().any(AlsoWithFallback(
        async |_: Failed| -> Recovery<Response> {
            HEARD.fetch_add(1, Ordering::Relaxed);
            Recovery::Propagate
        },
    ));
    let store = Resilient::new(fails())
        .fallback(Share::new(1, 1))
        .tokio_clock();
    let limits = self::limits(hourly(2), store);
    let layer = limits.layer("p").on_error(layers);
    for _ in 0..4 {
        let service = tower::ServiceBuilder::new()
            .layer(layer.clone())
            .service_fn(async |_| Ok::<_, io::Error>("ran".into_response()));
        service
            .oneshot(kit::http::get("/"))
            .await
            .expect("an answer");
    }
    assert_eq!((of_calls, denied), (HEARD.load(Ordering::Relaxed), 2));
}

/// The errors of the store are told apart from the function's own, whatever their types are.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_function_that_looks_like_one_of_the_store() {
    let limits = paused(refunding(hourly(9)));
    let own = || StoreError::new(StoreErrorKind::Timeout, "the function's own");
    let call = || limits.call("p").key("k");
    let failed = call().try_run(async || Err::<(), _>(own())).await;
    assert!(matches!(failed, Err(CallError::Inner(_))));
    let kinds = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&kinds);
    let chain = ErrorCallbackChain::<Result<u8, StoreError>>::default().on::<StoreError>(
        move |failed: Failed| {
            told.lock().expect("no panic").push(failed.kind());
            std::future::ready(Recovery::Proceed)
        },
    );
    let failed = call()
        .on_error_chain(&chain)
        .try_run(async || Err(own()))
        .await;
    assert!(
        matches!(failed, Err(CallError::Inner(_))),
        "what ran cannot proceed"
    );
    assert_eq!(*kinds.lock().expect("no panic"), [FailureKind::Inner]);
    let failed = call().degrade(async |_| Ok(())).on_error(async |_| Ok(()));
    assert!(failed.try_run(async || Err(own())).await.is_err());
    assert_eq!(counted(&limits).store_errors(StoreErrorKind::Timeout), 0);
    assert_eq!(left_at_last(&limits).await, 9, "each was given back");
}
