//! What becomes of a charge that others wait for.

use super::*;

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

/// The store fails to give back: nothing is open any more, and no field says so.
#[tokio::test(start_paused = true)]
async fn a_refund_that_fails() {
    let store = Arc::new(with_bad_refunds(None));
    let limits = kit::limits([logins(1)], store);
    limits.reset("p", "k").await.expect("an answer");
    sleep(millis(1)).await;
    let held = start(&app([limits.layer("p")]), 0, "x-hold: 300");
    sleep(millis(100)).await;
    assert_eq!(told(&limits).await, "1");
    served([held]).await;
    assert!(limits.flush(SECOND).await);
    assert_ne!(told(&limits).await, "1");
    assert_eq!(limits.snapshot().rules[0].refunds_lost, 1);
}

/// A settlement whose caller leaves in the middle: the store has given back.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_dropped() {
    let store = with_bad_refunds(Some(millis(50)));
    let limits = limits([units(1)], store);
    let held = limits.check("p", "k").await.expect("a unit");
    let waits = start(&waiting_app(&limits, 10 * SECOND), 0, "");
    sleep(millis(300)).await;
    let charge = held.charge.as_ref().expect("charged");
    let settled = timeout(millis(10), charge.settle(0)).await;
    assert!(settled.is_err(), "it takes longer");
    let after = served([waits]).await;
    assert!(after[0] <= 1_010, "{after:?}");
    drop(held);
    check_rest(&limits).await;
}

/// Layers without a `Limits`: clones know of each other.
#[tokio::test(start_paused = true)]
async fn layers_of_their_own() {
    let layer = RateLimitLayer::from_rule(units(1)).store(paused());
    let layers = [
        RateLimitLayer::from_rule(logins(1)).store(paused()),
        layer.clone().refund_if(|response| response.status == 200),
        layer,
    ];
    for (at, layer) in layers.into_iter().enumerate() {
        let layer = layer.wait(2 * SECOND);
        let used = if at == 2 { "x-used: 0" } else { "" };
        let [one, two] = [app([layer.clone()]), app([layer.clone()])];
        let held = start(&one, 0, &format!("x-hold: 300, {used}"));
        assert_eq!(served([start(&two, 100, used)]).await, [200], "{at}");
        answer(held).await;
        let snapshot = layer.snapshot().expect("a rule");
        assert_eq!((snapshot.waiting, snapshot.refunds_lost), (0, 0));
    }
}

/// Checks that are dropped while the store is asked hold nothing.
#[tokio::test(start_paused = true)]
async fn checks_that_are_dropped() {
    let limits = limits([units(1)], far(millis(20)));
    let checks = async { limits.check("p", "k").await };
    assert!(timeout(millis(15), checks).await.is_err());
    sleep(millis(50)).await;
    let denied = ask(&waiting_app(&limits, 2 * SECOND), "").await;
    assert_eq!(denied.status, DENIED);
    assert_ne!(denied.field("retry-after"), Some("1"), "nothing is open");
    check_rest(&limits).await;
}

/// A store that panics when somebody who waits asks again: nobody waits any more.
#[tokio::test(start_paused = true)]
async fn a_store_that_panics_meanwhile() {
    let store = Stub::answering(paused(), |take| {
        take.is_repeat().then(|| panic!("a store of a test"))
    });
    let (limits, app) = world(units(1), store, 10 * SECOND);
    let _held = charge(&limits).await;
    let waits = start(&app, 0, "");
    sleep(millis(100)).await;
    assert_eq!(waiting(&limits), 1);
    let answer = waits.await;
    assert!(answer.is_err() || answer.is_ok_and(|it| it.status >= 500));
    check_rest(&limits).await;
}
