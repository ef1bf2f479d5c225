//! What a denial says while charges of this process are open.

use super::*;

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
