//! Law 15: whoever comes first gives a charge back, once, and only the units that are its own.

use kit::clocked::{assert_units, charge, take_of};

use super::*;

/// `refund`, `settle` and the outcome, of 64 requests at once, on a key that others are charged,
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_and_outcomes_race() {
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let rule = of("a", 1_000, &["2xx"]).with_algorithm(algorithm);
        let (limits, service) = world(rule.with_cost(5), Arc::clone(&clocked.store));
        let tasks = (0..64).map(|at| {
            let service = service.clone();
            async move {
                // Of 8: 2 stay charged, 2 handlers refund (and one fails), 2 settle at 3 (one
                // fails), 2 are given back.
                let how = ["none", "refund", "settle", "none"][at % 4];
                let status = if at % 8 < 4 { "200" } else { "500" };
                let fields = format!("x-how: {how}, x-status: {status}, x-used: 3");
                let answer = service.oneshot(request(&fields)).await.expect("an answer");
                // Somebody asks again, by the response.
                if at % 4 == 1 {
                    let charges = Charges::from_extensions(answer.extensions());
                    let units = charges.refund().await.expect("an answer");
                    assert_eq!(units, 0, "they were claimed before");
                }
            }
        });
        in_tasks(tasks).await;
        flushed(&limits).await;
        // Of 8: 4 x 5 units back, 2 x 2, and 2 stay.
        let left = left(&limits, "a").await;
        let (refunds, units, lost) = counted(&limits, "a");
        if algorithm == Algorithm::Gcra {
            // In another order than the takes it may give back less.
            assert!(left <= 1_000 - 8 * (2 * 5 + 2 * 3), "{case}: {left}");
            assert!(units <= 8 * 24 && lost == 0, "{case}: {units}");
        } else {
            assert_eq!(left, 1_000 - 8 * (2 * 5 + 2 * 3), "{case}");
            assert_eq!((refunds, units, lost), (48, 8 * 24, 0), "{case}");
        }
        clocked.advance(3 * HOUR);
    }
}

/// 64 tasks and the outcome of the response race for one charge: its 7 units come back once, and
/// the neighbour's stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_race_for_one_charge() {
    let (_server, _proxy, store) = kit::far(millis(4)).await;
    let store: Arc<dyn Store> = Arc::new(store);
    for algorithm in ALGORITHMS {
        let rule = of("a", 100, &["2xx"])
            .with_algorithm(algorithm)
            .with_cost(7);
        let (limits, service) = world(rule.clone(), Arc::clone(&store));
        send(&service, 500).await;
        for round in 0..6 {
            let before = left(&limits, "a").await;
            let neighbour = charge(&store, &take_of(&Arc::new(rule.clone()), &key("x"), 3)).await;
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let sender = Arc::new(Mutex::new(Some(sender)));
            let spy = service_fn(move |request: Request<Body>| {
                let charges = Charges::from_extensions(request.extensions());
                let sender = sender.lock().expect("no panic").take();
                sender.expect("one request").send(charges).ok();
                async { Ok::<_, io::Error>(Response::new(Body::empty())) }
            });
            let spied = limits.layer("a").layer(spy);
            let asked = tokio::spawn(spied.oneshot(request("")));
            let charges = Arc::new(receiver.await.expect("a request"));
            let tasks = (0..64).map(|at| {
                let charges = Arc::clone(&charges);
                async move {
                    let charge = charges.first().expect("one charge");
                    match at % 3 {
                        0 => charge.refund().await.expect("an answer"),
                        1 => charge.settle(at % 9).await.expect("an answer").given_back,
                        _ => charges.of("a").refund().await.expect("an answer"),
                    }
                }
            });
            let units = in_tasks(tasks).await;
            asked.await.expect("no panic").expect("an answer");
            flushed(&limits).await;
            let given = units.iter().sum::<u64>();
            assert!(units.iter().filter(|it| **it > 0).count() <= 1, "{units:?}");
            assert!(given <= 7);
            let back = left(&limits, "a").await + 7 + 3 - before;
            let drained = u64::from(algorithm == Algorithm::Gcra);
            let case = format!("{algorithm:?} {round}: {back} came back, {units:?}");
            // Given by nobody: by the outcome, or a handler that used all.
            let most = if given == 0 { 7 } else { given };
            assert!((given..=most + drained).contains(&back), "{case}");
            let others = neighbour.refund().await.expect("an answer");
            assert_units(algorithm, others, 3);
        }
    }
}

/// A settlement and what came before and after it, in the handler and by the outcome.
#[tokio::test]
async fn settlements() {
    // Reserved, used, given back.
    const CASES: [(u64, u64, u64); 6] = [
        (10, 0, 10),
        (10, 3, 7),
        (10, 10, 0),
        (10, 11, 0),
        (10, u64::MAX, 0),
        (1, 0, 1),
    ];
    for (_, clocked, algorithm) in Stores::start().await.cases() {
        let rule = of("a", 10, &[]).with_algorithm(algorithm);
        let limits = limits(rule, Arc::clone(&clocked.store));
        for (reserved, used, back) in CASES {
            let case = format!("{} {algorithm:?} {used}", clocked.name);
            let admitted = limits.check("a", key("x")).cost(reserved).await;
            let charge = admitted.expect("it is allowed").charge.expect("charged");
            for (used, expected) in [(used, back), (0, 0), (used, 0), (5, 0)] {
                let settled = charge.settle(used).await.expect("an answer");
                assert_eq!(settled.given_back, expected, "{case}");
                assert_eq!(left(&limits, "a").await, 10 - reserved + back, "{case}");
            }
            let again = charge.clone().refund().await.expect("an answer");
            assert_eq!(again, 0, "{case}");
            assert_eq!(left(&limits, "a").await, 10 - reserved + back, "{case}");
            reset(&limits, "a").await;
            clocked.advance(2 * HOUR);
        }
    }
}

/// A cost of 0 gives nobody's back.
#[tokio::test]
async fn a_request_that_costs_nothing_gives_nothing_back() {
    let limits = Limits::new([of("a", 100, &["2xx", "5xx"]).with_cost(10)]);
    ask(&wrap(&limits.layer("a")), "x-how: settle, x-used: 10").await;
    let free = wrap(&limits.layer("a").cost(|_| 0));
    for how in ["none", "refund", "settle"] {
        assert_eq!(ask(&free, &format!("x-how: {how}")).await, 200);
        assert_eq!(left(&limits, "a").await, 90);
    }
}

/// Charges that no longer count, since their window is over or by a reset, are refunded by their
/// outcome: nothing comes back, and nothing of who came later.
#[tokio::test]
async fn an_outcome_after_the_window_or_a_reset() {
    for (_, clocked, algorithm) in Stores::start().await.cases() {
        for is_reset in [false, true] {
            let case = format!("{} {algorithm:?}, reset {is_reset}", clocked.name);
            let rule = of("late", 5, &["2xx"]).with_algorithm(algorithm);
            let (limits, service) = world(rule, Arc::clone(&clocked.store));
            let slow = start(&service, "x-sleep: 150");
            until_left(&limits, "late", 4).await;
            if is_reset {
                assert!(reset(&limits, "late").await, "{case}");
            } else {
                clocked.advance(2 * HOUR);
            }
            pass(&service, 500, 5).await;
            assert_eq!(slow.await.expect("no panic"), 200);
            flushed(&limits).await;
            assert_eq!(left(&limits, "late").await, 0, "{case}");
            assert!(is_reset || counted(&limits, "late").1 == 0, "{case}");
            clocked.advance(2 * HOUR);
        }
    }
}
