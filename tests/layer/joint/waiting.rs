//! Requests under rules of several subjects that wait, or are told when to come again, while charges
//! of one of their counts may still be given back.

use crate::*;

const HOLD: Duration = millis(300);

/// So many units for each user, and for everyone. Handlers may give them back.
fn rule(of_user: Quota, of_everyone: u32) -> Rule {
    let user = crate::joint::user(of_user);
    let everyone = Subject::new("everyone", Everyone).limit(Quota::per_minute(of_everyone));
    let rule = Rule::joint("p", [user, everyone]).expect("a valid rule");
    rule.with_settling(true)
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule]).store(store)
}

/// `/` keeps its charge, `/refunds` and `/settles` give it back after a while, and `/holds` keeps it
/// then.
fn app(layer: RateLimitLayer) -> Router {
    let handler = async |charges: Charges, head: Parts| {
        let path = head.uri.path();
        if path != "/" {
            sleep(HOLD).await;
        }
        match path {
            "/refunds" => _ = charges.refund().await.expect("an answer"),
            "/settles" => _ = charges.settle(0).await.expect("an answer"),
            _ => drop(charges),
        }
    };
    Router::new().fallback(handler).layer(layer)
}

async fn send(app: &Router, path: &str, user: &str) -> Answer {
    ask(app, path, &format!("x-user: {user}")).await
}

/// A request to `/` that comes so many milliseconds later.
fn later(app: &Router, after: u64, user: &str) -> JoinHandle<Answer> {
    start(app, after, "/", &format!("x-user: {user}"))
}

/// The status of a request, and how many milliseconds it took.
async fn came_of(request: JoinHandle<Answer>) -> (u16, u128) {
    let answer = request.await.expect("no panic");
    (answer.status, answer.millis())
}

fn everyone() -> [(&'static str, Key); 1] {
    [("everyone", Key::default())]
}

fn waiting(limits: &Limits) -> u64 {
    counted(limits, "p").waiting
}

#[tokio::test]
async fn what_one_user_gives_back_another_one_gets() {
    for store in &Stores::start().await.all {
        for path in ["/refunds", "/settles"] {
            let limits = limits(rule(Quota::per_minute(9), 1), Arc::clone(store));
            let app = app(limits.layer("p").wait(2 * PATIENT));
            let began = Instant::now();
            let bob = later(&app, 100, "bob");
            assert_eq!(send(&app, path, "alice").await.status, 200, "{path}");
            assert_eq!(came_of(bob).await.0, 200, "{path}");
            let took = began.elapsed();
            assert!((HOLD..PATIENT).contains(&took), "{path}: {took:?}");
            assert_eq!(waiting(&limits), 0);
            limits.reset("p", everyone()).await.expect("an answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_wakes_whoever_waits_for_the_count() {
    let limits = limits(rule(Quota::per_minute(9), 1), paused());
    let app = app(limits.layer("p").wait(10 * SECOND));
    assert_eq!(send(&app, "/", "alice").await.status, 200);
    let second = later(&app, 0, "bob");
    sleep(millis(1_040)).await;
    assert!(limits.reset("p", everyone()).await.expect("an answer"));
    assert_eq!(came_of(second).await, (200, 1_040));
}

/// A rule whose handlers give nothing back: what comes too late is denied at once.
#[tokio::test(start_paused = true)]
async fn nobody_waits_in_vain() {
    let limits = limits(rule(Quota::per_minute(1), 3).with_settling(false), paused());
    let app = app(limits.layer("p").wait(10 * SECOND));
    assert_eq!(send(&app, "/", "alice").await.status, 200);
    let denied = later(&app, 100, "alice");
    assert_eq!(send(&app, "/refunds", "bob").await.status, 200);
    let denied = denied.await.expect("no panic");
    assert_eq!((denied.status, denied.after), (429, Duration::ZERO));
    assert_eq!(denied.field("retry-after"), Some("60"));
}

/// Without waiting: the charges of the counts that deny shorten what a client is told.
#[tokio::test(start_paused = true)]
async fn open_charges_of_what_denies_say_a_second() {
    let limits = limits(rule(Quota::per_minute(1), 2), paused());
    let app = app(limits.layer("p"));
    assert_eq!(send(&app, "/", "alice").await.status, 200);
    // Everyone's units are open, alice's are not.
    let denied = [("carol", "1"), ("alice", "60")];
    let denied = denied.map(|(user, told)| (later(&app, 100, user), told));
    assert_eq!(send(&app, "/holds", "bob").await.status, 200);
    for (denied, told) in denied {
        let denied = denied.await.expect("no panic");
        let found = (denied.status, denied.field("retry-after"));
        assert_eq!(found, (429, Some(told)));
    }
}

/// The units of everyone go to whom they help: not to a user first in line whose own are used up.
#[tokio::test(start_paused = true)]
async fn units_go_past_who_cannot_use_them() {
    let limits = limits(rule(Quota::per_minute(1), 2), paused());
    let app = app(limits.layer("p").wait(30 * SECOND));
    assert_eq!(send(&app, "/", "alice").await.status, 200);
    let (alice, bob) = (later(&app, 100, "alice"), later(&app, 150, "bob"));
    assert_eq!(send(&app, "/refunds", "carol").await.status, 200);
    assert_eq!(came_of(alice).await.0, 429);
    assert_eq!(came_of(bob).await, (200, 150));
}

/// Who was woken for everyone's units and lacks its own hands them on, also to one who lacked its
/// own when it began to wait.
#[tokio::test(start_paused = true)]
async fn who_cannot_use_units_hands_them_on() {
    let limits = limits(rule(quota(1, SECOND), 3), paused());
    let app = app(limits.layer("p").wait(30 * SECOND));
    assert_eq!(send(&app, "/", "bob").await.status, 200);
    sleep(millis(660)).await;
    assert_eq!(send(&app, "/", "alice").await.status, 200);
    sleep(millis(50)).await;
    // Bob's unit is free again after 290 ms, alice's after 950 ms, and one of everyone after 300 ms:
    // before bob looks for his own.
    let (alice, bob) = (later(&app, 50, "alice"), later(&app, 70, "bob"));
    assert_eq!(send(&app, "/refunds", "carol").await.status, 200);
    assert_eq!(came_of(alice).await.0, 429);
    assert_eq!(came_of(bob).await, (200, 230));
}

/// A user may have a quarter of the places; everyone's count takes none from anybody.
#[tokio::test(start_paused = true)]
async fn the_places_of_a_user_are_bounded() {
    let limits = limits(rule(Quota::per_minute(9), 1), paused());
    let app = app(limits.layer("p").wait(SECOND).max_waiting(8));
    assert_eq!(send(&app, "/", "alice").await.status, 200);
    let users = ["alice", "alice", "alice", "bob", "bob", "carol", "dave"];
    let answers = join_all(users.map(|user| send(&app, "/", user))).await;
    assert!(answers.iter().all(|it| it.status == 429));
    let waited = answers.iter().filter(|it| it.after == SECOND).count();
    assert_eq!((waited, answers[2].after), (6, Duration::ZERO));
    assert_eq!(waiting(&limits), 0);
}
