//! Edges: costs, denials that cross a refund, futures that nobody polls, windows, resets.

use axum::routing::post;
use http_body_util::BodyExt;
use serde_json::json;
use tidegate::store::Charges as Taken;
use tokio::runtime::Builder;

use super::hopes::told;
use super::*;
use kit::stub::far;

/// Many costs at once, one by one given back by another process.
#[tokio::test(start_paused = true)]
async fn any_cost_gets_what_another_process_gives_back() {
    let store = paused();
    let limits = limits([units_a_minute(20).with_settling(true)], Arc::clone(&store));
    let other = super::limits([units_a_minute(20)], store);
    let app = app([costly(limits.layer("p")).wait(20 * SECOND)]);
    let mut charges = Vec::new();
    for _ in 0..20 {
        let admitted = other.check("p", "k").await.expect("a unit");
        charges.push(admitted.charge.expect("it was charged"));
    }
    // The largest ones come first.
    let asked: Vec<_> = (1..=10)
        .map(|cost| start(&app, 10 - cost, &format!("x-cost: {cost}, x-used: {cost}")))
        .collect();
    sleep(SECOND).await;
    assert_eq!(waiting(&limits), 10);
    assert_eq!(
        charges
            .pop()
            .expect("one")
            .refund()
            .await
            .expect("an answer"),
        1
    );
    sleep(millis(110)).await;
    assert!(
        asked[0].is_finished(),
        "one unit is free, and one is wanted"
    );
    assert_eq!(waiting(&limits), 9);
    for charge in charges.drain(..2) {
        charge.refund().await.expect("an answer");
    }
    sleep(millis(110)).await;
    assert!(
        asked[1].is_finished(),
        "two units are free, and two are wanted"
    );
    assert_eq!(waiting(&limits), 8);
    for charge in charges.drain(..) {
        charge.refund().await.expect("an answer");
    }
    sleep(millis(500)).await;
    // 17 were free for costs of 3 to 10: none that is free fits any that waits.
    let free = left(&limits, "k").await;
    let smallest = asked.iter().position(|asked| !asked.is_finished());
    assert!(
        smallest.is_some_and(|at| at as u64 + 1 > free),
        "{free} free, {smallest:?}"
    );
    for asked in asked {
        asked.abort();
    }
    sleep(millis(200)).await;
    check_rest(&limits).await;
}

