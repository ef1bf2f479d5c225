//! What ends the hope for an open charge.

use futures_util::FutureExt;
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{Resilient, StoreError};

use super::*;
use kit::stub::Stub;
use kit::stub::far;

/// Its refunds take so long, or fail.
fn with_bad_refunds(after: Option<Duration>) -> Stub {
    Stub::around(paused()).refund_fn(move |memory, take, receipt| {
        let Some(after) = after else {
            let error = StoreError::new(StoreErrorKind::Unavailable, "no refunds");
            return StoreFuture::ready(Err(error));
        };
        let given_back = memory.refund(take, receipt);
        StoreFuture::boxed(async move {
            let given_back = given_back.await;
            sleep(after).await;
            given_back
        })
    })
}

/// The field `retry-after` of a request that is denied at once.
pub(super) async fn told(limits: &Limits) -> String {
    let denied = ask(&app([limits.layer("p")]), "").await;
    assert_eq!(denied.status, DENIED);
    denied.field("retry-after").expect("it has one").to_owned()
}

/// All was used: nothing comes back.
#[tokio::test(start_paused = true)]
async fn a_settlement_of_all_units() {
    for used in [1, 2, u64::MAX] {
        let limits = limits([units_a_minute(1)], paused());
        let app = app([limits.layer("p").wait(10 * SECOND)]);
        let held = start(&app, 0, &format!("x-hold: 300, x-used: {used}"));
        let denied = start(&app, 100, "").await.expect("no panic");
        assert_eq!(denied.status, DENIED);
        assert!(denied.after <= 310, "{} ms", denied.after);
        assert_ne!(told(&limits).await, "1");
        held.await.expect("no panic");
        check_rest(&limits).await;
    }
}

/// The store fails to give back: nothing is open any more, and nobody waits for it.
#[tokio::test(start_paused = true)]
async fn a_refund_that_fails() {
    let store = Arc::new(with_bad_refunds(None));
    let limits = limits([units_a_minute(1)], store.clone());
    let app = app([limits.layer("p").wait(10 * SECOND)]);
    let held = limits.check("p", "k").await.expect("a unit");
    let charge = held.charge.clone().expect("charged");
    drop(held);
    let waits = start(&app, 0, "");
    sleep(millis(300)).await;
    assert!(charge.refund().await.is_err());
    let denied = waits.await.expect("no panic");
    assert_eq!(denied.status, DENIED);
    assert!(denied.after <= 410, "{} ms", denied.after);
    assert_ne!(told(&limits).await, "1");

    let limits = super::limits([logins(1)], store);
    limits.reset("p", "k").await.expect("an answer");
    sleep(millis(1)).await;
    let layered = super::app([limits.layer("p")]);
    let held = start(&layered, 0, "x-hold: 300");
    sleep(millis(100)).await;
    assert_eq!(told(&limits).await, "1");
    assert_eq!(held.await.expect("no panic").status, OK);
    assert!(limits.flush(SECOND).await);
    assert_ne!(told(&limits).await, "1");
    assert_eq!(limits.snapshot().rules[0].refunds_lost, 1);
}

/// A settlement whose caller leaves in the middle: the store has given back.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_dropped() {
    for settles in [true, false] {
        let store = Arc::new(with_bad_refunds(Some(millis(50))));
        let limits = limits([units_a_minute(1).with_settling(settles)], store);
        let app = app([limits.layer("p").wait(10 * SECOND)]);
        let held = limits.check("p", "k").await.expect("a unit");
        let waits = start(&app, 0, "");
        sleep(millis(300)).await;
        let charge = held.charge.as_ref().expect("charged");
        let settled = tokio::time::timeout(millis(10), charge.settle(0)).await;
        assert!(settled.is_err(), "it takes longer");
        let answer = waits.await.expect("no panic");
        assert_eq!(answer.status, OK, "after {} ms", answer.after);
        assert!(answer.after <= 460, "{} ms", answer.after);
        drop(held);
        check_rest(&limits).await;
    }
}

