//! Many calls that wait: for the end of a hold, and whatever happens meanwhile.

use super::*;

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
