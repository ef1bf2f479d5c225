//! Rules that become outgoing, or cease to be, while calls wait; and rules that cannot be.

use super::*;

/// From outgoing to not and back, while calls wait for the end of a hold.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_outgoing_no_more() {
    let limits = limits(50);
    let patient = limits.outgoing("partner").wait(HOUR);
    hold(&limits, "us", 1_000 * SECOND).await;
    let begun = Instant::now();
    let calls = (0..20).map(|_| {
        let patient = patient.clone();
        tokio::spawn(async move { patient.ready("us").await.map(drop) })
    });
    let calls: Vec<_> = calls.collect();
    sleep(5 * SECOND).await;
    assert!(calls.iter().all(|it| !it.is_finished()));
    replace(&limits, [per_minute("partner", 50)]);
    assert!(done(calls).await.iter().all(Result::is_ok));
    // As under every rule, a call that waits goes on under the rule that it came with.
    assert!(begun.elapsed() <= 1_001 * SECOND, "{:?}", begun.elapsed());
    // What is heard now holds nothing, and says so as an error.
    assert!(limits.hold("partner", "them", HOUR).await.is_err());
    let turn = patient.ready("them").await.expect("a turn");
    replace(&limits, [partner(50)]);
    assert_eq!(held(&limits, "them").await, None);
    // A turn of before is heard under the rule of now, or not at all; it breaks nothing.
    refuse(turn, 60);
    settle().await;
    hold(&limits, "them", 2 * MINUTE).await;
    assert_eq!(held(&limits, "them").await, Some(2 * MINUTE));
}

/// The rule goes and comes back while a call runs.
#[tokio::test(start_paused = true)]
async fn a_rule_that_is_gone() {
    let limits = limits(50);
    let outgoing = limits.outgoing("partner");
    let turn = outgoing.ready("us").await.expect("a turn");
    replace(&limits, []);
    refuse(turn, 60);
    settle().await;
    // No rule limits nothing: law 16.
    pass(&limits, "us").await;
    assert!(limits.hold("partner", "us", SECOND).await.is_err());
    replace(&limits, [partner(50)]);
    refuse(outgoing.ready("again").await.expect("a turn"), 60);
    settle().await;
    assert_eq!(held(&limits, "again").await, Some(MINUTE));
}

/// In any order, in code and in files, what does not fit is an error.
#[test]
fn what_an_outgoing_rule_cannot_have() {
    let plain = || per_minute("partner", 5);
    let permits = plain().with_max_concurrent(4).expect("valid");
    assert!(permits.with_outgoing().is_err());
    assert!(partner(5).with_max_concurrent(4).is_err());
    let user = |name| Subject::new(name, Header::new("x-user")).limit(kit::quota(5, SECOND));
    let joint = Rule::joint("partner", [user("a"), user("b")]).expect("valid");
    assert!(joint.with_outgoing().is_err());
    let concurrent = Quotas::with_policies([tidegate::rule::Policy::concurrent(4)]);
    if let Ok(quotas) = concurrent {
        assert!(partner(5).with_plan("pro", quotas).is_err());
    }
}
