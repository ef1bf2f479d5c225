//! Turns that are heard where no runtime is, or where it ends.

use super::*;

#[test]
fn heard_without_a_runtime() {
    let limits = limits(10);
    let partner = limits.outgoing("partner");
    let turn = runtime().block_on(partner.ready("us")).expect("a turn");
    refuse(turn, 60);
    drop(runtime().block_on(partner.ready("us")));
    // A later one, in a runtime, is heard.
    runtime().block_on(async {
        hold(&limits, "us", HOUR).await;
        assert!(is_held(&limits, "us").await);
    });
}

/// Its runtime ends at once; others go on, and hear for themselves.
#[test]
fn a_runtime_that_ends_right_after_it_has_heard() {
    let server = Redis::start();
    let (first, second) = (runtime(), runtime());
    let limits = limits(1_000_000).store(second.block_on(store_on(&server)));
    let partner = limits.outgoing("partner");
    for round in 0..50 {
        let key = format!("key{round}");
        let ended = still_runtime();
        ended.block_on(async { refuse(partner.ready(&*key).await.expect("a turn"), 60) });
        drop(ended);
        first.block_on(async {
            if let Ok(turn) = partner.ready(&*key).await {
                refuse(turn, 60);
            }
            eventually("it is held", async || partner.ready(&*key).await.is_err()).await;
        });
    }
}

/// A turn that is dropped, or heard by another runtime and thread, belongs to its own key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_travel() {
    let server = Redis::start();
    let limits = limits(100).store(store_on(&server).await);
    pass(&limits, "dropped").await;
    assert_eq!(held(&limits, "dropped").await, None);
    let turn = limits
        .outgoing("partner")
        .ready("us")
        .await
        .expect("a turn");
    let thread = std::thread::spawn(move || {
        runtime().block_on(async {
            refuse(turn, 60);
            sleep(millis(500)).await;
        });
    });
    thread.join().expect("no panic");
    let left = held(&limits, "us").await.expect("it is held");
    assert!(left > 30 * SECOND, "{left:?}");
    assert_eq!(held(&limits, "them").await, None);
}
