//! Operators beside partners: keys of outgoing rules that are let through or blocked, and a partner
//! that holds everything.

use super::*;

/// The page of these limits.
struct Page(Router);

impl Page {
    fn of(limits: &Limits) -> Self {
        Self(limits.page().allow_changes().show_keys().router())
    }

    async fn post(&self, what: &str, key: &str, seconds: u64) -> u16 {
        let body = json!({"rule": "partner", "key": key, "seconds": seconds});
        kit::operate(&self.0, &format!("/api/{what}"), &body.to_string())
            .await
            .0
    }

    async fn key(&self, key: &str) -> Value {
        let body = json!({"rule": "partner", "key": key});
        let (_, answer) = kit::operate(&self.0, "/api/key", &body.to_string()).await;
        serde_json::from_str(&answer).expect("JSON")
    }
}

/// What an operator says comes before the partner's; the partner's word is kept.
#[tokio::test(start_paused = true)]
async fn let_through_and_blocked_beside_a_hold() {
    let limits = limits(5);
    let page = Page::of(&limits);
    let partner = limits.outgoing("partner");
    hold(&limits, "us", 600 * SECOND).await;
    assert_eq!(page.post("let-through", "us", 60).await, 200);
    for _ in 0..20 {
        refuse(partner.ready("us").await.expect("it is let through"), 900);
    }
    settle().await;
    sleep(62 * SECOND).await;
    let left = held(&limits, "us")
        .await
        .expect("the partner's word stands");
    let is_heard = left > 800 * SECOND;
    assert!(is_heard, "a call that is let through is heard: {left:?}");

    assert_eq!(page.post("block", "us", 60).await, 200);
    let refused = partner.ready("us").await.expect_err("it is blocked");
    let decision = refused.decision().expect("a decision");
    assert_eq!(decision.source(), Source::Operator);
    assert!(!decision.is_on_hold());
    let shown = page.key("us").await;
    let left = shown["on_hold_s"]
        .as_f64()
        .expect("the page shows the hold");
    assert!((800. ..=900.).contains(&left), "{left}");
    assert_eq!(shown["allowed"], false);
    // A reset lifts the hold, and not the block.
    assert_eq!(page.post("reset", "us", 0).await, 200);
    assert!(partner.ready("us").await.is_err());
    assert_eq!(page.post("block", "us", 0).await, 200);
    pass(&limits, "us").await;
}

/// A call that waits for the end of a hold is denied when its key is blocked, and goes when it is
/// let through.
#[tokio::test(start_paused = true)]
async fn an_operator_reaches_those_who_wait() {
    let limits = limits(5);
    let page = Page::of(&limits);
    hold(&limits, "us", 600 * SECOND).await;
    for (what, is_expected) in [("block", false), ("let-through", true)] {
        let patient = limits.outgoing("partner").wait(HOUR);
        let call = tokio::spawn(async move { patient.ready("us").await.is_ok() });
        sleep(5 * SECOND).await;
        assert!(!call.is_finished());
        // A block that outlasts its patience.
        assert_eq!(page.post(what, "us", 86_400).await, 200);
        let begun = Instant::now();
        assert_eq!(call.await.expect("no panic"), is_expected, "{what}");
        let took = begun.elapsed();
        assert!(took <= 2 * SECOND, "{what}: {took:?}");
        assert_eq!(page.post(what, "us", 0).await, 200);
    }
}

/// A store that cannot hold has no hold to show; a hold is about the key, whatever its plan.
#[tokio::test(start_paused = true)]
async fn the_page_looks_in_any_case() {
    let cannot = limits(5).store(kit::stub::Stub::that_cannot_owe());
    let shown = Page::of(&cannot).key("us").await;
    assert_eq!(shown["on_hold_s"], Value::Null, "{shown}");
    assert_eq!(shown["allowed"], true, "{shown}");
    let plain = Limits::new([per_minute("partner", 5)]);
    assert_eq!(Page::of(&plain).key("us").await["on_hold_s"], Value::Null);
    let quotas = Quotas::new([Quota::per_minute(9)]).expect("valid");
    let planned = Limits::new([partner(5).with_plan("pro", quotas).expect("valid")]);
    let page = Page::of(&planned);
    assert_eq!(page.key("us").await["on_hold_s"], Value::Null);
    drop(planned.check("partner", "us").plan("pro").await);
    hold(&planned, "us", MINUTE).await;
    let shown = page.key("us").await;
    let is_shown = shown["on_hold_s"].as_f64().is_some_and(|it| it > 59.);
    assert!(is_shown, "{shown}");
    assert_eq!(shown["allowed"], false, "{shown}");
}
