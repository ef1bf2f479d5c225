//! Panics in the function and in callbacks: permits come back, and later calls work.

use std::io;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use http::Response;
use tidegate::layer::CallError;
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{ErrorCallbackChain, Failed, Recovery, StoreError};
use tower::ServiceExt;

use super::*;
use kit::stub::Stub;

async fn panics<T>(it: impl Future<Output = T>) -> bool {
    AssertUnwindSafe(it).catch_unwind().await.is_err()
}

fn both(max: u64) -> Rule {
    let rule = hourly(30).with_max_concurrent(max).expect("valid");
    refunding(rule.with_permit_lease(DAY).expect("valid"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_panics_gives_its_permit_back() {
    let server = Redis::start();
    let (_proxy, stores) = stores(&server).await;
    for store in stores {
        let limits = limits(both(1), store);
        let call = || limits.call("p").key("k").wait(PATIENT);
        for _ in 0..3 {
            assert!(panics(call().run(async || panic!("in the function"))).await);
            let fails = async || -> Result<(), ()> {
                sleep(millis(1)).await;
                panic!("later")
            };
            assert!(panics(call().try_run(fails)).await);
            // Where the closure itself panics, before there is a future.
            let call = call().degrade(async |_| ()).on_error(async |_| ());
            let never = || -> std::future::Ready<()> { panic!("at once") };
            assert!(panics(call.run(never)).await);
        }
        assert!(
            call().cost(0).run(async || ()).await.is_ok(),
            "the permit is back"
        );
        assert!(limits.flush(PATIENT).await);
        assert_eq!(counted(&limits).waiting, 0);
    }
    until("all permits are back", async || held(&server) == 0).await;
}

/// A panic is what it is in a layer, for the charge, too.
#[tokio::test(start_paused = true)]
async fn a_panic_charges_as_in_a_layer() {
    let by_call = paused(refunding(hourly(3)));
    let fails = async || -> Result<(), ()> { panic!("in the function") };
    assert!(panics(by_call.call("p").key("k").try_run(fails)).await);
    let by_layer = paused(refunding(hourly(3)));
    let service = tower::ServiceBuilder::new()
        .layer(by_layer.layer("p"))
        .service_fn(async |_| -> Result<Response<axum::body::Body>, io::Error> {
            panic!("in the service")
        });
    assert!(panics(service.oneshot(kit::http::get("/"))).await);
    let of_call = left_at_last(&by_call).await;
    assert_eq!(of_call, left_at_last(&by_layer).await);
}

#[tokio::test(start_paused = true)]
async fn callbacks_that_panic_poison_nothing() {
    let limits = paused(both(1));
    let call = || {
        let call = limits.call("p").key("k");
        call.degrade(async |_| -> u8 { panic!("in degrade") })
            .on_error(async |_| 2)
    };
    let outer = call().run(async || {
        for _ in 0..20 {
            assert!(panics(call().run(async || 1)).await);
        }
        3
    });
    assert_eq!(outer.await, 3);
    assert_eq!((left(&limits).await, counted(&limits).waiting), (1, 0));
    let broken = Stub::in_memory().capabilities_fn(|inner| inner.capabilities());
    let broken = broken.take_fn(|_, _| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        StoreFuture::ready(Err(error))
    });
    let limits = self::limits(both(1), broken);
    let call = limits.call("p").degrade(async |_| 1);
    let call = call.on_error(async |_| -> u8 { panic!("in on_error") });
    assert!(panics(call.run(async || 3)).await);
    let counted = counted(&limits);
    assert_eq!(counted.store_errors(StoreErrorKind::Unavailable), 1);
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
    let chain = ErrorCallbackChain::<Result<u8, Own>>::default().on::<Own>(
        async |failed: Failed| -> Recovery<Result<u8, Own>> {
            let own = failed.downcast_ref::<Own>().expect("its type");
            assert_eq!(own, &Own(1), "in the chain");
            Recovery::Respond(Ok(7))
        },
    );
    let limits = paused(both(1));
    let call = || limits.call("p").key("k").on_error_chain(&chain);
    assert_eq!(
        call()
            .try_run(async || Err(Own(1)))
            .await
            .expect("answered"),
        7
    );
    let failed = call().try_run(async || Err(Own(2))).await;
    assert!(matches!(failed, Err(CallError::Inner(Own(2)))));
    assert!(limits.flush(PATIENT).await);
    assert_eq!(
        counted(&limits).refunded_units,
        2,
        "also of the answered one"
    );
    assert_eq!(left(&limits).await, 1);

    // The documented panic: a clone of the error is kept. The permit comes back all the same.
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let keeps =
        ErrorCallbackChain::<Result<u8, Own>>::default().on::<Own>(move |failed: Failed| {
            keep.lock().expect("no panic").push(failed);
            async { Recovery::<Result<u8, Own>>::Propagate }
        });
    let call = limits.call("p").key("k").on_error_chain(&keeps);
    assert!(panics(call.try_run(async || Err(Own(3)))).await);
    assert_eq!(left_at_last(&limits).await, 1);
    assert_eq!(counted(&limits).refunded_units, 3);
}
