//! Requests under rules of several subjects that wait, or are told when to come again, while charges
//! of one of their counts may still be given back.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use futures_util::future::{join, join_all};
use http::{Response, StatusCode, header::RETRY_AFTER};
use tidegate::key::Everyone;
use tidegate::rule::Subject;
use tidegate::store::Charges;
use tidegate::{Header, Key, Limits, MemoryStore, Quota, RateLimitLayer, Rule, Rules, Store};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::Stores;
use kit::stub::far;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOLD: Duration = Duration::from_millis(300);
const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// So many units for each user, and for everyone.
fn rule(of_user: Quota, of_everyone: u32) -> Rule {
    let user = Subject::new("user", Header::new("x-user")).limit(of_user);
    let everyone = Subject::new("everyone", Everyone).limit(Quota::per_minute(of_everyone));
    Rule::joint("p", [user, everyone]).expect("a valid rule")
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule].into_iter().collect::<Rules>()).store(store)
}

fn paused() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new().tokio_clock())
}

/// `/` keeps its charge, `/refunds` and `/settles` give it back after a while, and `/holds` keeps it
/// then.
fn app(layer: RateLimitLayer) -> Router {
    let refunds = async |charges: Charges| {
        sleep(HOLD).await;
        charges.refund().await.expect("an answer").to_string()
    };
    let settles = async |charges: Charges| {
        sleep(HOLD).await;
        charges
            .settle(0)
            .await
            .expect("an answer")
            .given_back
            .to_string()
    };
    let holds = async |charges: Charges| {
        sleep(HOLD).await;
        drop(charges);
    };
    Router::new()
        .route("/", get(async || "1"))
        .route("/refunds", get(refunds))
        .route("/settles", get(settles))
        .route("/holds", get(holds))
        .layer(layer)
}

async fn send(app: &Router, path: &str, user: &str) -> Response<Body> {
    let request = Request::get(path).header("x-user", user);
    let request = request.body(Body::empty()).expect("valid");
    app.clone().oneshot(request).await.expect("never fails")
}

async fn status(app: &Router, path: &str, user: &str) -> StatusCode {
    send(app, path, user).await.status()
}

/// The status of a request that comes so much later, and when it was answered.
async fn later(app: &Router, after: Duration, user: &str) -> (StatusCode, Duration) {
    let began = Instant::now();
    sleep(after).await;
    let status = status(app, "/", user).await;
    (status, began.elapsed())
}

