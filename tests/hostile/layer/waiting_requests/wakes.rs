//! Who is woken, and by whom.

use super::*;

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
