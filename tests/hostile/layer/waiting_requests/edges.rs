//! Edges: costs, denials that cross a refund, futures that nobody polls, windows, resets.

use super::*;

/// The charge of a request that was admitted just now is as open as one that its handler has
/// already: who waits behind it is not denied.
#[tokio::test(start_paused = true)]
async fn those_behind_one_that_is_just_admitted() {
    let mut wrong = Vec::new();
    for max in [1, 5] {
        for round_trip in [0, 10, 20] {
            let store: Arc<dyn Store> = match round_trip {
                0 => paused(),
                _ => Arc::new(far(millis(round_trip))),
            };
            let (limits, app) = world(units(max), store, 10 * SECOND);
            let asked = (0..5 * max).map(|at| start(&app, 2 * at, "x-hold: 100, x-used: 0"));
            let answers = done(asked).await;
            let served = answers.iter().filter(|it| it.status == OK).count() as u64;
            if served < 5 * max {
                wrong.push(format!("{served} of {}, {round_trip} ms", 5 * max));
            }
            check_rest(&limits).await;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The denial is on its way while the only charge is given back: the unit is free when it arrives.
#[tokio::test(start_paused = true)]
async fn a_denial_that_crosses_a_settlement() {
    let mut wrong = Vec::new();
    for (rule, fields) in [
        (units(1), "x-hold: 100, x-used: 0"),
        (logins(1), "x-hold: 100"),
    ] {
        for waits in [false, true] {
            let limits = limits([rule.clone()], far(millis(20)));
            let layer = limits.layer("p");
            let app = app([if waits { layer.wait(2 * SECOND) } else { layer }]);
            // Charged at 10 ms, heard of at 20 ms, given back at 120 ms.
            let held = start(&app, 0, fields);
            // Denied at 115 ms, heard of at 125 ms.
            let crossed = answer(start(&app, 105, "")).await;
            answer(held).await;
            let told = crossed.field("retry-after");
            // It asks again at once, and not with the others that wait, after a second.
            let is_soon = crossed.status == OK && crossed.millis() < 200;
            if waits && !is_soon || !waits && told != Some("1") {
                let after = crossed.millis();
                wrong.push(format!("{fields}, waits {waits}: {told:?}, {after} ms"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

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

/// A charge that has left the window makes no room.
#[tokio::test(start_paused = true)]
async fn charges_older_than_the_window() {
    for algorithm in Algorithm::ALL {
        let limits = limits([logins(1).with_algorithm(algorithm)], paused());
        let app = app([limits.layer("p")]);
        let held = start(&app, 0, "x-hold: 300000");
        sleep(millis(100)).await;
        assert_eq!(told(&limits).await, "1");
        sleep(2 * MINUTE).await;
        assert_eq!(ask(&app, "x-status: 401").await.status, BAD);
        sleep(SECOND).await;
        let told = told(&limits).await;
        assert_ne!(told, "1", "{algorithm:?}: what is open counts no more");
        answer(held).await;
        check_rest(&limits).await;
    }
}
