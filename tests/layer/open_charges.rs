//! Requests that are denied while charges of the same count may still be given back.

use axum::routing::get as on_get;
use futures_util::poll;
use kit::http::handler;

use crate::*;

/// How long the handler takes, and a request that keeps its charge.
const HELD: &str = "x-hold: 300";
const KEPT: &str = "x-hold: 300, x-status: 401";

/// A handler that takes a while, behind these layers, the outermost last.
fn slow(layers: impl IntoIterator<Item = RateLimitLayer>) -> Router {
    let layers = layers.into_iter();
    let handler = layers.fold(any(handler), |it, layer| it.layer(layer));
    Router::new().route("/", handler)
}

async fn together(app: &Router, number: usize, fields: &str) -> Vec<Answer> {
    join_all((0..number).map(|_| ask(app, "/", fields))).await
}

fn denied(answers: &[Answer]) -> usize {
    answers.iter().filter(|it| it.status == 429).count()
}

/// The statuses of two requests, of which the second is sent 100 ms later, and how many
/// milliseconds it took.
async fn two(app: &Router, fields: &str) -> (u16, u16, u128) {
    let second = start(app, 100, "/", fields);
    let first = ask(app, "/", fields).await;
    let second = second.await.expect("no panic");
    (first.status, second.status, second.millis())
}

#[tokio::test]
async fn a_waiter_is_woken_by_a_settlement() {
    for store in &Stores::start().await.all {
        let rule = per_minute("p", 100).with_cost(100).with_settling(true);
        let limits = limits([rule], Arc::clone(store));
        let app = slow([limits.layer("p").wait(PATIENT)]);
        let began = Instant::now();
        let (first, second, _) = two(&app, "x-hold: 300, x-used: 0").await;
        assert_eq!((first, second), (200, 200));
        // It was granted what the first gave back.
        assert!(began.elapsed() >= millis(600), "{:?}", began.elapsed());
        assert!(limits.flush(PATIENT).await);
        let p = counted(&limits, "p");
        assert_eq!((p.waiting, p.refunded_units), (0, 200));
    }
}

#[tokio::test]
async fn seven_good_logins_under_five() {
    for store in &Stores::start().await.all {
        for number in [1, 2] {
            let [address, account] = ["address", "account"].map(|it| format!("{it}{number}"));
            let rules = [&address, &account].map(|path| refunding(path, 5, &["2xx"]));
            let limits = limits(rules, Arc::clone(store));
            let layers = [&account, &address].map(|path| limits.layer(path).wait(PATIENT));
            let app = slow(layers.into_iter().take(number));
            for _ in 0..3 {
                assert_eq!(denied(&together(&app, 7, "x-hold: 60").await), 0);
            }
            assert!(limits.flush(PATIENT).await);
            for path in [&address, &account] {
                assert_eq!(left(&limits, path, "k").await, 5, "{path}");
            }
        }
    }
}

/// Without waiting, two of seven are denied: soon again, and the other rule does not count them.
#[tokio::test]
async fn denials_beside_open_charges_say_a_second() {
    for store in &Stores::start().await.all {
        let rules = [("address", 100), ("account", 5)];
        let rules = rules.map(|(path, max)| refunding(path, max, &["2xx"]));
        let limits = limits(rules, Arc::clone(store));
        let app = slow([limits.layer("account"), limits.layer("address")]);
        let answers = together(&app, 7, HELD).await;
        assert_eq!(denied(&answers), 2);
        for denial in answers.iter().filter(|it| it.status == 429) {
            assert_eq!(denial.field("retry-after"), Some("1"));
            let retry_after = denial.decision().retry_after();
            assert!(retry_after > Some(WINDOW / 2), "law 3: {retry_after:?}");
        }
        assert!(limits.flush(PATIENT).await);
        assert_eq!(left(&limits, "address", "k").await, 100);
    }
}

/// What is kept is not hoped for: the fields say the window again.
#[tokio::test(start_paused = true)]
async fn a_charge_that_is_kept_is_not_open() {
    let rules = [("p", 2), ("q", 3)].map(|(path, max)| refunding(path, max, &["2xx"]));
    let limits = limits(rules, paused());
    let app = slow([limits.layer("p")]);
    let kept = together(&app, 2, KEPT).await;
    let denied = ask(&app, "/", HELD).await;
    assert_eq!(denied.field("retry-after"), Some("60"));
    drop(kept);
    // One open charge of three that are missing is not enough.
    let app = slow([kit::http::costly(limits.layer("q"))]);
    let second = start(&app, 100, "/", &format!("{KEPT}, x-cost: 3"));
    assert_eq!(ask(&app, "/", HELD).await.status, 200);
    let second = second.await.expect("no panic");
    assert_eq!(second.status, 429);
    // 1 + 2 left suffice for 3.
    assert_eq!(second.field("retry-after"), Some("1"));
}

