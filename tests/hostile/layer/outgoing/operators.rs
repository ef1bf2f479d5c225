//! Operators beside partners: keys of outgoing rules that are let through or blocked, and a partner
//! that holds everything.

use kit::page::App;

use super::*;

/// The page of these limits.
fn page(limits: &Limits) -> App {
    App::of(limits.clone(), |page| page.allow_changes().show_keys())
}

/// What an operator says comes before the partner's; the partner's word is kept.
#[tokio::test(start_paused = true)]
async fn let_through_and_blocked_beside_a_hold() {
    let limits = limits(5);
    let page = page(&limits);
    let partner = limits.outgoing("partner");
    hold(&limits, "us", 600 * SECOND).await;
    page.play("let-through partner/us 60").await;
    for _ in 0..20 {
        refuse(partner.ready("us").await.expect("it is let through"), 900);
    }
    settle().await;
    sleep(62 * SECOND).await;
    let left = held(&limits, "us").await;
    let is_heard = left.is_some_and(|it| it > 800 * SECOND);
    assert!(is_heard, "a call that is let through is heard: {left:?}");

    page.play("block partner/us 60").await;
    let refused = partner.ready("us").await.expect_err("it is blocked");
    let decision = refused.decision().expect("a decision");
    assert_eq!(decision.source(), Source::Operator);
    assert!(!decision.is_on_hold());
    let shows = "key partner/us; /on_hold_s in 800..900; /allowed = false";
    page.play(shows).await;
    // A reset lifts the hold, and not the block.
    page.play("reset partner/us").await;
    assert!(partner.ready("us").await.is_err());
    page.play("block partner/us 0").await;
    pass(&limits, "us").await;
}

/// A call that waits for the end of a hold is denied when its key is blocked, and goes when it is
/// let through.
#[tokio::test(start_paused = true)]
async fn an_operator_reaches_those_who_wait() {
    let limits = limits(5);
    let page = page(&limits);
    hold(&limits, "us", 600 * SECOND).await;
    for (what, is_expected) in [("block", false), ("let-through", true)] {
        let patient = limits.outgoing("partner").wait(HOUR);
        let call = tokio::spawn(async move { patient.ready("us").await.is_ok() });
        sleep(5 * SECOND).await;
        assert!(!call.is_finished());
        // A block that outlasts its patience.
        page.play(&format!("{what} partner/us 86400")).await;
        let begun = Instant::now();
        assert_eq!(call.await.expect("no panic"), is_expected, "{what}");
        let took = begun.elapsed();
        assert!(took <= 2 * SECOND, "{what}: {took:?}");
        page.play(&format!("{what} partner/us 0")).await;
    }
}

/// A store that cannot hold has no hold to show; a hold is about the key, whatever its plan.
#[tokio::test(start_paused = true)]
async fn the_page_looks_in_any_case() {
    let cannot = limits(5).store(Stub::that_cannot_owe());
    let shows = "key partner/us; /on_hold_s = null; /allowed = true";
    page(&cannot).play(shows).await;
    let plain = Limits::new([per_minute("partner", 5)]);
    page(&plain).play("key partner/us; /on_hold_s = null").await;
    let quotas = Quotas::new([Quota::per_minute(9)]).expect("valid");
    let planned = Limits::new([partner(5).with_plan("pro", quotas).expect("valid")]);
    let page = page(&planned);
    page.play("key partner/us; /on_hold_s = null").await;
    drop(planned.check("partner", "us").plan("pro").await);
    hold(&planned, "us", MINUTE).await;
    let shows = "key partner/us; /on_hold_s in 59.000001..60; /allowed = false";
    page.play(shows).await;
}
