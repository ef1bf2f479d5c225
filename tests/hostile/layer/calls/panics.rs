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

/// The documented panic: a clone of the error is kept. The permit comes back all the same.
#[tokio::test(start_paused = true)]
async fn a_chain_that_keeps_the_error() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let chain = ErrorCallbackChain::<io::Result<u8>>::default();
    let chain = chain.on::<io::Error>(move |failed: Failed| {
        keep.lock().expect("no panic").push(failed);
        async { Recovery::Propagate }
    });
    let limits = paused(both(30, 1));
    let keeping = call(&limits).try_run_with(&chain, async || Err(io::Error::other("its own")));
    assert!(panics(keeping).await);
    assert_eq!(left_at_last(&limits).await, 1);
    assert_eq!(counted(&limits).refunded_units, 1);
}
