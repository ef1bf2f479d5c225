//! Many calls that wait: for the end of a hold, and whatever happens meanwhile.

use super::*;

fn per_second(max: u64) -> Rule {
    let rule = kit::owned_rule("partner", max, SECOND).with_outgoing();
    rule.expect("one subject")
}

/// 300 calls of one token: each waits with the patience that it was given.
#[tokio::test(start_paused = true)]
async fn each_call_has_the_patience_that_it_was_given() {
    let limits = limits(1_000);
    hold(&limits, "us", SECOND).await;
    let calls = (0..300).map(|_| {
        let patient = limits.outgoing("partner").wait(MINUTE);
        async move { patient.ready("us").await.is_ok() }
    });
    assert_eq!(in_tasks(calls).await, [true; 300]);
}

/// 10,000 of one process, in memory: no window holds more than max, and none is left behind. Who
/// finds no place to wait comes again.
#[tokio::test(start_paused = true)]
async fn ten_thousand_wait_for_the_end() {
    let limits = Limits::new([per_second(500)]).store(MemoryStore::new().tokio_clock());
    hold(&limits, "us", 7 * SECOND).await;
    let begun = Instant::now();
    let calls = (0..10_000).map(|_| {
        let patient = limits.outgoing("partner").wait(100 * SECOND);
        async move {
            while let Err(refused) = patient.ready("us").await {
                sleep(refused.retry_after().expect("it says when")).await;
            }
            begun.elapsed()
        }
    });
    let mut turns = in_tasks(calls).await;
    turns.sort();
    assert!(turns[0] >= 7 * SECOND, "{:?}", turns[0]);
    for (at, (first, last)) in turns.iter().zip(&turns[500..]).enumerate() {
        // Timers of tokio have a millisecond.
        let is_paced = *last + millis(1) >= *first + SECOND;
        assert!(is_paced, "{at}: {first:?} {last:?}");
    }
    let last = turns[9_999];
    assert!(last < 40 * SECOND, "the last after {last:?}");
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