/// Without `settles`, the charge of a request that was admitted just now is as open as one that its
/// handler has already: who waits behind it is not denied.
#[tokio::test(start_paused = true)]
async fn those_behind_one_that_is_just_admitted() {
    let mut wrong = Vec::new();
    for max in [1, 5] {
        for round_trip in [0, 10, 20] {
            let store: Arc<dyn Store> = match round_trip {
                0 => paused(),
                _ => Arc::new(far(millis(round_trip))),
            };
            let limits = limits([units_a_minute(max)], store);
            let app = app([limits.layer("p").wait(10 * SECOND)]);
            let asked: Vec<_> = (0..5 * max)
                .map(|at| start(&app, 2 * at, "x-hold: 100, x-used: 0"))
                .collect();
            let mut served = 0;
            for asked in asked {
                served += u64::from(asked.await.expect("no panic").status == OK);
            }
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
    for fields in ["x-hold: 100, x-used: 0", "x-hold: 100"] {
        let by_outcome = !fields.contains("used");
        let rule = if by_outcome {
            logins(1)
        } else {
            units_a_minute(1)
        };
        for waits in [false, true] {
            let limits = limits([rule.clone()], far(millis(20)));
            let layer = limits.layer("p");
            let app = app([if waits { layer.wait(2 * SECOND) } else { layer }]);
            // Charged at 10 ms, heard of at 20 ms, given back at 120 ms.
            let held = start(&app, 0, fields);
            // Denied at 115 ms, heard of at 125 ms.
            let crossed = start(&app, 105, "").await.expect("no panic");
            held.await.expect("no panic");
            let told = crossed.field("retry-after");
            if waits && crossed.status != OK || !waits && told != Some("1") {
                wrong.push(format!("by outcome {by_outcome}, waits {waits}: {told:?}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A runtime of one thread that is gone, or that nobody drives any more, while others wait.
#[test]
fn a_runtime_that_stands_still_holds_up_nobody() {
    let limits = limits([logins(1)], MemoryStore::new());
    let app = app([limits.layer("p").wait(20 * SECOND)]);
    let stands = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let runs = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let held = runs.block_on(async { limits.check("p", "k").await.expect("a unit") });
    let mut first = Vec::new();
    stands.block_on(async {
        for _ in 0..5 {
            first.push(start(&app, 0, ""));
        }
        while waiting(&limits) < 5 {
            sleep(millis(1)).await;
        }
    });
    // Nobody polls these five from now on.
    runs.block_on(async {
        let asked: Vec<_> = (0..5).map(|_| start(&app, 0, "")).collect();
        while waiting(&limits) < 10 {
            sleep(millis(1)).await;
        }
        let charge = held.charge.expect("charged");
        assert_eq!(charge.refund().await.expect("an answer"), 1);
        let began = Instant::now();
        for asked in asked {
            let answer = tokio::time::timeout(15 * SECOND, asked).await;
            let answer = answer.unwrap_or_else(|_| panic!("held up for {:?}", began.elapsed()));
            assert_eq!(answer.expect("no panic").status, OK);
        }
        println!("{:?}", began.elapsed());
    });
    stands.block_on(async {
        for first in first {
            assert_eq!(first.await.expect("no panic").status, OK);
        }
        check_rest(&limits).await;
    });
}

/// Futures that are not polled any more, in one runtime: as of a connection that is slow, behind
/// a `select`, or in a buffer.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_not_polled_holds_up_nobody() {
    for store in [
        paused(),
        Arc::new(kit::stub::far(millis(10))) as Arc<dyn Store>,
    ] {
        for rule in [logins(1), units_a_minute(1).with_settling(true)] {
            let limits = limits([rule], store.clone());
            limits.reset("p", "k").await.expect("an answer");
            sleep(millis(1)).await;
            let app = app([limits.layer("p").wait(20 * SECOND)]);
            let held = limits.check("p", "k").await.expect("a unit");
            let mut stands = Box::pin(ask(&app, "x-used: 0"));
            // It waits, and is woken by nobody who polls it.
            let polled = tokio::time::timeout(millis(150), &mut stands).await;
            assert!(polled.is_err());
            let asked: Vec<_> = (0..5).map(|_| start(&app, 0, "x-used: 0")).collect();
            sleep(millis(50)).await;
            held.charge
                .expect("charged")
                .refund()
                .await
                .expect("an answer");
            for asked in asked {
                let answer = asked.await.expect("no panic");
                assert_eq!(answer.status, OK, "after {} ms", answer.after);
                assert!(answer.after < 1_500, "{} ms", answer.after);
            }
            assert_eq!(stands.await.status, OK);
            check_rest(&limits).await;
        }
    }
}

/// A charge that has left the window makes no room.
#[tokio::test(start_paused = true)]
async fn charges_older_than_the_window() {
    for algorithm in tidegate::Algorithm::ALL {
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
        held.await.expect("no panic");
        check_rest(&limits).await;
    }
}

/// Charges from before a reset make no room, either.
#[tokio::test(start_paused = true)]
async fn charges_before_a_reset() {
    let limits = limits([logins(1)], paused());
    let app = app([limits.layer("p")]);
    let held = start(&app, 0, "x-hold: 10000");
    sleep(millis(100)).await;
    limits.reset("p", "k").await.expect("an answer");
    sleep(millis(100)).await;
    assert_eq!(ask(&app, "x-status: 401").await.status, BAD);
    let told = told(&limits).await;
    held.await.expect("no panic");
    check_rest(&limits).await;
    assert_eq!(left(&limits, "k").await, 0);
    assert_ne!(told, "1", "what is open was forgotten");
}

/// A handler that has taken its charges and dropped them, and goes on.
#[tokio::test(start_paused = true)]
async fn charges_that_a_handler_drops() {
    let limits = limits([units_a_minute(1)], paused());
    let drops = async |charges: Taken| {
        sleep(millis(300)).await;
        drop(charges);
        sleep(5 * SECOND).await;
    };
    let layer = limits.layer("p").wait(2 * SECOND);
    let app = Router::new().route("/", post(drops)).layer(layer);
    let held = start(&app, 0, "");
    let waits = start(&app, 100, "");
    sleep(millis(200)).await;
    assert_eq!((waiting(&limits), &*told(&limits).await), (1, "1"));
    let denied = waits.await.expect("no panic");
    assert_eq!(denied.status, DENIED);
    assert!(denied.after <= 310, "{} ms", denied.after);
    assert_ne!(told(&limits).await, "1");
    held.await.expect("no panic");
    check_rest(&limits).await;
}

/// An operator lets a key through, of which requests wait.
#[tokio::test(start_paused = true)]
async fn let_through_meanwhile() {
    let limits = limits([logins(1)], paused());
    let app = app([limits.layer("p").wait(20 * SECOND)]);
    let page = Router::new().nest_service("/limits", limits.page().allow_changes().router());
    let held = start(&app, 0, "x-hold: 60000");
    let asked: Vec<_> = (0..20).map(|_| start(&app, 10, "")).collect();
    sleep(SECOND).await;
    let let_through = Request::post("/limits/api/let-through")
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .header("host", "127.0.0.1:3000")
        .header("origin", "http://127.0.0.1:3000")
        .body(Body::from(
            json!({"rule": "p", "key": "k", "seconds": 60}).to_string(),
        ));
    let answer = page.oneshot(let_through.expect("valid")).await;
    let answer = answer.expect("routers do not fail");
    let status = answer.status();
    let text = answer
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    assert!(status.is_success(), "{status} {text:?}");
    for asked in asked {
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.status, OK);
        assert!(answer.after <= 2_020, "{} ms", answer.after);
    }
    assert_eq!(
        limits.snapshot().rules[0].let_through,
        20,
        "each counts once"
    );
    held.abort();
    let _ = held.await;
    assert_eq!(waiting(&limits), 0);
}
