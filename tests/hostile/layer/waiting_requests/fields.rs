//! What a denial says while charges of this process are open.

use std::time::Duration;

use super::*;
use tidegate::Algorithm;

const fn micros(number: u64) -> Duration {
    Duration::from_micros(number)
}

/// Law: the decision's retry-after is true, whatever the fields say.
async fn check_law_3(limits: &Limits, cost: u64, denied: &Answer) {
    let retry_after = denied.decision().retry_after().expect("it will fit");
    tokio::time::advance(retry_after - micros(1)).await;
    assert!(
        left(limits, "k").await < cost,
        "earlier than {retry_after:?}"
    );
    tokio::time::advance(micros(1)).await;
    assert!(
        left(limits, "k").await >= cost,
        "later than {retry_after:?}"
    );
}

/// Seven good logins at once under five, without `.wait`.
#[tokio::test(start_paused = true)]
async fn open_charges_say_a_second() {
    for algorithm in Algorithm::ALL {
        let limits = limits([logins(5).with_algorithm(algorithm)], paused());
        let app = app([limits.layer("p")]);
        let asked: Vec<_> = (0..7)
            .map(|_| start(&app, 0, "x-hold: 300, x-status: 401"))
            .collect();
        let mut denied = Vec::new();
        for asked in asked {
            let answer = asked.await.expect("no panic");
            if answer.status == DENIED {
                assert_eq!(answer.field("retry-after"), Some("1"), "{algorithm:?}");
                let limit = answer.field("ratelimit").expect("it has one");
                assert!(limit.ends_with(";r=0;t=1"), "{algorithm:?}: {limit}");
                denied.push(answer);
            }
        }
        assert_eq!(denied.len(), 2);
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
        assert_eq!(never.status, DENIED);
        assert_eq!(never.field("retry-after"), None);
        held.await.expect("no panic");
        check_rest(&limits).await;
    }
}

/// Two quotas, of which one has room by open charges and the other one has not.
#[tokio::test(start_paused = true)]
async fn every_quota_has_to_have_room() {
    let quotas = [Quota::new(SECOND, 3), Quota::new(MINUTE, 5)].map(|it| it.expect("valid"));
    let rule = Rule::new("p", quotas).expect("valid");
    let limits = limits([rule.with_refund_on(["2xx"]).expect("valid")], paused());
    let app = app([limits.layer("p")]);
    for _ in 0..2 {
        assert_eq!(ask(&app, "x-status: 401").await.status, BAD);
    }
    sleep(2 * SECOND).await;
    let held: Vec<_> = (0..3).map(|_| start(&app, 0, "x-hold: 5000")).collect();
    sleep(millis(100)).await;
    // Both quotas are full, and the three open charges would make room in both.
    let denied = ask(&app, "").await;
    assert_eq!(
        (denied.status, denied.field("retry-after")),
        (DENIED, Some("1"))
    );
    // The short one has room now; the long one would have by the open charges.
    sleep(millis(1_500)).await;
    let denied = ask(&app, "").await;
    assert_eq!(
        (denied.status, denied.field("retry-after")),
        (DENIED, Some("1"))
    );
    for held in held {
        held.await.expect("no panic");
    }
    check_rest(&limits).await;
    assert_eq!(left(&limits, "k").await, 3);
}

/// Two rules: nothing of the inner denial stays in the outer one, and its fields are hopeful.
#[tokio::test(start_paused = true)]
async fn two_rules() {
    for wait in [None, Some(2 * SECOND)] {
        let [address, account] = ["address", "account"].map(|path| {
            let max = if path == "account" { 5 } else { 50 };
            rule_of(path, max).with_refund_on(["2xx"]).expect("valid")
        });
        let limits = limits([address, account], paused());
        let layers = ["account", "address"].map(|path| match wait {
            Some(up_to) => limits.layer(path).wait(up_to),
            None => limits.layer(path),
        });
        let app = app(layers);
        let asked: Vec<_> = (0..7).map(|_| start(&app, 0, "x-hold: 300")).collect();
        let mut denied = 0;
        for asked in asked {
            let answer = asked.await.expect("no panic");
            if answer.status == DENIED {
                assert_eq!(answer.field("retry-after"), Some("1"));
                denied += 1;
            }
        }
        assert_eq!(denied, if wait.is_some() { 0 } else { 2 });
        check_rest(&limits).await;
        assert_eq!(left_of(&limits, "address", "k").await, 50);
        assert_eq!(left_of(&limits, "account", "k").await, 5);
    }
}

/// Ten connections, each with one request after the other, that need 5 units at a time. Between
/// two requests of a connection is a moment, as on a network.
#[tokio::test(start_paused = true)]
async fn ten_connections_for_ten_seconds() {
    for (wait, think) in [(false, 1), (true, 1), (true, 5)] {
        let [address, account] = ["address", "account"]
            .map(|path| rule_of(path, 5).with_refund_on(["2xx"]).expect("valid"));
        let limits = limits([address, account], paused());
        let layers = ["account", "address"].map(|path| match wait {
            true => limits.layer(path).wait(2 * SECOND),
            false => limits.layer(path),
        });
        let app = app(layers);
        let until = Instant::now() + 10 * SECOND;
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let app = app.clone();
                tokio::spawn(async move {
                    let (mut served, mut denied) = (0, 0);
                    while Instant::now() < until {
                        let answer = ask(&app, "x-hold: 20").await;
                        if answer.status == OK {
                            served += 1;
                        } else {
                            denied += 1;
                            assert_eq!(answer.field("retry-after"), Some("1"));
                            sleep(millis(7)).await;
                        }
                        sleep(millis(think)).await;
                    }
                    (served, denied)
                })
            })
            .collect();
        let (mut served, mut denied) = (Vec::new(), 0);
        for task in tasks {
            let (ok, not) = task.await.expect("no panic");
            served.push(ok);
            denied += not;
        }
        println!("wait {wait}, think {think}: {served:?} served, {denied} denied");
        assert_eq!(denied == 0, wait);
        check_rest(&limits).await;
        for path in ["address", "account"] {
            assert_eq!(left_of(&limits, path, "k").await, 5);
        }
    }
}

/// A check says the same, in its response and by the callbacks; its decision keeps the law.
#[tokio::test(start_paused = true)]
async fn a_refused_check_says_the_same() {
    use axum::response::IntoResponse;
    let limits = limits([units_a_minute(1)], paused());
    let held = limits.check("p", "k").await.expect("a unit");
    let refused = limits.check("p", "k").await.expect_err("it is used");
    assert_eq!(refused.retry_after(), Some(MINUTE), "law 3");
    let (head, _) = request("").into_parts();
    let answers = [refused.clone().into_response(), refused.answer(head).await];
    for answer in answers {
        assert_eq!(answer.status(), DENIED);
        assert_eq!(answer.headers()["retry-after"], "1");
    }
    drop(held);
    let refused = limits.check("p", "k").await.expect_err("it is used");
    assert_eq!(refused.into_response().headers()["retry-after"], "60");
}
