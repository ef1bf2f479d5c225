//! Who is woken, when, and who is not let wait at all.

use axum::routing::post;
use axum::{Router, extract::Request};
use futures_util::future::join_all;
use tidegate::rule::Quotas;
use tidegate::store::Charges;
use tidegate::{Algorithm, Key, Quota, Take};

use super::*;
use kit::stub::far;

/// As of the contract: a reservation of all units is settled 300 ms later.
#[tokio::test(start_paused = true)]
async fn a_settlement_wakes() {
    // Under GCRA, a unit that has left by half is not given back.
    for algorithm in Algorithm::ALL
        .into_iter()
        .filter(|it| *it != Algorithm::Gcra)
    {
        for settles in [false, true] {
            let rule = units_a_minute(100).with_algorithm(algorithm).with_cost(100);
            let limits = limits([rule.with_settling(settles)], paused());
            let app = app([limits.layer("p").wait(2 * SECOND)]);
            let first = start(&app, 0, "x-hold: 300, x-used: 0");
            let second = start(&app, 100, "x-used: 0");
            assert_eq!(first.await.expect("no panic").status, OK);
            let second = second.await.expect("no panic");
            assert_eq!((second.status, second.after), (OK, 200), "{algorithm:?}");
            assert_eq!(left(&limits, "k").await, 100);
            check_rest(&limits).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_by_outcome_wakes() {
    for algorithm in Algorithm::ALL
        .into_iter()
        .filter(|it| *it != Algorithm::Gcra)
    {
        let limits = limits([logins(5).with_algorithm(algorithm)], paused());
        let app = app([limits.layer("p").wait(2 * SECOND)]);
        let asked: Vec<_> = (0..25).map(|_| start(&app, 0, "x-hold: 300")).collect();
        let mut after = Vec::new();
        for asked in asked {
            let answer = asked.await.expect("no panic");
            assert_eq!(answer.status, OK);
            after.push(answer.after);
        }
        after.sort_unstable();
        let expected = [300, 600, 900, 1_200, 1_500];
        let expected: Vec<_> = expected.into_iter().flat_map(|at| [at; 5]).collect();
        assert_eq!(after, expected, "{algorithm:?}");
        check_rest(&limits).await;
        assert_eq!(left(&limits, "k").await, 5);
    }
}

/// Nobody waits for what cannot come: no charge is open that code may settle.
#[tokio::test(start_paused = true)]
async fn a_hopeless_request_is_denied_at_once() {
    let limits = limits([units_a_minute(5)], paused());
    let app = app([limits.layer("p").wait(2 * SECOND)]);
    let held: Vec<_> = (0..5).map(|_| start(&app, 0, "x-hold: 300")).collect();
    sleep(millis(100)).await;
    let denied = ask(&app, "").await;
    assert_eq!((denied.status, denied.after), (DENIED, 0));
    assert_eq!(denied.field("retry-after"), Some("60"));
    join_all(held).await;
    check_rest(&limits).await;
}

/// The last charge that was open is dropped, and nothing is given back.
#[tokio::test(start_paused = true)]
async fn charges_that_are_dropped_end_the_hope() {
    let limits = limits([units_a_minute(1)], paused());
    let app = app([limits.layer("p").wait(10 * SECOND)]);
    let admitted = limits.check("p", "k").await.expect("a unit");
    let waits = start(&app, 0, "");
    sleep(millis(300)).await;
    assert_eq!(waiting(&limits), 1);
    drop(admitted);
    let denied = waits.await.expect("no panic");
    assert_eq!(denied.status, DENIED);
    assert!(denied.after <= 400, "{} ms", denied.after);
    check_rest(&limits).await;
}

/// A handler that panics has dropped its charges; the rule's own hope stays.
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_gives_nothing_back() {
    let panics = async |request: Request| -> StatusCode {
        let charges = Charges::from_extensions(request.extensions());
        sleep(millis(300)).await;
        panic!("{} charges", charges.len())
    };
    for (rule, patience) in [(units_a_minute(1), 400), (logins(1), 2_000)] {
        let limits = limits([rule], paused());
        let layer = limits.layer("p").wait(2 * SECOND);
        let app = Router::new().route("/", post(panics)).layer(layer);
        let first = start(&app, 0, "");
        let second = start(&app, 100, "");
        assert!(first.await.is_err(), "it panics");
        let second = second.await.expect("denied");
        assert_eq!(second.status, DENIED);
        assert!(second.after <= patience, "{} ms", second.after);
        assert_eq!(left(&limits, "k").await, 0);
        check_rest(&limits).await;
    }
}

/// A charge in a task that goes on after the request; in a thread without a runtime.
#[tokio::test]
async fn charges_that_outlive_their_request() {
    let (sender, handed_out) = tokio::sync::mpsc::unbounded_channel();
    let mut handed_out = handed_out;
    let handler = async move |request: Request| {
        let charges = Charges::from_extensions(request.extensions());
        sender.send(charges).expect("is received");
    };
    let limits = limits([units_a_minute(2).with_cost(2)], MemoryStore::new());
    let layer = limits.layer("p").wait(20 * SECOND);
    let app = Router::new().route("/", post(handler)).layer(layer);

    // Settled in a task, twice.
    assert_eq!(ask(&app, "").await.status, OK);
    let charges = handed_out.recv().await.expect("one");
    let second = start(&app, 100, "");
    let task = tokio::spawn(async move {
        sleep(millis(300)).await;
        let again: Charges = charges.iter().cloned().collect();
        assert_eq!(charges.settle(0).await.expect("an answer").given_back, 2);
        assert_eq!(again.settle(0).await.expect("an answer").given_back, 0);
    });
    let second = second.await.expect("no panic");
    assert_eq!(second.status, OK);
    task.await.expect("no panic");

    // Settled in a thread, where there is no runtime.
    let charges = handed_out.recv().await.expect("one");
    let third = start(&app, 0, "");
    sleep(millis(50)).await;
    let thread = std::thread::spawn(move || {
        let settled = futures_util::FutureExt::now_or_never(charges.settle(0));
        settled.expect("memory answers at once").expect("an answer")
    });
    let third = third.await.expect("no panic");
    assert_eq!(thread.join().expect("no panic").given_back, 2);
    assert_eq!(third.status, OK);
    // Its extensions have the charge, too.
    drop(third);

    // Dropped in a thread, where there is no runtime.
    let charges = handed_out.recv().await.expect("one");
    let fourth = start(&app, 0, "");
    sleep(millis(50)).await;
    std::thread::spawn(move || drop(charges))
        .join()
        .expect("no panic");
    let fourth = fourth.await.expect("no panic");
    assert_eq!(fourth.status, DENIED);
    assert!(fourth.after < 10_000, "{} ms", fourth.after);
    check_rest(&limits).await;
}

/// What is free is granted, whoever waits for more before.
#[tokio::test(start_paused = true)]
async fn small_costs_pass_large_ones() {
    let limits = limits([units_a_minute(10).with_settling(true)], paused());
    let app = app([costly(limits.layer("p")).wait(2 * SECOND)]);
    // Of 10 units 4 come back after 300 ms and 6 after 600 ms.
    let first = start(&app, 0, "x-cost: 4, x-hold: 300, x-used: 0");
    let second = start(&app, 0, "x-cost: 6, x-hold: 600, x-used: 0");
    let ten = start(&app, 10, "x-cost: 10, x-hold: 100, x-used: 0");
    let five = start(&app, 20, "x-cost: 5, x-hold: 100, x-used: 0");
    let four = start(&app, 30, "x-cost: 4, x-hold: 100, x-used: 0");
    for (asked, expected) in [(first, 300), (second, 600), (four, 370)] {
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.status, OK);
        assert!(
            (expected..=expected + 20).contains(&answer.after),
            "{} ms",
            answer.after
        );
    }
    // At 600 ms either five or ten, and the other one 100 ms later.
    let mut last = [
        ten.await.expect("no panic").after + 10,
        five.await.expect("no panic").after + 20,
    ];
    last.sort_unstable();
    assert!(
        (700..=720).contains(&last[0]) && (800..=840).contains(&last[1]),
        "{last:?}"
    );
    assert_eq!(left(&limits, "k").await, 10);
    check_rest(&limits).await;
}

/// Whatever the wait is.
#[tokio::test(start_paused = true)]
async fn no_wait_and_the_longest_one() {
    let limits = limits([logins(1)], paused());
    let layer = limits.layer("p");
    let [none, forever] =
        [Duration::ZERO, Duration::MAX].map(|up_to| app([layer.clone().wait(up_to)]));
    let held = start(&forever, 0, "x-hold: 300000, x-status: 401");
    let denied = start(&none, 10, "");
    let denied = denied.await.expect("no panic");
    assert_eq!((denied.status, denied.after), (DENIED, 0));
    let waits = start(&forever, 0, "");
    let waits = waits.await.expect("no panic");
    // The window is over before the charge is settled.
    assert_eq!(waits.status, OK);
    assert!(
        (59_980..=60_100).contains(&waits.after),
        "{} ms",
        waits.after
    );
    held.await.expect("no panic");
    check_rest(&limits).await;
}

/// Charges held by a check; of another key; of a key that the layer has, too.
#[tokio::test(start_paused = true)]
async fn a_check_that_holds_its_charge() {
    let limits = limits([units_a_minute(1)], paused());
    let app = app([limits.layer("p").wait(2 * SECOND)]);
    let held = limits.check("p", "k").await.expect("a unit");
    let other = limits.check("p", "other").await.expect("a unit");
    drop(limits.check("p", "third").await.expect("a unit"));
    let waits = start(&app, 0, "");
    let third = ask(&app, "x-key: third").await;
    assert_eq!((third.status, third.after), (DENIED, 0), "nobody holds it");
    sleep(millis(250)).await;
    other
        .charge
        .expect("charged")
        .refund()
        .await
        .expect("an answer");
    sleep(millis(250)).await;
    assert_eq!(waiting(&limits), 1);
    held.charge
        .expect("charged")
        .refund()
        .await
        .expect("an answer");
    let waits = waits.await.expect("no panic");
    assert_eq!((waits.status, waits.after), (OK, 500));
    check_rest(&limits).await;
}

/// The layers of two routes, of a plan, and of quotas from code, count one key.
#[tokio::test(start_paused = true)]
async fn all_layers_of_a_path_wake_each_other() {
    let plan = Quotas::new([Quota::new(MINUTE, 20).expect("valid")]).expect("valid");
    let quotas = Arc::new(Quotas::new([Quota::new(MINUTE, 15).expect("valid")]).expect("valid"));
    let rule = units_a_minute(10).with_plan("pro", plan).expect("valid");
    let limits = limits([rule.with_settling(true)], paused());
    let layer = || costly(limits.layer("p").wait(2 * SECOND));
    let plain = app([layer()]);
    let pro = app([layer().plan(|_| Some("pro"))]);
    let table = app([layer().quotas(move |_| Some(Arc::clone(&quotas)))]);
    for holder in [&plain, &pro, &table] {
        for (waiter, max) in [(&plain, 10), (&pro, 20), (&table, 15)] {
            let held = start(holder, 0, "x-cost: 10, x-hold: 300, x-used: 0");
            let waits = start(waiter, 100, &format!("x-cost: {max}, x-used: 0"));
            assert_eq!(held.await.expect("no panic").status, OK);
            let waits = waits.await.expect("no panic");
            assert_eq!((waits.status, waits.after), (OK, 200));
            assert_eq!(left(&limits, "k").await, 10);
        }
    }
    check_rest(&limits).await;
}

/// One question for all that wait, beside the first ones and those that are granted.
#[tokio::test(start_paused = true)]
async fn those_who_wait_share_their_questions() {
    const WAITING: usize = 200;
    for costs in [1, 7] {
        let far = far(millis(10));
        let limits = limits([units_a_minute(10).with_settling(true)], far.clone());
        let app = app([costly(limits.layer("p"))
            .max_waiting(10_000)
            .wait(2 * SECOND)]);
        for _ in 0..10 {
            assert_eq!(ask(&app, "").await.status, OK);
        }
        let asked: Vec<_> = (0..WAITING)
            .map(|at| start(&app, at as u64, &format!("x-cost: {}", 1 + at % costs)))
            .collect();
        for asked in asked {
            let denied = asked.await.expect("no panic");
            assert_eq!(denied.status, DENIED);
            assert!(
                (1_900..2_050).contains(&denied.after),
                "{} ms",
                denied.after
            );
        }
        let repeats = far.asked(Take::is_repeat);
        let bound = if costs == 1 { 24 } else { 4 * 24 };
        assert!(repeats <= bound, "{repeats} questions of {costs} costs");
        let firsts = far.takes().len() - repeats;
        assert_eq!(firsts, 10 + WAITING);
        check_rest(&limits).await;
    }
}

/// Thousands of waiting requests, of one key and of many: all are served in their time.
#[tokio::test(start_paused = true)]
async fn thousands_wait_and_all_are_served() {
    for (keys, of_each) in [(1, 2_500), (300, 12)] {
        for store in [paused(), Arc::new(far(millis(10))) as Arc<dyn Store>] {
            let limits = limits([logins(5)], store);
            let layer = limits.layer("p").max_waiting(40_000);
            let app = app([layer.wait(60 * SECOND)]);
            let asked: Vec<_> = (0..keys * of_each)
                .map(|at| start(&app, 0, &format!("x-key: {}, x-hold: 20", at % keys)))
                .collect();
            let mut slowest = 0;
            for asked in asked {
                let answer = asked.await.expect("no panic");
                assert_eq!(answer.status, OK);
                slowest = slowest.max(answer.after);
            }
            // 20 ms by 20 ms, five at a time; a round trip for each refund and question.
            let bound = (of_each as u128).div_ceil(5) * 45 + 200;
            assert!(slowest <= bound, "{slowest} ms of {bound}");
            check_rest(&limits).await;
            assert_eq!(left(&limits, "0").await, 5);
        }
    }
}

/// Beyond the most that may wait, requests are denied at once, also if there is hope.
#[tokio::test(start_paused = true)]
async fn hope_has_places() {
    let limits = limits([logins(1)], paused());
    let app = app([limits.layer("p").max_waiting(40).wait(2 * SECOND)]);
    let asked: Vec<_> = (0..100).map(|_| start(&app, 0, "x-hold: 1900")).collect();
    let mut at_once = 0;
    for asked in asked {
        let answer = asked.await.expect("no panic");
        at_once += usize::from(answer.status == DENIED && answer.after == 0);
    }
    assert_eq!(at_once, 100 - 1 - 10);
    check_rest(&limits).await;
}

/// A store that is refunded by code around the layers.
#[tokio::test(start_paused = true)]
async fn a_charge_made_by_hand() {
    let store = paused();
    let limits = limits([logins(1)], Arc::clone(&store));
    let app = app([limits.layer("p").wait(2 * SECOND)]);
    let take = Take::new(Arc::new(logins(1)), Key::from("k"));
    let decision = store.take(&take).await.expect("an answer");
    let receipt = decision.receipt().expect("charged");
    let charge = tidegate::store::Charge::new(store, take, receipt);
    let waits = start(&app, 0, "");
    sleep(millis(250)).await;
    assert_eq!(charge.refund().await.expect("an answer"), 1);
    let waits = waits.await.expect("no panic");
    assert_eq!(waits.status, OK);
    assert!(waits.after <= 351, "{} ms", waits.after);
    check_rest(&limits).await;
}
