//! Runtimes that end with refunds under way, others that go on, and requests outside of any.

use super::*;

/// Five requests in a runtime without a timer, and one without any runtime.
fn send_without_timers(service: &Wrapped) -> Runtime {
    let bare = Builder::new_current_thread().build().expect("a runtime");
    bare.block_on(pass(service, 200, 5));
    bare.block_on(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(send(service, 200).now_or_never(), Some(200));
    bare
}

/// A store that takes time: the request is answered, the refund is given back or counted, and
/// nothing panics.
#[test]
fn a_store_that_takes_time_without_a_timer() {
    let yields = Stub::in_memory().refund_fn(|memory, take, receipt| {
        let answer = memory.refund(take, receipt);
        StoreFuture::boxed(async move {
            tokio::task::yield_now().await;
            answer.await
        })
    });
    let (limits, service) = world(of("a", 1_000, &["2xx"]), yields);
    drop(send_without_timers(&service));
    runtime().block_on(async {
        flushed(&limits).await;
        let (refunds, _, lost) = counted(&limits, "a");
        assert_eq!(refunds + lost, 6);
        let used = 1_000 - left(&limits, "a").await;
        assert!(used <= lost, "{used} of {lost}");
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a").0, refunds + 1);
    });
}
