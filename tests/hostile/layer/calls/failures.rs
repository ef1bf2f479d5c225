//! Stores that hang and fail: in bounded time, and answered as in a layer.

use std::io;

use axum::response::Response;
use kit::http::text;
use tidegate::callback::FailureKind;

use super::*;

/// Law 6, through a proxy that holds everything back: callbacks, chains and errors in bounded time.
#[tokio::test]
async fn a_server_that_hangs_costs_the_timeout() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = Resilient::redis(&*proxy.url, "shop").expect("valid");
    let store = store.timeout(millis(100)).fallback(None);
    let limits = limits(at_a_time(5), store);
    let call = || call(&limits).wait(PATIENT);
    let until_it_decides = async || {
        let decides = async || call().run(async || ()).await.is_ok();
        eventually("it decides", decides).await;
    };
    until_it_decides().await;
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
    until_it_decides().await;
    until_none_is_held(&server).await;
}

/// Precedence: a chain of the call, else what the rule says, else an error; never the callbacks of
/// `Limits`, which are of responses. What a layer does with the same chain is alike.
#[tokio::test(start_paused = true)]
async fn what_answers_a_failure_is_alike_in_a_layer() {
    type Answer = Option<fn() -> Recovery<Response>>;
    let answers: [(&str, Answer); 4] = [
        ("none", None),
        ("proceeds", Some(|| Recovery::Proceed)),
        (
            "responds",
            Some(|| Recovery::Respond("busy".into_response())),
        ),
        ("propagates", Some(|| Recovery::Propagate)),
    ];
    let chain = |answer: Answer| {
        let chain = ErrorCallbackChain::<Response>::default();
        match answer {
            Some(answer) => chain.on::<StoreError>(move |_: Failed| std::future::ready(answer())),
            None => chain,
        }
    };
    let rules = [
        hourly(5),
        hourly(5).with_on_error(OnError::Respond),
        hourly(5).with_on_error(OnError::Proceed),
        hourly(5).with_on_error(OnError::Fallback),
    ];
    for (name, answer) in answers {
        for rule in &rules {
            for share in [None, Some(Share::new(1, 1))] {
                let store = Resilient::new(fails()).tokio_clock().fallback(share);
                let limits = limits(rule.clone(), store);
                let ran = async |_| Ok::<_, io::Error>("ran".into_response());
                let layer = limits.layer("p").on_error(chain(answer));
                let service = layer.layer(service_fn(ran));
                let layered = service.oneshot(kit::http::get("/")).await;
                let layered = text(layered.expect("an answer")).await;
                let chain = chain(answer);
                let call = call(&limits).on_error_chain(&chain);
                let called = call.run(async || "ran".into_response()).await;
                let called = text(called.unwrap_or_else(IntoResponse::into_response)).await;
                let case = format!("{name}, {:?}, fallback {share:?}", rule.on_error());
                assert_eq!(called, layered, "{case}");
            }
        }
    }
}

/// A callback that wants to hear of failures that a fallback has answered hears of them, as often
/// as in a layer.
#[tokio::test(start_paused = true)]
async fn with_a_fallback_only_those_that_want_to_know_are_asked() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    fn hears<R>(failed: &Failed) -> Recovery<R> {
        HEARD.fetch_add(1, Ordering::Relaxed);
        assert!(failed.fallback().is_some());
        Recovery::Propagate
    }
    let limits = || {
        let store = Resilient::new(fails()).fallback(Share::new(1, 1));
        limits(hourly(2), store.tokio_clock())
    };
    let never = async |_: Failed| -> Recovery<u8> { panic!("there is a fallback") };
    let chain = ErrorCallbackChain::<u8>::default()
        .on::<StoreError>(never)
        .any_with_priority(9, AlsoWithFallback(async |failed: Failed| hears(&failed)));
    let called = limits();
    let mut denied = 0;
    for _ in 0..4 {
        let call = call(&called).on_error_chain(&chain);
        match call.run(async || 7).await {
            Ok(answer) => assert_eq!(answer, 7),
            Err(refused) => {
                assert!(refused.decision().is_some(), "the fallback denies");
                denied += 1;
            }
        }
    }
    let of_calls = HEARD.swap(0, Ordering::Relaxed);
    let hears = AlsoWithFallback(async |failed: Failed| hears::<Response>(&failed));
    let chain = ErrorCallbackChain::<Response>::default().any(hears);
    let layer = limits().layer("p").on_error(chain);
    for _ in 0..4 {
        let ran = async |_| Ok::<_, io::Error>("ran".into_response());
        let service = layer.layer(service_fn(ran));
        let answer = service.oneshot(kit::http::get("/")).await;
        answer.expect("an answer");
    }
    assert_eq!((of_calls, denied), (HEARD.load(Ordering::Relaxed), 2));
}

/// The errors of the store are told apart from the function's own, whatever their types are.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_function_that_looks_like_one_of_the_store() {
    let limits = paused(refunding(hourly(9)));
    let own = async || {
        let error = StoreError::new(StoreErrorKind::Timeout, "the function's own");
        Err::<(), _>(error)
    };
    let failed = call(&limits).try_run(own).await;
    assert!(matches!(failed, Err(CallError::Inner(_))));
    let kinds = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&kinds);
    type Chain = ErrorCallbackChain<Result<(), StoreError>>;
    let chain = Chain::default().on::<StoreError>(move |failed: Failed| {
        told.lock().expect("no panic").push(failed.kind());
        std::future::ready(Recovery::Proceed)
    });
    let failed = call(&limits).on_error_chain(&chain).try_run(own).await;
    let is_inner = matches!(failed, Err(CallError::Inner(_)));
    assert!(is_inner, "what ran cannot proceed");
    assert_eq!(*kinds.lock().expect("no panic"), [FailureKind::Inner]);
    let answers = call(&limits).degrade(async |_| Ok(()));
    let answers = answers.on_error(async |_| Ok(()));
    assert!(answers.try_run(own).await.is_err());
    assert_eq!(counted(&limits).store_errors(StoreErrorKind::Timeout), 0);
    assert_eq!(left_at_last(&limits).await, 9, "each was given back");
}