/// An inner denial of other limits says nothing of these.
#[tokio::test(start_paused = true)]
async fn only_denials_of_the_same_limits_give_back() {
    let ours = limits([refunding("outer", 5, &["2xx"])], paused());
    let theirs = limits([per_minute("inner", 0)], paused());
    let app = slow([theirs.layer("inner"), ours.layer("outer")]);
    assert_eq!(ask(&app, "/", HELD).await.status, 429);
    assert_eq!(left(&ours, "outer", "k").await, 4);
}

#[tokio::test(start_paused = true)]
async fn denied_alone_is_an_outcome() {
    let outer = refunding("outer", 5, &["denied"]);
    assert!(outer.refund_on().eq(["denied"]));
    let limits = limits([outer, per_minute("inner", 1)], paused());
    let app = slow([limits.layer("inner"), limits.layer("outer")]);
    let statuses = together(&app, 3, HELD).await;
    assert!(statuses.iter().map(|it| it.status).eq([200, 429, 429]));
    let found = left(&limits, "outer", "k").await;
    assert_eq!(found, 4, "only the good one counts");
}

/// Fifty requests that only a refund can help ask together once a second, also for what another
/// process gives back.
#[tokio::test(start_paused = true)]
async fn waiters_share_a_question() {
    let store = far(millis(2));
    let rule = || refunding("p", 50, &["2xx"]);
    let [ours, theirs] = [(); 2].map(|()| limits([rule()], store.clone()));
    let app = slow([ours.layer("p").wait(WINDOW / 2)]);
    let mut charges = Vec::new();
    for _ in 0..50 {
        let admitted = theirs.check("p", "k").await.expect("units are left");
        charges.extend(admitted.charge);
    }
    let asked_before = store.takes().len();
    let waiting = tokio::spawn(async move { denied(&together(&app, 50, HELD).await) });
    sleep(10 * SECOND).await;
    let asked = store.takes().len() - asked_before - 50;
    assert!((9..=12).contains(&asked), "{asked} questions in 10 s");
    // Fifty units are there: all are granted soon, not one a second.
    let began = Instant::now();
    for charge in charges {
        charge.refund().await.expect("an answer");
    }
    assert_eq!(waiting.await.expect("no panic"), 0);
    assert!(began.elapsed() <= 11 * SECOND / 10, "{:?}", began.elapsed());
}

/// A request that is woken and leaves hands on what it was woken for.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_takes_nothing_along() {
    let limits = limits([per_minute("p", 1).with_settling(true)], paused());
    let app = slow([limits.layer("p").wait(WINDOW / 2)]);
    let admitted = limits.check("p", "k").await.expect("a unit");
    let mut second = Box::pin(app.clone().oneshot(get("/")));
    assert!(poll!(&mut second).is_pending());
    let third = start(&app, 0, "/", HELD);
    sleep(millis(300)).await;
    let charge = admitted.charge.expect("it was charged");
    assert_eq!(charge.refund().await.expect("an answer"), 1);
    drop(second);
    let third = timeout(millis(600), third).await.expect("it is woken");
    assert_eq!(third.expect("no panic").status, 200);
    assert_eq!(counted(&limits, "p").waiting, 0);
}

/// Two layers that let a request wait have one bound.
#[tokio::test(start_paused = true)]
async fn layers_share_a_bound() {
    let rules = [
        owned_rule("outer", 1, 3 * SECOND),
        owned_rule("inner", 1, 5 * SECOND),
    ];
    let limits = limits(rules, paused());
    let app = slow(["inner", "outer"].map(|path| limits.layer(path).wait(4 * SECOND)));
    assert_eq!(ask(&app, "/", HELD).await.status, 200);
    // It waits 3 s less the handler's time for the outer one, and the inner one would take 2 s more.
    let denied = ask(&app, "/", HELD).await;
    assert_eq!(denied.status, 429);
    assert!(denied.after < 3 * SECOND, "{:?}", denied.after);
}

/// A request that costs less does not wait behind one that costs more.
#[tokio::test(start_paused = true)]
async fn what_suffices_for_less_is_granted() {
    let limits = limits([per_minute("p", 10).with_settling(true)], paused());
    let granted = Arc::new(AtomicUsize::new(0));
    let number = Arc::clone(&granted);
    let handler = on_get(move || {
        number.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>()
    });
    let layer = kit::http::costly(limits.layer("p").wait(WINDOW / 2));
    let app = Router::new().route("/", handler.layer(layer));
    let admitted = limits.check("p", "k").cost(10).await.expect("units");
    let charge = admitted.charge.expect("it was charged");
    for cost in [7, 1, 2] {
        start(&app, 0, "/", &format!("x-cost: {cost}"));
        sleep(millis(300)).await;
    }
    charge.settle(6).await.expect("an answer");
    sleep(millis(300)).await;
    assert_eq!(granted.load(Ordering::Relaxed), 2, "1 and 2 of 4, not 7");
}
