//! Requests that wait for units which others give back: callers that leave, handlers that fail,
//! stores that hang, rules that change.

mod aborts;
mod around;
mod edges;
mod fields;
mod hopes;
mod outages;
mod runtimes;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use http::request::Parts;
use http::{Response, StatusCode};
use tidegate::store::Charges;
use tidegate::{Decision, Key, Limits, MemoryStore, Quota, RateLimitLayer, Rule, Store};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const OK: StatusCode = StatusCode::OK;
const BAD: StatusCode = StatusCode::UNAUTHORIZED;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn paused() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().tokio_clock())
}

/// So many units a minute.
fn units_a_minute(max: u64) -> Rule {
    rule_of("p", max)
}

fn rule_of(path: &str, max: u64) -> Rule {
    Rule::new(path, [Quota::new(MINUTE, max).expect("valid")]).expect("valid")
}

fn logins(max: u64) -> Rule {
    units_a_minute(max).with_refund_on(["2xx"]).expect("valid")
}

/// By the field `x-key`, or `k`.
fn key(head: &Parts) -> Key {
    let key = head.headers.get("x-key").map(|it| it.to_str());
    Key::from(key.map_or("k", |it| it.expect("text")))
}

fn number(head: &http::HeaderMap, name: &str) -> Option<u64> {
    let value = head.get(name)?.to_str().expect("text");
    Some(value.parse().expect("a number"))
}

/// Limits of these rules in this store, by the field `x-key`.
fn limits(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Limits {
    let limits = Limits::new(tidegate::Rules::from_iter(rules)).store(store);
    limits.key_by(|head| Ok(key(head)))
}

/// Each request costs what its field `x-cost` says.
fn costly(layer: RateLimitLayer) -> RateLimitLayer {
    layer.cost(|head| number(&head.headers, "x-cost").unwrap_or(1))
}

/// Holds for `x-hold` milliseconds, settles with `x-used` units, and answers `x-status`.
async fn handler(request: Request) -> StatusCode {
    let fields = request.headers();
    let used = number(fields, "x-used");
    let charges = used.map(|_| Charges::from_extensions(request.extensions()));
    sleep(millis(number(fields, "x-hold").unwrap_or(0))).await;
    if let (Some(used), Some(charges)) = (used, charges) {
        charges.settle(used).await.expect("an answer");
    }
    let status = number(fields, "x-status").unwrap_or(200);
    StatusCode::from_u16(status.try_into().expect("three digits")).expect("a status")
}

/// The handler behind these layers, the innermost one first.
fn app(layers: impl IntoIterator<Item = RateLimitLayer>) -> Router {
    let app = Router::new().route("/", any(handler));
    layers.into_iter().fold(app, |app, layer| app.layer(layer))
}

/// A request with these fields, as in `x-hold: 300, x-used: 0`.
fn request(fields: &str) -> Request {
    let mut request = Request::post("/");
    for field in fields.split(", ").filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once(": ").expect("a name and a value");
        request = request.header(name, value);
    }
    request.body(Body::empty()).expect("valid")
}

struct Answer {
    status: StatusCode,
    /// After how many milliseconds.
    after: u128,
    response: Response<Body>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        Some(self.response.headers().get(name)?.to_str().expect("text"))
    }

    fn decision(&self) -> &Decision {
        Decision::from_extensions(self.response.extensions()).expect("a decision")
    }
}

async fn ask(app: &Router, fields: &str) -> Answer {
    let began = Instant::now();
    let response = app.clone().oneshot(request(fields)).await;
    let response = response.expect("axum does not fail");
    Answer {
        status: response.status(),
        after: began.elapsed().as_millis(),
        response,
    }
}

/// The same in a task of its own, so much later.
fn start(app: &Router, at: u64, fields: &str) -> JoinHandle<Answer> {
    let (app, fields) = (app.clone(), fields.to_owned());
    tokio::spawn(async move {
        sleep(millis(at)).await;
        ask(&app, &fields).await
    })
}

/// What is left of the rule `p` for a key.
async fn left(limits: &Limits, key: &str) -> u64 {
    left_of(limits, "p", key).await
}

async fn left_of(limits: &Limits, path: &str, key: &str) -> u64 {
    let decision = limits.peek(path, key).await.expect("an answer");
    decision.expect("there is a rule").remaining()
}

fn waiting(limits: &Limits) -> u64 {
    limits
        .snapshot()
        .rules
        .iter()
        .map(|rule| rule.waiting)
        .sum()
}

/// Nobody waits any more, and nothing that is to be given back is lost.
async fn check_rest(limits: &Limits) {
    assert!(limits.flush(SECOND).await, "refunds are in progress");
    let snapshot = limits.snapshot();
    for rule in &snapshot.rules {
        assert_eq!(rule.waiting, 0, "{}", rule.path);
        assert_eq!(rule.refunds_lost, 0, "{}", rule.path);
    }
}
