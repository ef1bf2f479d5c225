//! Who is woken, when, and who is not let wait at all.

use super::*;

/// As of the contract: a reservation of all units is settled 300 ms later. (Under GCRA, a unit that
/// has left by half is not given back.)
#[tokio::test(start_paused = true)]
async fn a_settlement_wakes() {
    for algorithm in COUNTING {
        let rule = units(100).with_algorithm(algorithm).with_cost(100);
        let (limits, app) = world(rule, paused(), 2 * SECOND);
        let first = start(&app, 0, "x-hold: 300, x-used: 0");
        let second = start(&app, 100, "x-used: 0");
        assert_eq!(served([first, second]).await[1], 200, "{algorithm:?}");
        assert_eq!(left(&limits, "p", "k").await, 100);
        check_rest(&limits).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_by_outcome_wakes() {
    for algorithm in COUNTING {
        let (limits, app) = world(logins(5).with_algorithm(algorithm), paused(), 2 * SECOND);
        let mut after = served(start_all(25, &app, 0, "x-hold: 300")).await;
        after.sort_unstable();
        let expected = [300, 600, 900, 1_200, 1_500];
        let expected: Vec<_> = expected.into_iter().flat_map(|at| [at; 5]).collect();
        assert_eq!(after, expected, "{algorithm:?}");
        check_rest(&limits).await;
        assert_eq!(left(&limits, "p", "k").await, 5);
    }
}

/// A handler that panics has dropped its charges.
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_gives_nothing_back() {
    let panics = async |request: Request| -> () {
        let charges = Charges::from_extensions(request.extensions());
        sleep(millis(300)).await;
        panic!("{} charges", charges.len())
    };
    for rule in [units(1), logins(1)] {
        let limits = limits([rule], paused());
        let layer = limits.layer("p").wait(2 * SECOND);
        let app = Router::new().route("/", any(panics)).layer(layer);
        let first = start(&app, 0, "");
        let second = start(&app, 100, "");
        assert!(first.await.is_err(), "it panics");
        let second = answer(second).await;
        assert_eq!(second.status, DENIED);
        assert!(second.millis() <= 2_000, "{second:?}");
        assert_eq!(left(&limits, "p", "k").await, 0);
        check_rest(&limits).await;
    }
}

/// A charge in a task that goes on after the request; in a thread without a runtime.
#[tokio::test]
async fn charges_that_outlive_their_request() {
    let (sender, mut handed_out) = tokio::sync::mpsc::unbounded_channel();
    let handler = async move |request: Request| {
        let charges = Charges::from_extensions(request.extensions());
        sender.send(charges).expect("is received");
    };
    let limits = limits([units(2).with_cost(2)], MemoryStore::new());
    let layer = limits.layer("p").wait(20 * SECOND);
    let app = Router::new().route("/", any(handler)).layer(layer);

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
    served([second]).await;
    task.await.expect("no panic");

    // Settled in a thread, where there is no runtime.
    let charges = handed_out.recv().await.expect("one");
    let third = start(&app, 0, "");
    sleep(millis(50)).await;
    let settle = move || charges.settle(0).now_or_never();
    let settled = std::thread::spawn(settle).join().expect("no panic");
    let settled = settled.expect("memory answers at once").expect("an answer");
    assert_eq!(settled.given_back, 2);
    served([third]).await;

    check_rest(&limits).await;
}

/// What is free is granted, whoever waits for more before.
#[tokio::test(start_paused = true)]
async fn small_costs_pass_large_ones() {
    let limits = limits([units(10)], paused());
    let app = app([costly(limits.layer("p")).wait(2 * SECOND)]);
    // Of 10 units 4 come back after 300 ms and 6 after 600 ms.
    let first = start(&app, 0, "x-cost: 4, x-hold: 300, x-used: 0");
    let second = start(&app, 0, "x-cost: 6, x-hold: 600, x-used: 0");
    let ten = start(&app, 10, "x-cost: 10, x-hold: 100, x-used: 0");
    let five = start(&app, 20, "x-cost: 5, x-hold: 100, x-used: 0");
    let four = start(&app, 30, "x-cost: 4, x-hold: 100, x-used: 0");
    let after = served([first, second, four]).await;
    for (after, expected) in after.into_iter().zip([300, 600, 370]) {
        assert!((expected..=expected + 20).contains(&after), "{after} ms");
    }
    // At 600 ms either five or ten, and the other one 100 ms later.
    let [ten, five] = [answer(ten).await, answer(five).await];
    let mut last = [ten.millis() + 10, five.millis() + 20];
    last.sort_unstable();
    let are_in_turn = (700..=720).contains(&last[0]) && (800..=840).contains(&last[1]);
    assert!(are_in_turn, "{last:?}");
    assert_eq!(left(&limits, "p", "k").await, 10);
    check_rest(&limits).await;
}

/// Whatever the wait is.
#[tokio::test(start_paused = true)]
async fn no_wait_and_the_longest_one() {
    let limits = limits([logins(1)], paused());
    let [none, forever] = [Duration::ZERO, Duration::MAX].map(|wait| waiting_app(&limits, wait));
    let held = start(&forever, 0, "x-hold: 300000, x-status: 401");
    let denied = answer(start(&none, 10, "")).await;
    assert_eq!((denied.status, denied.millis()), (DENIED, 0));
    // The window is over before the charge is settled.
    let after = served([start(&forever, 0, "")]).await[0];
    assert!((59_980..=60_100).contains(&after), "{after} ms");
    answer(held).await;
    check_rest(&limits).await;
}

/// Charges held by a check; of another key, too.
#[tokio::test(start_paused = true)]
async fn a_check_that_holds_its_charge() {
    let (limits, app) = world(units(1), paused(), 2 * SECOND);
    let held = charge(&limits).await;
    let other = limits.check("p", "other").await.expect("a unit");
    let waits = start(&app, 0, "");
    sleep(millis(250)).await;
    refund(other.charge.expect("charged")).await;
    sleep(millis(250)).await;
    assert_eq!(waiting(&limits), 1);
    refund(held).await;
    assert_eq!(served([waits]).await, [500]);
    check_rest(&limits).await;
}

/// The layers of two routes, of a plan, and of quotas from code, count one key.
#[tokio::test(start_paused = true)]
async fn all_layers_of_a_path_wake_each_other() {
    let quotas = |max| Quotas::new([quota(max, MINUTE)]).expect("valid");
    let rule = units(10).with_plan("pro", quotas(20)).expect("valid");
    let limits = limits([rule], paused());
    let layer = || costly(limits.layer("p").wait(2 * SECOND));
    let table = tidegate::rule::Plan::from(quotas(15));
    let layers = [
        (layer(), 10),
        (layer().plan(|_| Some("pro")), 20),
        (layer().plan_value(move |_| Some(table.clone())), 15),
    ];
    let apps = layers.map(|(layer, max)| (app([layer]), max));
    for (holder, _) in &apps {
        for (waiter, max) in &apps {
            let held = start(holder, 0, "x-cost: 10, x-hold: 300, x-used: 0");
            let waits = start(waiter, 100, &format!("x-cost: {max}, x-used: 0"));
            assert_eq!(served([held, waits]).await[1], 200);
            assert_eq!(left(&limits, "p", "k").await, 10);
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
        let limits = limits([units(10)], far.clone());
        let layer = costly(limits.layer("p")).max_waiting(10_000);
        let app = app([layer.wait(2 * SECOND)]);
        for _ in 0..10 {
            assert_eq!(ask(&app, "").await.status, OK);
        }
        let cost = |at: usize| format!("x-cost: {}", 1 + at % costs);
        let asked = (0..WAITING).map(|at| start(&app, at as u64, &cost(at)));
        for denied in done(asked).await {
            assert_eq!(denied.status, DENIED);
            assert!((1_900..2_050).contains(&denied.millis()), "{denied:?}");
        }
        let repeats = far.asked(Take::is_repeat);
        assert!(repeats <= 24, "{repeats} questions of {costs} costs");
        let firsts = far.takes().len() - repeats;
        assert_eq!(firsts, 10 + WAITING);
        check_rest(&limits).await;
    }
}

/// Thousands of waiting requests, of one key and of many: all are served in their time.
#[tokio::test(start_paused = true)]
async fn thousands_wait_and_all_are_served() {
    for (keys, of_each) in [(1, 2_500), (300, 12)] {
        for store in near_and_far(10) {
            let limits = limits([logins(5)], store);
            let layer = limits.layer("p").max_waiting(40_000);
            let app = app([layer.wait(60 * SECOND)]);
            let fields = |at| format!("x-key: {}, x-hold: 20", at % keys);
            let asked = (0..keys * of_each).map(|at| start(&app, 0, &fields(at)));
            let slowest = served(asked).await.into_iter().max().expect("some");
            // 20 ms by 20 ms, five at a time; a round trip for each refund and question.
            let bound = (of_each as u128).div_ceil(5) * 45 + 200;
            assert!(slowest <= bound, "{slowest} ms of {bound}");
            check_rest(&limits).await;
            assert_eq!(left(&limits, "p", "0").await, 5);
        }
    }
}

/// Beyond the most that may wait, requests are denied at once, also if there is hope.
#[tokio::test(start_paused = true)]
async fn hope_has_places() {
    let limits = limits([logins(1)], paused());
    let app = app([limits.layer("p").max_waiting(40).wait(2 * SECOND)]);
    let answers = done(start_all(100, &app, 0, "x-hold: 1900")).await;
    let at_once = answers
        .iter()
        .filter(|it| it.status == DENIED && it.millis() == 0);
    assert_eq!(at_once.count(), 100 - 1 - 10);
    check_rest(&limits).await;
}

/// A store that is refunded by code around the layers.
#[tokio::test(start_paused = true)]
async fn a_charge_made_by_hand() {
    let store = paused();
    let limits = limits([logins(1)], Arc::clone(&store));
    let take = Take::new(Arc::new(logins(1)), Key::from("k"));
    let charge = kit::clocked::charge(&store, &take).await;
    let waits = start(&waiting_app(&limits, 2 * SECOND), 0, "");
    sleep(millis(250)).await;
    assert_eq!(refund(charge).await, 1);
    let after = served([waits]).await[0];
    assert!(after <= 1_010, "{after} ms");
    check_rest(&limits).await;
}
