//! Holds that change while calls wait, of rules that change, without room, and outside of a runtime.
//! `tests/histories` plays random ones.

use super::*;

/// No room, and room for one key: an answer or an error, and no admission while it is held.
#[tokio::test(start_paused = true)]
async fn a_memory_store_without_room() {
    let none = limits(5).store(MemoryStore::with_max_keys(0));
    let _ = none.hold("partner", "us", MINUTE).await;
    assert!(none.outgoing("partner").ready("us").await.is_err());
    let one = limits(5).store(MemoryStore::with_max_keys(1));
    pass(&one, "first").await;
    let first = one.hold("partner", "first", MINUTE).await;
    let second = one.hold("partner", "second", MINUTE).await;
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    for (key, answer) in [("first", first), ("second", second)] {
        let turn = one.outgoing("partner").ready(key).await;
        assert!(answer.is_err() || turn.is_err(), "{key}: {answer:?}");
    }
}

/// A hold that comes, is lengthened and lifted while calls wait for room.
#[tokio::test(start_paused = true)]
async fn a_hold_that_changes_under_those_who_wait() {
    let limits = limits(2);
    let begun = Instant::now();
    for _ in 0..2 {
        pass(&limits, "us").await;
    }
    let waits = |patience: Duration| {
        let patient = limits.outgoing("partner").wait(patience);
        tokio::spawn(async move { (patient.ready("us").await.map(drop), begun.elapsed()) })
    };
    let (short, long) = (waits(70 * SECOND), waits(HOUR));
    advance(10 * SECOND).await;
    hold(&limits, "us", 100 * SECOND).await;
    let (answer, after) = short.await.expect("no panic");
    let refused = answer.expect_err("it ends too late");
    let is_on_hold = refused.decision().is_some_and(|it| it.is_on_hold());
    assert!(is_on_hold, "{refused}");
    assert!(after <= 71 * SECOND, "{after:?}");
    hold(&limits, "us", 600 * SECOND).await;
    sleep(100 * SECOND).await;
    assert!(!long.is_finished());
    assert!(reset(&limits, "us").await);
    let lifted = begun.elapsed();
    let (answer, after) = long.await.expect("no panic");
    answer.expect("a turn");
    let is_soon = after <= lifted + 2 * SECOND;
    assert!(is_soon, "{after:?}, lifted after {lifted:?}");
}

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

#[test]
fn heard_without_a_runtime() {
    let limits = limits(10);
    let partner = limits.outgoing("partner");
    let turn = runtime().block_on(partner.ready("us")).expect("a turn");
    refuse(turn, 60);
    drop(runtime().block_on(partner.ready("us")));
    // A later one, in a runtime, is heard.
    runtime().block_on(async {
        hold(&limits, "us", HOUR).await;
        assert!(is_held(&limits, "us").await);
    });
}
