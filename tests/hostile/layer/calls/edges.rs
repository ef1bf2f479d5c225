//! Calls within calls, keys of all kinds, and what a call allocates.

use super::*;

/// The future of a call is made of the function's, and not boxed: a big one costs no allocation.
#[test]
fn a_call_allocates_no_future() {
    let runtime = kit::still_runtime();
    let limits = Limits::new([hourly(1_000)]);
    let measure = |is_big: bool| {
        let first = call(&limits).run(async || ());
        runtime.block_on(first).expect("room");
        let calls = allocation_counter::measure(|| {
            runtime.block_on(async {
                let call = call(&limits);
                if is_big {
                    let run = async || {
                        let kept = [7_u8; 8_192];
                        tokio::task::yield_now().await;
                        std::hint::black_box(&kept).len()
                    };
                    call.run(run).await.expect("room");
                } else {
                    call.run(async || ()).await.expect("room");
                }
            });
        });
        calls.bytes_total
    };
    measure(false);
    let [small, big] = [measure(false), measure(true)];
    let is_boxed = big >= small + 4_096;
    assert!(!is_boxed, "{small} bytes, and with a big future {big}");
}
