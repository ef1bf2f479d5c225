//! Requests that are denied while charges of the same count may still be given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get as on_get;
use futures_util::future::{join, join_all};
use futures_util::poll;
use http::{Response, StatusCode, header::RETRY_AFTER};
use tidegate::store::Charges;
use tidegate::{Key, Limits, MemoryStore, Quota, Rule, Rules, Store};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

use crate::{Stores, get, send, status};
use kit::per_minute;
use kit::stub::far;

const MINUTE: Duration = Duration::from_secs(60);
const HELD: Duration = Duration::from_millis(300);
const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn refunding(path: &str, max: u64) -> Rule {
    per_minute(path, max)
        .with_refund_on(["2xx"])
        .expect("valid")
}

fn limits(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Limits {
    Limits::new(rules.into_iter().collect::<Rules>()).store(store)
}

fn paused() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new().tokio_clock())
}

/// Settles after a while to this many used units.
fn settles(limits: &Limits, used: u64, wait: Duration) -> Router {
    let handler = move |charges: Charges| async move {
        sleep(HELD).await;
        charges.settle(used).await.expect("an answer");
    };
    Router::new().route("/", on_get(handler).layer(limits.layer("p").wait(wait)))
}

/// A handler that takes a while, behind these layers, the outermost last.
fn slow(layers: impl IntoIterator<Item = tidegate::RateLimitLayer>) -> Router {
    let handler = on_get(async |request: Request| {
        sleep(HELD).await;
        let bad = request.uri().query() == Some("bad");
        if bad { StatusCode::UNAUTHORIZED } else { OK }
    });
    let handler = layers
        .into_iter()
        .fold(handler, |it, layer| it.layer(layer));
    Router::new().route("/", handler)
}

async fn together(app: &Router, number: usize) -> Vec<Response<Body>> {
    join_all((0..number).map(|_| send(app, "/"))).await
}

fn denied(responses: &[Response<Body>]) -> usize {
    let denied = responses.iter().filter(|it| it.status() == DENIED);
    denied.count()
}

/// Both requests at their times, in milliseconds after the first.
async fn second_after_100ms(app: &Router) -> (StatusCode, StatusCode, u128) {
    let began = Instant::now();
    let second = async {
        sleep(Duration::from_millis(100)).await;
        let status = status(app, "/").await;
        (status, began.elapsed().as_millis())
    };
    let (first, (second, at)) = join(status(app, "/"), second).await;
    (first, second, at)
}

#[tokio::test]
async fn a_waiter_is_woken_by_a_settlement() {
    for store in &Stores::start().await.all {
        let rule = per_minute("p", 100).with_cost(100);
        let limits = limits([rule], Arc::clone(store));
        let (first, second, at) = second_after_100ms(&settles(&limits, 0, 10 * HELD)).await;
        assert_eq!((first, second), (OK, OK));
        assert!(at >= 600, "it was granted what the first gave back: {at}");
        assert!(limits.flush(MINUTE).await);
        let p = limits.snapshot().rule("p").expect("a rule").clone();
        assert_eq!((p.waiting, p.refunded_units), (0, 200));
    }
}

/// What was settled leaves too little: whoever waits for it is denied then, not after its patience.
#[tokio::test(start_paused = true)]
async fn a_waiter_gives_up_when_no_charge_is_open() {
    let limits = limits([per_minute("p", 100).with_cost(100)], paused());
    let (first, second, at) = second_after_100ms(&settles(&limits, 60, 10 * HELD)).await;
    assert_eq!((first, second, at / 10), (OK, DENIED, 30));
}

/// Nothing can come back: neither the rule says so, nor does a handler hold its charge.
#[tokio::test(start_paused = true)]
async fn a_hopeless_request_is_denied_immediately() {
    let limits = limits([per_minute("p", 1)], paused());
    let app = slow([limits.layer("p").wait(10 * HELD)]);
    let (first, second, at) = second_after_100ms(&app).await;
    assert_eq!((first, second, at), (OK, DENIED, 100));
}