/// The count of everyone.
fn everyone() -> [(&'static str, Key); 1] {
    [("everyone", Key::default())]
}

fn waiting(limits: &Limits) -> u64 {
    limits.snapshot().rule("p").expect("a rule").waiting
}

#[tokio::test]
async fn what_one_user_gives_back_another_one_gets() {
    for store in &Stores::start().await.all {
        for path in ["/refunds", "/settles"] {
            let limits = limits(rule(Quota::per_minute(9), 1), Arc::clone(store));
            let app = app(limits.layer("p").wait(10 * SECOND));
            let (first, (second, at)) =
                join(status(&app, path, "alice"), later(&app, HOLD / 3, "bob")).await;
            assert_eq!((first, second), (OK, OK), "{path}");
            assert!((HOLD..5 * SECOND).contains(&at), "{path}: {at:?}");
            assert_eq!(waiting(&limits), 0);
            limits.reset("p", everyone()).await.expect("an answer");
        }
    }
}

/// Also of a count that only this tuple has.
#[tokio::test(start_paused = true)]
async fn a_user_waits_for_its_own_units() {
    let limits = limits(rule(Quota::per_minute(1), 9), paused());
    let app = app(limits.layer("p").wait(10 * SECOND));
    let (first, (second, at)) = join(
        status(&app, "/refunds", "alice"),
        later(&app, HOLD / 3, "alice"),
    )
    .await;
    assert_eq!((first, second, at), (OK, OK, HOLD));
}

#[tokio::test(start_paused = true)]
async fn a_reset_wakes_whoever_waits_for_the_count() {
    let limits = limits(rule(Quota::per_minute(9), 1).with_settling(true), paused());
    let app = app(limits.layer("p").wait(10 * SECOND));
    assert_eq!(status(&app, "/", "alice").await, OK);
    let reset = async {
        sleep(SECOND + 40 * MILLISECOND).await;
        let reset = limits.reset("p", everyone()).await;
        assert!(reset.expect("an answer"));
    };
    let (second, ()) = join(later(&app, Duration::ZERO, "bob"), reset).await;
    assert_eq!(second, (OK, SECOND + 40 * MILLISECOND));
}

/// Charges of others that are open help nobody whose own units are used up.
#[tokio::test(start_paused = true)]
async fn only_the_counts_that_deny_give_hope() {
    let limits = limits(rule(Quota::per_minute(1), 3), paused());
    let app = app(limits.layer("p").wait(10 * SECOND));
    assert_eq!(status(&app, "/", "alice").await, OK);
    let asks = async {
        sleep(HOLD / 3).await;
        let began = Instant::now();
        let denied = send(&app, "/", "alice").await;
        assert_eq!(denied.status(), DENIED);
        assert_eq!(began.elapsed(), Duration::ZERO, "nothing can reach it");
        denied.headers()[RETRY_AFTER].clone()
    };
    let (bob, told) = join(status(&app, "/refunds", "bob"), asks).await;
    assert_eq!((bob, told.as_bytes()), (OK, &b"60"[..]));
}

/// Without waiting: the charges of the counts that deny shorten what a client is told.
#[tokio::test(start_paused = true)]
async fn open_charges_of_what_denies_say_a_second() {
    let limits = limits(rule(Quota::per_minute(1), 2), paused());
    let app = app(limits.layer("p"));
    assert_eq!(status(&app, "/", "alice").await, OK);
    let asks = async {
        sleep(HOLD / 3).await;
        let mut told = Vec::new();
        // Everyone's units are open, alice's are not.
        for user in ["carol", "alice"] {
            let denied = send(&app, "/", user).await;
            let retry_after = denied.headers()[RETRY_AFTER].to_str().map(str::to_owned);
            told.push((denied.status(), retry_after.expect("a number")));
        }
        told
    };
    let (bob, told) = join(status(&app, "/holds", "bob"), asks).await;
    let expected = ["1", "60"].map(|told| (DENIED, told.to_owned()));
    assert_eq!((bob, told), (OK, expected.to_vec()));
}

/// The units of everyone go to whom they help: not to a user first in line whose own are used up.
#[tokio::test(start_paused = true)]
async fn units_go_past_who_cannot_use_them() {
    let limits = limits(rule(Quota::per_minute(1), 2), paused());
    let app = app(limits.layer("p").wait(30 * SECOND));
    assert_eq!(status(&app, "/", "alice").await, OK);
    let waiters = join(later(&app, HOLD / 3, "alice"), later(&app, HOLD / 2, "bob"));
    let (carol, (alice, bob)) = join(status(&app, "/refunds", "carol"), waiters).await;
    assert_eq!((carol, alice.0, bob), (OK, DENIED, (OK, HOLD)));
}

/// Who was woken for everyone's units and lacks its own hands them on, also to one who lacked its
/// own when it began to wait.
#[tokio::test(start_paused = true)]
async fn who_cannot_use_units_hands_them_on() {
    let of_user = Quota::new(SECOND, 1).expect("valid");
    let limits = limits(rule(of_user, 3), paused());
    let app = app(limits.layer("p").wait(30 * SECOND));
    assert_eq!(status(&app, "/", "bob").await, OK);
    sleep(660 * MILLISECOND).await;
    assert_eq!(status(&app, "/", "alice").await, OK);
    sleep(50 * MILLISECOND).await;
    // Bob's unit is free again after 290 ms, alice's after 950 ms, and one of everyone after 300 ms:
    // before bob looks for his own.
    let waiters = join(
        later(&app, 50 * MILLISECOND, "alice"),
        later(&app, 70 * MILLISECOND, "bob"),
    );
    let (carol, (alice, bob)) = join(status(&app, "/refunds", "carol"), waiters).await;
    assert_eq!((carol, alice.0, bob), (OK, DENIED, (OK, HOLD)));
}

/// A user may have a quarter of the places; everyone's count takes none from anybody.
#[tokio::test(start_paused = true)]
async fn the_places_of_a_user_are_bounded() {
    let limits = limits(rule(Quota::per_minute(9), 1).with_settling(true), paused());
    let app = app(limits.layer("p").wait(SECOND).max_waiting(8));
    assert_eq!(status(&app, "/", "alice").await, OK);
    let users = ["alice", "alice", "alice", "bob", "bob", "carol", "dave"];
    let answers = join_all(users.map(|user| later(&app, Duration::ZERO, user)));
    let answers = answers.await;
    assert!(answers.iter().all(|(status, _)| *status == DENIED));
    let waited = answers.iter().filter(|(_, at)| *at == SECOND).count();
    assert_eq!((waited, answers[2].1), (6, Duration::ZERO));
    assert_eq!(waiting(&limits), 0);
}

/// Fifty users that wait for everyone's units ask together every 100 ms.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_count_share_a_question() {
    let store = far(Duration::from_millis(2)).capabilities_fn(|_| {
        let mut capabilities = tidegate::store::Capabilities::default();
        capabilities.joint = true;
        capabilities
    });
    let settles = || rule(Quota::per_minute(9), 50).with_settling(true);
    let [ours, theirs] = [(); 2].map(|()| limits(settles(), store.clone()));
    let app = app(ours.layer("p").wait(MINUTE / 2));
    let other = self::app(theirs.layer("p"));
    let names: Vec<_> = (0..50).map(|i| format!("user {i}")).collect();
    let held = async {
        // They hold their charges for a while after the others have begun to wait.
        let held = names.iter().map(|user| status(&other, "/", user));
        join_all(held).await
    };
    assert!(held.await.iter().all(|status| *status == OK));
    let asked_before = store.takes().len();
    let waiting = async {
        let requests = names.iter().map(|user| status(&app, "/", user));
        join_all(requests).await
    };
    let frees = async {
        sleep(10 * SECOND).await;
        let asked = store.takes().len() - asked_before - 50;
        assert!((80..=120).contains(&asked), "{asked} questions in 10 s");
        // Another process forgets everyone's count.
        theirs.reset("p", everyone()).await.expect("an answer");
        Instant::now()
    };
    let (granted, freed) = join(waiting, frees).await;
    assert!(granted.iter().all(|status| *status == OK));
    assert!(freed.elapsed() < SECOND, "{:?}", freed.elapsed());
}

/// What is woken and leaves hands on what it was woken for, and no place stays behind.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_takes_nothing_along() {
    let limits = limits(rule(Quota::per_minute(9), 1), paused());
    let app = app(limits.layer("p").wait(MINUTE / 2));
    let first = tokio::spawn({
        let app = app.clone();
        async move { status(&app, "/refunds", "alice").await }
    });
    sleep(HOLD / 3).await;
    let mut second = Box::pin(send(&app, "/", "bob"));
    assert!(futures_util::poll!(&mut second).is_pending());
    let third = tokio::spawn({
        let app = app.clone();
        async move { later(&app, Duration::ZERO, "carol").await }
    });
    sleep(HOLD / 3).await;
    assert_eq!(waiting(&limits), 2);
    // It is never polled again, so it is woken in vain.
    assert_eq!(first.await.expect("no panic"), OK);
    drop(second);
    let (status, at) = third.await.expect("no panic");
    assert_eq!(status, OK);
    assert!(at < SECOND, "{at:?}");
    assert_eq!(waiting(&limits), 0);
}
