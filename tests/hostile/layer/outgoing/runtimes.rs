//! Turns that are heard where no runtime is, or where it ends.

use kit::Redis;
use tidegate::layer::Refused;
use tokio::runtime::{Builder, Runtime};

use kit::store_on;

use super::*;

fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

fn refusal() -> HeaderMap {
    fields(&[("retry-after", b"60")])
}

#[test]
fn heard_without_a_runtime() {
    let limits = limits(10);
    let partner = limits.outgoing("partner");
    let turn = runtime().block_on(partner.ready("us")).expect("a turn");
    turn.heard(StatusCode::TOO_MANY_REQUESTS, &refusal());
    drop(runtime().block_on(partner.ready("us")));
    // A later one, in a runtime, is heard.
    runtime().block_on(async {
        limits.hold("partner", "us", HOUR).await.expect("held");
        assert!(held(&limits, "us").await.is_some());
    });
}

/// Its runtime ends at once; others go on, and hear for themselves.
#[test]
fn a_runtime_that_ends_right_after_it_has_heard() {
    let server = Redis::start();
    let first = runtime();
    let second = runtime();
    let store = second.block_on(store_on(&server));
    let limits = limits(1_000_000).store(store);
    for round in 0..50 {
        let ended = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let partner = limits.outgoing("partner");
        let key = format!("key{round}");
        ended.block_on(async {
            let turn = partner.ready(&*key).await.expect("a turn");
            turn.heard(StatusCode::TOO_MANY_REQUESTS, &refusal());
        });
        drop(ended);
        let turn: Result<_, Refused> = first.block_on(partner.ready(&*key));
        if let Ok(turn) = turn {
            first.block_on(async { turn.heard(StatusCode::TOO_MANY_REQUESTS, &refusal()) });
        }
        first.block_on(async {
            let begun = std::time::Instant::now();
            while partner.ready(&*key).await.is_ok() {
                assert!(begun.elapsed() < 20 * SECOND, "{key} is never held");
            }
        });
    }
}

/// A turn that is dropped, or heard by another runtime and thread, belongs to its own key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_travel() {
    let server = Redis::start();
    let limits = limits(100).store(store_on(&server).await);
    let partner = limits.outgoing("partner");
    drop(partner.ready("dropped").await.expect("a turn"));
    assert_eq!(held(&limits, "dropped").await, None);
    let turn = partner.ready("us").await.expect("a turn");
    let thread = std::thread::spawn(move || {
        let other = runtime();
        other.block_on(async {
            turn.heard(StatusCode::TOO_MANY_REQUESTS, &refusal());
            tokio::time::sleep(millis(500)).await;
        });
    });
    thread.join().expect("no panic");
    let left = held(&limits, "us").await.expect("it is held");
    assert!(left > 30 * SECOND, "{left:?}");
    assert_eq!(held(&limits, "them").await, None);
}