#[tokio::test]
async fn seven_good_logins_under_five() {
    for store in &Stores::start().await.all {
        let name = |path: &str, i: usize| format!("{path}{i}");
        for (i, number) in [1, 2].into_iter().enumerate() {
            let (address, account) = (name("address", i), name("account", i));
            let rules = [refunding(&address, 5), refunding(&account, 5)];
            let limits = limits(rules, Arc::clone(store));
            let layers = [&account, &address].map(|path| limits.layer(path).wait(10 * HELD));
            let app = slow(layers.into_iter().take(number));
            for _ in 0..3 {
                assert_eq!(denied(&together(&app, 7).await), 0);
            }
            assert!(limits.flush(MINUTE).await);
            for path in [&address, &account] {
                let left = limits.peek(path, Key::default()).await.expect("an answer");
                assert_eq!(left.expect("a rule").remaining(), 5, "{path}");
            }
        }
    }
}

/// Without waiting, two of seven are denied: soon again, and the other rule does not count them.
#[tokio::test]
async fn denials_beside_open_charges_say_a_second() {
    for store in &Stores::start().await.all {
        let rules = [refunding("address", 100), refunding("account", 5)];
        let limits = limits(rules, Arc::clone(store));
        let app = slow([limits.layer("account"), limits.layer("address")]);
        let responses = together(&app, 7).await;
        assert_eq!(denied(&responses), 2);
        for response in responses.iter().filter(|it| it.status() == DENIED) {
            assert_eq!(response.headers()[RETRY_AFTER], "1");
            let decision = tidegate::Decision::from_extensions(response.extensions());
            let retry_after = decision.and_then(tidegate::Decision::retry_after);
            assert!(retry_after > Some(MINUTE / 2), "law 3: {retry_after:?}");
        }
        assert!(limits.flush(MINUTE).await);
        let left = limits
            .peek("address", Key::default())
            .await
            .expect("an answer");
        assert_eq!(left.expect("a rule").remaining(), 100);
    }
}

/// What is kept is not hoped for: the fields say the window again.
#[tokio::test(start_paused = true)]
async fn a_charge_that_is_kept_is_not_open() {
    let limits = limits([refunding("p", 2)], paused());
    let app = slow([limits.layer("p")]);
    let kept = join_all((0..2).map(|_| app.clone().oneshot(get("/?bad")))).await;
    let denied = send(&app, "/").await;
    assert_eq!(denied.headers()[RETRY_AFTER], "60");
    drop(kept);
    // One open charge of three that are missing is not enough.
    let costly = Rule::clone(&per_minute("q", 3))
        .with_refund_on(["2xx"])
        .expect("valid");
    let limits = self::limits([costly], paused());
    let layer = limits
        .layer("q")
        .cost(|head| if head.uri.query().is_some() { 3 } else { 1 });
    let app = slow([layer]);
    let (first, second) = join(status(&app, "/"), async {
        sleep(HELD / 3).await;
        let kept = app.clone().oneshot(get("/?bad"));
        kept.await.expect("axum does not fail")
    })
    .await;
    assert_eq!((first, second.status()), (OK, DENIED));
    assert_eq!(
        second.headers()[RETRY_AFTER],
        "1",
        "1 + 2 left suffice for 3"
    );
}

/// An inner denial of other limits says nothing of these.
#[tokio::test(start_paused = true)]
async fn only_denials_of_the_same_limits_give_back() {
    let (ours, theirs) = (
        limits([refunding("outer", 5)], paused()),
        limits([per_minute("inner", 0)], paused()),
    );
    let app = slow([theirs.layer("inner"), ours.layer("outer")]);
    assert_eq!(status(&app, "/").await, DENIED);
    let left = ours.peek("outer", Key::default()).await.expect("an answer");
    assert_eq!(left.expect("a rule").remaining(), 4);
}

#[tokio::test(start_paused = true)]
async fn denied_alone_is_an_outcome() {
    let outer = per_minute("outer", 5)
        .with_refund_on(["denied"])
        .expect("valid");
    assert!(outer.refund_on().eq(["denied"]));
    let limits = limits([outer, per_minute("inner", 1)], paused());
    let app = slow([limits.layer("inner"), limits.layer("outer")]);
    let statuses: Vec<_> = together(&app, 3)
        .await
        .iter()
        .map(Response::status)
        .collect();
    assert_eq!(statuses, [OK, DENIED, DENIED]);
    let left = limits
        .peek("outer", Key::default())
        .await
        .expect("an answer");
    assert_eq!(
        left.expect("a rule").remaining(),
        4,
        "only the good one counts"
    );
}

