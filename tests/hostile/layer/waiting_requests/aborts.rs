//! Callers that leave while they wait, at every moment.

use super::*;

/// In memory a decision is made and heard at once: who leaves before has taken nothing.
#[tokio::test(start_paused = true)]
async fn those_who_leave_take_nothing() {
    for leaving in [1, 5, 9] {
        for at in 0..=320 {
            let (limits, app) = world(logins(1), paused(), 2 * SECOND);
            let held = start(&app, 0, "x-hold: 200");
            let mut asked: Vec<_> = (0..10).map(|number| start(&app, 2 + number, "")).collect();
            sleep(millis(at)).await;
            asked.drain(..leaving).for_each(|it| it.abort());
            served([held]).await;
            let after = served(asked).await;
            assert!(after.iter().all(|it| *it <= 400), "{after:?}, left at {at}");
            check_rest(&limits).await;
            assert_eq!(left(&limits, "p", "k").await, 1, "left at {at}");
        }
    }
}

/// A holder that is dropped in the middle of its handler, with and without its charges.
#[tokio::test(start_paused = true)]
async fn holders_that_leave() {
    for (rule, fields) in [
        (units(1), "x-hold: 5000, x-used: 0"),
        (logins(1), "x-hold: 5000"),
    ] {
        let (limits, app) = world(rule, paused(), 2 * SECOND);
        let held = start(&app, 0, fields);
        let waits = start(&app, 100, "");
        sleep(millis(400)).await;
        held.abort();
        let waits = answer(waits).await;
        assert_eq!(waits.status, DENIED);
        assert!(waits.millis() <= 2_010, "{waits:?}");
        let next = answer(start(&app, 0, "")).await;
        assert_eq!(next.status, DENIED);
        assert_ne!(next.field("retry-after"), Some("1"), "nothing is open");
        check_rest(&limits).await;
    }
}
