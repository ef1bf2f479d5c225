//! Panics in the function and in callbacks: permits come back, and later calls work.

use std::io;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_panics_gives_its_permit_back() {
    let (server, _proxy, stores) = stores().await;
    for store in stores {
        let limits = limits(both(30, 1), store);
        let call = || call(&limits).wait(PATIENT);
        for _ in 0..3 {
            assert!(panics(call().run(async || panic!("in the function"))).await);
            let fails = async || -> Result<(), ()> {
                sleep(millis(1)).await;
                panic!("later")
            };
            assert!(panics(call().try_run(fails)).await);
            // Where the closure itself panics, before there is a future.
            let never = || -> std::future::Ready<()> { panic!("at once") };
            assert!(panics(call().run(never)).await);
        }
        let next = call().cost(0).run(async || ()).await;
        assert!(next.is_ok(), "the permit is back");
        assert!(limits.flush(PATIENT).await);
        assert_eq!(counted(&limits).waiting, 0);
    }
    until_none_is_held(&server).await;
}

/// A panic is what it is in a layer, for the charge, too.
#[tokio::test(start_paused = true)]
async fn a_panic_charges_as_in_a_layer() {
    let by_call = paused(refunding(hourly(3)));
    let fails = async || -> Result<(), ()> { panic!("in the function") };
    assert!(panics(call(&by_call).try_run(fails)).await);
    let by_layer = paused(refunding(hourly(3)));
    let service =
        by_layer
            .layer("p")
            .layer(service_fn(async |_| -> Result<Response<Body>, io::Error> {
                panic!("in the service")
            }));
    assert!(panics(service.oneshot(kit::http::get("/"))).await);
    let of_call = left_at_last(&by_call).await;
    assert_eq!(of_call, left_at_last(&by_layer).await);
}

/// A panic in a chain is no answer, and no panic of the call: the error goes on, and is given back.
#[tokio::test(start_paused = true)]
async fn a_chain_that_panics_hides_no_error() {
    #[derive(Debug, PartialEq)]
    struct Own(u8);
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("its own")
        }
    }
    impl std::error::Error for Own {}
    type Chain = ErrorCallbackChain<Result<u8, Own>>;
    let chain = Chain::default().on::<Own>(async |failed: Failed| {
        let own = failed.downcast_ref::<Own>().expect("its type");
        assert_eq!(own, &Own(1), "in the chain");
        Recovery::Respond(Ok(7))
    });
    let limits = paused(both(30, 1));
    let answered = call(&limits).try_run_with(&chain, async || Err(Own(1)));
    let answered = answered.await;
    assert_eq!(answered.expect("answered"), 7);
    let failed = call(&limits).try_run_with(&chain, async || Err(Own(2)));
    let failed = failed.await;
    assert!(matches!(failed, Err(CallError::Inner(Own(2)))));
    assert!(limits.flush(PATIENT).await);
    let refunded = counted(&limits).refunded_units;
    assert_eq!(refunded, 2, "also of the answered one");
    assert_eq!(left(&limits).await, 1);

    // The documented panic: a clone of the error is kept. The permit comes back all the same.
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let keeps = Chain::default().on::<Own>(move |failed: Failed| {
        keep.lock().expect("no panic").push(failed);
        async { Recovery::Propagate }
    });
    let keeping = call(&limits).try_run_with(&keeps, async || Err(Own(3)));
    assert!(panics(keeping).await);
    assert_eq!(left_at_last(&limits).await, 1);
    assert_eq!(counted(&limits).refunded_units, 3);
}
