//! What a denial says while charges of this process are open.

use super::*;

/// Law: the decision's retry-after is true, whatever the fields say.
async fn check_law_3(limits: &Limits, cost: u64, denied: &Answer) {
    let retry_after = denied.decision().retry_after().expect("it will fit");
    let step = Duration::from_micros(1);
    tokio::time::advance(retry_after - step).await;
    let has_room = left(limits, "p", "k").await >= cost;
    assert!(!has_room, "earlier than {retry_after:?}");
    tokio::time::advance(step).await;
    let has_room = left(limits, "p", "k").await >= cost;
    assert!(has_room, "later than {retry_after:?}");
}

/// Seven good logins at once under five, without `.wait`.
#[tokio::test(start_paused = true)]
async fn open_charges_say_a_second() {
    for algorithm in Algorithm::ALL {
        let limits = limits([logins(5).with_algorithm(algorithm)], paused());
        let app = app([limits.layer("p")]);
        let mut denied = done(start_all(7, &app, 0, "x-hold: 300, x-status: 401")).await;
        denied.retain(|answer| answer.status == DENIED);
        assert_eq!(denied.len(), 2);
        for answer in denied {
            assert_eq!(answer.field("retry-after"), Some("1"), "{algorithm:?}");
            let limit = answer.field("ratelimit").expect("it has one");
            assert!(limit.ends_with(";r=0;t=1"), "{algorithm:?}: {limit}");
        }
        // All have failed: now it is the window again.
        let later = ask(&app, "").await;
        assert_ne!(later.field("retry-after"), Some("1"), "{algorithm:?}");
        check_law_3(&limits, 1, &later).await;
        check_rest(&limits).await;
    }
}

/// Only if the open charges would make room.
#[tokio::test(start_paused = true)]
async fn too_few_open_charges_say_nothing() {
    for algorithm in Algorithm::ALL {
        let limits = limits([logins(10).with_algorithm(algorithm)], paused());
        let app = app([costly(limits.layer("p"))]);
        assert_eq!(ask(&app, "x-cost: 6, x-status: 401").await.status, BAD);
        let held = start(&app, 0, "x-cost: 4, x-hold: 300");
        sleep(millis(100)).await;
        for cost in 1..=10 {
            let denied = ask(&app, &format!("x-cost: {cost}")).await;
            assert_eq!(denied.status, DENIED);
            let says_a_second = denied.field("retry-after") == Some("1");
            assert_eq!(says_a_second, cost <= 4, "{algorithm:?} {cost}");
        }
        let never = ask(&app, "x-cost: 11").await;
        assert_eq!((never.status, never.field("retry-after")), (DENIED, None));
        answer(held).await;
        check_rest(&limits).await;
    }
}

/// Two quotas, of which one has room by open charges and the other one has not.
#[tokio::test(start_paused = true)]
async fn every_quota_has_to_have_room() {
    let rule = Rule::new("p", [quota(3, SECOND), quota(5, MINUTE)]).expect("valid");
    let limits = limits([rule.with_refund_on(["2xx"]).expect("valid")], paused());
    let app = app([limits.layer("p")]);
    for _ in 0..2 {
        assert_eq!(ask(&app, "x-status: 401").await.status, BAD);
    }
    sleep(2 * SECOND).await;
    let held = start_all(3, &app, 0, "x-hold: 5000");
    // Both quotas are full, and the three open charges would make room in both; later the short one
    // has room, and the long one would have by the open charges.
    for time in [100, 1_500] {
        sleep(millis(time)).await;
        let denied = ask(&app, "").await;
        let found = (denied.status, denied.field("retry-after"));
        assert_eq!(found, (DENIED, Some("1")));
    }
    done(held).await;
    check_rest(&limits).await;
    assert_eq!(left(&limits, "p", "k").await, 3);
}

/// Ten connections, each with one request after the other, that need 5 units at a time. Between
/// two requests of a connection is a moment, as on a network.
#[tokio::test(start_paused = true)]
async fn ten_connections_for_ten_seconds() {
    for (wait, think) in [(Duration::ZERO, 1), (2 * SECOND, 1), (2 * SECOND, 5)] {
        let limits = limits(
            ["address", "account"].map(|path| refunding(path, 5)),
            paused(),
        );
        let app = app(["account", "address"].map(|path| limits.layer(path).wait(wait)));
        let until = Instant::now() + 10 * SECOND;
        let connections = (0..10).map(|_| {
            let app = app.clone();
            async move {
                let mut denied = 0;
                while Instant::now() < until {
                    let answer = ask(&app, "x-hold: 20").await;
                    if answer.status != OK {
                        denied += 1;
                        assert_eq!(answer.field("retry-after"), Some("1"));
                        sleep(millis(7)).await;
                    }
                    sleep(millis(think)).await;
                }
                denied
            }
        });
        let denied: u64 = kit::in_tasks(connections).await.iter().sum();
        assert_eq!(denied == 0, !wait.is_zero(), "{denied} denied");
        check_rest(&limits).await;
        for path in ["address", "account"] {
            assert_eq!(left(&limits, path, "k").await, 5);
        }
    }
}

/// A check says the same, in its response and by the callbacks; its decision keeps the law.
#[tokio::test(start_paused = true)]
async fn a_refused_check_says_the_same() {
    use axum::response::IntoResponse;
    let limits = limits([units(1)], paused());
    let held = limits.check("p", "k").await.expect("a unit");
    let refused = limits.check("p", "k").await.expect_err("it is used");
    assert_eq!(refused.retry_after(), Some(MINUTE), "law 3");
    let (head, _) = kit::http::get("/").into_parts();
    for answer in [refused.clone().into_response(), refused.answer(head).await] {
        assert_eq!(answer.status(), DENIED);
        assert_eq!(answer.headers()["retry-after"], "1");
    }
    drop(held);
    let refused = limits.check("p", "k").await.expect_err("it is used");
    assert_eq!(refused.into_response().headers()["retry-after"], "60");
}
