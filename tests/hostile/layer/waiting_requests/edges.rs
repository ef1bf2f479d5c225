//! Edges: costs, denials that cross a refund, futures that nobody polls, windows, resets.

use super::*;

/// A runtime of one thread that is gone, or that nobody drives any more, while others wait.
#[test]
fn a_runtime_that_stands_still_holds_up_nobody() {
    let (limits, app) = world(logins(1), MemoryStore::new(), 20 * SECOND);
    let [stands, runs] = [kit::still_runtime(), kit::still_runtime()];
    let until_waiting = async |number| {
        while waiting(&limits) < number {
            sleep(millis(1)).await;
        }
    };
    let held = runs.block_on(charge(&limits));
    let first = stands.block_on(async {
        let first = start_all(5, &app, 0, "");
        until_waiting(5).await;
        first
    });
    // Nobody polls these five from now on.
    runs.block_on(async {
        let asked = start_all(5, &app, 0, "");
        until_waiting(10).await;
        assert_eq!(refund(held).await, 1);
        for asked in asked {
            let answer = timeout(15 * SECOND, asked)
                .await
                .expect("it is not held up");
            assert_eq!(answer.expect("no panic").status, OK);
        }
    });
    stands.block_on(async {
        served(first).await;
        check_rest(&limits).await;
    });
}

/// Futures that are not polled any more, in one runtime: as of a connection that is slow, behind
/// a `select`, or in a buffer.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_not_polled_holds_up_nobody() {
    for store in near_and_far(10) {
        for rule in [logins(1), units(1)] {
            let limits = limits([rule], store.clone());
            limits.reset("p", "k").await.expect("an answer");
            sleep(millis(1)).await;
            let app = waiting_app(&limits, 20 * SECOND);
            let held = charge(&limits).await;
            let mut stands = Box::pin(ask(&app, "x-used: 0"));
            // It waits, and is woken by nobody who polls it.
            assert!(timeout(millis(150), &mut stands).await.is_err());
            let asked = start_all(5, &app, 0, "x-used: 0");
            sleep(millis(50)).await;
            refund(held).await;
            let after = served(asked).await;
            assert!(after.iter().all(|it| *it < 1_500), "{after:?}");
            assert_eq!(stands.await.status, OK);
            check_rest(&limits).await;
        }
    }
}
