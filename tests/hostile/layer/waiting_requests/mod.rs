//! Requests that wait for units which others give back: callers that leave, handlers that fail,
//! stores that hang, rules that change.

mod around;
mod edges;
mod fields;
mod hopes;
mod outages;
mod runtimes;
mod servers;
mod wakes;

use axum::extract::Request;
use kit::http::{Answer, costly, handler};
use kit::stub::far;

use crate::*;

const OK: u16 = 200;
const DENIED: u16 = 429;

fn paused() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().tokio_clock())
}

/// At once, and a round trip away.
fn near_and_far(round_trip: u64) -> [Arc<dyn Store>; 2] {
    [paused(), Arc::new(far(millis(round_trip)))]
}

/// So many units a minute, of which code may give back: requests wait for that.
fn units(max: u64) -> Rule {
    per_minute("p", max).with_settling(true)
}

/// What good answers were charged comes back.
fn refunding(path: &str, max: u64) -> Rule {
    let rule = per_minute(path, max).with_refund_on(["2xx"]);
    rule.expect("valid")
}

fn logins(max: u64) -> Rule {
    refunding("p", max)
}

/// The kit's handler behind these layers, the innermost one first.
fn app(layers: impl IntoIterator<Item = RateLimitLayer>) -> Router {
    let app = Router::new().route("/", any(handler));
    layers.into_iter().fold(app, |app, layer| app.layer(layer))
}

/// The same behind the layer of the rule `p`, which lets wait for so long.
fn waiting_app(limits: &Limits, up_to: Duration) -> Router {
    app([limits.layer("p").wait(up_to)])
}

/// Limits of this rule `p`, and an app behind its layer, which lets wait for so long.
fn world(rule: Rule, store: impl Store, up_to: Duration) -> (Limits, Router) {
    let limits = kit::limits([rule], store);
    let app = waiting_app(&limits, up_to);
    (limits, app)
}

/// A request with these fields, as in `x-hold: 300, x-used: 0`.
async fn ask(app: &Router, fields: &str) -> Answer {
    kit::http::ask(app, "/", fields).await
}

/// The same in a task of its own, so many milliseconds later.
fn start(app: &Router, at: u64, fields: &str) -> JoinHandle<Answer> {
    kit::http::start(app, at, "/", fields)
}

/// So many of them, all at once.
fn start_all(number: usize, app: &Router, at: u64, fields: &str) -> Vec<JoinHandle<Answer>> {
    (0..number).map(|_| start(app, at, fields)).collect()
}

async fn answer(task: JoinHandle<Answer>) -> Answer {
    task.await.expect("no panic")
}

/// All of them are served: after how many milliseconds each.
async fn served(tasks: impl IntoIterator<Item = JoinHandle<Answer>>) -> Vec<u128> {
    let answers = done(tasks).await;
    let after = answers.iter().map(Answer::millis).collect();
    let is_served = answers.iter().all(|answer| answer.status == OK);
    assert!(is_served, "{after:?}: {answers:?}");
    after
}

/// The charge of a check of the key `k`, of which there is a unit.
async fn charge(limits: &Limits) -> Charge {
    let admitted = limits.check("p", "k").await.expect("a unit");
    admitted.charge.expect("charged")
}

/// Gives all of a charge back: so many units.
async fn refund(charge: Charge) -> u64 {
    charge.refund().await.expect("an answer")
}

fn waiting(limits: &Limits) -> u64 {
    let snapshot = limits.snapshot();
    snapshot.rules.iter().map(|rule| rule.waiting).sum()
}

/// Nobody waits any more, and nothing that is to be given back is lost.
async fn check_rest(limits: &Limits) {
    assert!(limits.flush(SECOND).await, "refunds are in progress");
    for rule in &limits.snapshot().rules {
        assert_eq!((rule.waiting, rule.refunds_lost), (0, 0), "{}", rule.path);
    }
}

/// The field `retry-after` of a request that is denied at once.
async fn told(limits: &Limits) -> String {
    let denied = ask(&app([limits.layer("p")]), "").await;
    assert_eq!(denied.status, DENIED);
    denied.field("retry-after").expect("it has one").to_owned()
}

#[test]
fn scenes() {
    kit::timeline::play("tests/hostile/layer/waiting_requests/scenes.txt");
}