/// A settlement that is made and never polled.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_not_polled() {
    let limits = limits([units_a_minute(1)], paused());
    let held = limits.check("p", "k").await.expect("a unit");
    let charge = held.charge.expect("charged");
    drop(charge.settle(0));
    let _ = charge.refund().now_or_never();
    drop(charge);
    let layered = app([limits.layer("p").wait(SECOND)]);
    let answer = ask(&layered, "").await;
    assert!(answer.status == OK || answer.field("retry-after") == Some("60"));
}

/// A denial that a cache keeps: the fields, the law, and what this process itself gives back.
#[tokio::test(start_paused = true)]
async fn cached_denials() {
    let stores: [Arc<dyn Store>; 2] = [
        Resilient::new(paused()).build(),
        Arc::new(Resilient::bare(paused()).denial_cache(MINUTE)),
    ];
    for store in stores {
        let limits = limits([logins(5)], store);
        let app = app([limits.layer("p")]);
        let asked: Vec<_> = (0..5).map(|_| start(&app, 0, "x-hold: 300")).collect();
        sleep(millis(100)).await;
        for _ in 0..5 {
            let denied = ask(&app, "").await;
            assert_eq!(denied.status, DENIED);
            assert_eq!(denied.field("retry-after"), Some("1"));
            let after = denied.decision().retry_after().expect("it will fit");
            assert!(after > 59 * SECOND, "{after:?}");
            sleep(millis(20)).await;
        }
        for asked in asked {
            assert_eq!(asked.await.expect("no panic").status, OK);
        }
        for _ in 0..10 {
            let answer = ask(&app, "").await;
            assert_eq!(answer.status, OK, "five are free");
        }
        check_rest(&limits).await;
    }
}

/// Layers without a `Limits`: clones know of each other.
#[tokio::test(start_paused = true)]
async fn layers_of_their_own() {
    let layer = RateLimitLayer::from_rule(units_a_minute(1)).store(paused());
    let layers = [
        RateLimitLayer::from_rule(logins(1)).store(paused()),
        layer.clone().refund_if(|response| response.status == OK),
        layer,
    ];
    for (at, layer) in layers.into_iter().enumerate() {
        let layer = layer.wait(2 * SECOND);
        let used = if at == 2 { "x-used: 0, " } else { "" };
        let [one, two] = [app([layer.clone()]), app([layer.clone()])];
        let held = start(&one, 0, &format!("{used}x-hold: 300"));
        let waits = start(&two, 100, used.trim_end_matches(", "))
            .await
            .expect("no panic");
        assert_eq!((waits.status, waits.after), (OK, 200), "{at}");
        held.await.expect("no panic");
        let snapshot = layer.snapshot().expect("a rule");
        assert_eq!((snapshot.waiting, snapshot.refunds_lost), (0, 0));
    }
}

/// A refund condition that panics keeps the charge, and ends the hope.
#[tokio::test(start_paused = true)]
async fn a_condition_that_panics() {
    let limits = limits([units_a_minute(1)], paused());
    let layer = limits.layer("p").refund_if(|_| panic!("a mistake"));
    let layered = app([layer]);
    let held = start(&layered, 0, "x-hold: 300");
    sleep(millis(100)).await;
    let denied = ask(&layered, "").await;
    assert_eq!(denied.field("retry-after"), Some("1"));
    assert_eq!(held.await.expect("no panic").status, OK);
    let denied = ask(&layered, "").await;
    assert_eq!(denied.field("retry-after"), Some("60"));
    check_rest(&limits).await;
}

/// Checks that are dropped while the store is asked hold nothing.
#[tokio::test(start_paused = true)]
async fn checks_that_are_dropped() {
    let limits = limits([units_a_minute(1)], far(millis(20)));
    let checks = async { limits.check("p", "k").await };
    assert!(tokio::time::timeout(millis(15), checks).await.is_err());
    sleep(millis(50)).await;
    let layered = app([limits.layer("p").wait(2 * SECOND)]);
    let denied = ask(&layered, "").await;
    assert_eq!((denied.status, denied.after), (DENIED, 20));
    assert_eq!(denied.field("retry-after"), Some("60"));
    check_rest(&limits).await;
}
