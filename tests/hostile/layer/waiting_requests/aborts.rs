//! Callers that leave while they wait, at every moment.

use super::*;

/// Of ten that wait, some leave at any millisecond: before the units come back, while the shared
/// question is on its way, and just when they were granted. The others get what is there.
#[tokio::test(start_paused = true)]
async fn those_who_leave_hold_up_nobody() {
    for leaving in [1, 5, 9] {
        for at in (80..=330).step_by(3) {
            let (limits, app) = world(logins(1), far(millis(20)), 10 * SECOND);
            let held = start(&app, 0, "x-hold: 100");
            let mut asked: Vec<_> = (0..10).map(|number| start(&app, 30 + number, "")).collect();
            sleep(millis(at)).await;
            let gone: Vec<_> = asked.drain(..leaving).collect();
            gone.iter().for_each(JoinHandle::abort);
            served([held]).await;
            let number = join_all(gone).await.iter().filter(|it| it.is_err()).count();
            let others = done(asked).await;
            // What one of those that left was charged stays so: then nobody gets it, until its
            // window has passed.
            let served = others.iter().filter(|it| it.status == OK).count();
            let patience = match served < 10 - leaving {
                true => {
                    assert_eq!(left(&limits, "p", "k").await, 0, "left at {at}: {served}");
                    assert!(number > 0);
                    10_050
                }
                false => 1_499,
            };
            let is_right = others.iter().all(|it| it.millis() <= patience);
            assert!(is_right, "{others:?}");
            check_rest(&limits).await;
        }
    }
}

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

/// All leave, and the next ones find everything as if nobody had been there.
#[tokio::test(start_paused = true)]
async fn all_leave() {
    for store in near_and_far(20) {
        let limits = limits([units(3)], store);
        let app = app([limits.layer("p").max_waiting(80).wait(MINUTE)]);
        for _ in 0..3 {
            assert_eq!(ask(&app, "").await.status, OK);
        }
        for round in 0..50 {
            let asked = start_all(20, &app, 0, "");
            sleep(millis(50 + 7 * round)).await;
            assert_eq!(waiting(&limits), 20, "{round}");
            asked.iter().for_each(JoinHandle::abort);
            join_all(asked).await;
            assert_eq!(waiting(&limits), 0, "{round}");
        }
        // Those who come later have places, and are served when the window has passed.
        let began = Instant::now();
        served(start_all(3, &app, 0, "")).await;
        assert!(began.elapsed() < MINUTE);
        check_rest(&limits).await;
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

/// At random, on real time and threads: whoever is not served has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_leave_at_random() {
    let limits = limits([logins(20)], MemoryStore::new());
    let app = app([limits.layer("p").max_waiting(8_000).wait(20 * SECOND)]);
    let asked: Vec<_> = (0..1_500)
        .map(|at| start(&app, at % 97, "x-hold: 3"))
        .collect();
    for (at, asked) in asked.iter().enumerate().step_by(3) {
        if at % 5 == 0 {
            sleep(millis(1)).await;
        }
        asked.abort();
    }
    let mut cancelled = 0;
    for asked in asked {
        match asked.await {
            Ok(answer) => assert_eq!(answer.status, OK),
            Err(error) => {
                assert!(error.is_cancelled(), "{error}");
                cancelled += 1;
            }
        }
    }
    assert!(cancelled > 0);
    // Only what was dropped in its handler stays charged.
    check_rest(&limits).await;
}