/// Fifty requests that only a refund can help ask together every 100 ms, also for what another
/// process gives back.
#[tokio::test(start_paused = true)]
async fn waiters_share_a_question() {
    let store = far(Duration::from_millis(2));
    let [ours, theirs] = [(); 2].map(|()| limits([refunding("p", 50)], store.clone()));
    let app = slow([ours.layer("p").wait(MINUTE / 2)]);
    let mut charges = Vec::new();
    for _ in 0..50 {
        let admitted = theirs
            .check("p", Key::default())
            .await
            .expect("units are left");
        charges.extend(admitted.charge);
    }
    let asked_before = store.takes().len();
    let waiting = tokio::spawn({
        let app = app.clone();
        async move { denied(&together(&app, 50).await) }
    });
    sleep(Duration::from_secs(10)).await;
    let asked = store.takes().len() - asked_before - 50;
    assert!((80..=120).contains(&asked), "{asked} questions in 10 s");
    // Fifty units are there: all are granted soon, not one every 100 ms.
    let began = Instant::now();
    for charge in charges {
        charge.refund().await.expect("an answer");
    }
    assert_eq!(waiting.await.expect("no panic"), 0);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// A request that is woken and leaves hands on what it was woken for.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_takes_nothing_along() {
    let limits = limits([per_minute("p", 1)], paused());
    let app = slow([limits.layer("p").wait(MINUTE / 2)]);
    let admitted = limits.check("p", Key::default()).await.expect("a unit");
    let mut second = Box::pin(app.clone().oneshot(get("/")));
    assert!(poll!(&mut second).is_pending());
    let third = tokio::spawn(app.clone().oneshot(get("/")));
    sleep(HELD).await;
    let charge = admitted.charge.expect("it was charged");
    assert_eq!(charge.refund().await.expect("an answer"), 1);
    drop(second);
    let third = timeout(2 * HELD, third).await.expect("it is woken");
    let third = third.expect("no panic").expect("axum does not fail");
    assert_eq!(third.status(), OK);
    assert_eq!(limits.snapshot().rule("p").expect("a rule").waiting, 0);
}

/// Two layers that let a request wait have one bound.
#[tokio::test(start_paused = true)]
async fn layers_share_a_bound() {
    let second = Duration::from_secs(1);
    let quota = |window| Quota::new(window, 1).expect("valid");
    let outer = Rule::new("outer", [quota(3 * second)]).expect("valid");
    let inner = Rule::new("inner", [quota(5 * second)]).expect("valid");
    let limits = limits([outer, inner], paused());
    let wait = 4 * second;
    let app = slow([
        limits.layer("inner").wait(wait),
        limits.layer("outer").wait(wait),
    ]);
    assert_eq!(status(&app, "/").await, OK);
    let began = Instant::now();
    // It waits 3 s less the handler's time for the outer one, and the inner one would take 2 s more.
    assert_eq!(status(&app, "/").await, DENIED);
    assert!(began.elapsed() < 3 * second, "{:?}", began.elapsed());
}

/// A request that costs less does not wait behind one that costs more.
#[tokio::test(start_paused = true)]
async fn what_suffices_for_less_is_granted() {
    let limits = limits([per_minute("p", 10).with_settling(true)], paused());
    let cost = |head: &http::request::Parts| head.uri.query().map_or(1, |it| it.len() as u64);
    let granted = Arc::new(AtomicUsize::new(0));
    let handler = on_get({
        let granted = Arc::clone(&granted);
        move || {
            granted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>()
        }
    });
    let layer = limits.layer("p").cost(cost).wait(MINUTE / 2);
    let app = Router::new().route("/", handler.layer(layer));
    let charge = limits
        .check("p", Key::default())
        .cost(10)
        .await
        .expect("units are left");
    let charge = charge.charge.expect("it was charged");
    let mut requests = tokio::task::JoinSet::new();
    for path in ["/?aaaaaaa", "/", "/?aa"] {
        requests.spawn(app.clone().oneshot(get(path)));
        sleep(HELD).await;
    }
    charge.settle(6).await.expect("an answer");
    sleep(HELD).await;
    assert_eq!(granted.load(Ordering::Relaxed), 2, "1 and 2 of 4, not 7");
}
