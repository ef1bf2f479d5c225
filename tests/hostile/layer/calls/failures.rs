//! Stores that hang and fail: in bounded time, and answered as in a layer.

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
        let failed = call().refuse_on_error().run(async || 0).await;
        let answer = failed.expect_err("no decision");
        let answer = answer.answer_by(async |_| 1, async |_| 2);
        assert_eq!(answer.await, 2);
        let answer = call().run_with(&chain, async || 0).await;
        assert_eq!(answer.expect("answered"), 3);
        let took = began.elapsed();
        assert!(took < 10 * SECOND, "round {round}: {took:?}");
    }
    proxy.all(Mode::Pass);
    until_it_decides().await;
    until_none_is_held(&server).await;
}

/// Of failures that a fallback has answered hears only a callback that wants to.
#[tokio::test(start_paused = true)]
async fn with_a_fallback_only_those_that_want_to_know_are_asked() {
    let heard = Arc::<AtomicUsize>::default();
    let hears = Arc::clone(&heard);
    let asked = Arc::<AtomicUsize>::default();
    let quiet = |asked: &Arc<AtomicUsize>| {
        let asked = Arc::clone(asked);
        ErrorCallbackChain::<u8>::default().on::<StoreError>(move |_: Failed| {
            asked.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Recovery::Propagate)
        })
    };
    let chain = quiet(&asked).any_with_priority(
        9,
        AlsoWithFallback(move |failed: Failed| {
            hears.fetch_add(1, Ordering::Relaxed);
            assert!(failed.fallback().is_some());
            std::future::ready(Recovery::Propagate)
        }),
    );
    let store = Resilient::new(Stub::down()).fallback(Share::new(1, 1));
    let limits = limits(hourly(3), store);
    let mut answers = Vec::new();
    for chain in [&quiet(&asked), &chain, &chain, &chain] {
        answers.push(call(&limits).run_with(chain, async || 7).await.ok());
    }
    let expected = [Some(7), Some(7), Some(7), None];
    assert_eq!(answers, expected, "the fallback decides");
    let numbers = [asked, heard].map(|it| it.load(Ordering::Relaxed));
    assert_eq!(numbers, [0, 3]);
}
