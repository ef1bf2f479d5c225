//! Attacks on rules of several subjects behind layers and `Limits`: requests that lack keys, quotas
//! that clients must not see, plans, waiting requests, reloads, and what an operator does.

mod absent;
mod hidden;
mod page;
mod plans;
mod refunds;
mod reload;
mod waiting;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::any;
use http::{Request, StatusCode};
use tidegate::layer::SubjectKeys;
use tidegate::{Header, Key, Limits, RateLimitLayer};
use tower::ServiceExt;

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// What a client sees.
#[derive(Debug)]
struct Seen {
    status: StatusCode,
    head: http::HeaderMap,
    body: String,
}

/// A request with these fields, as in `x-user: alice, x-address: 1`.
fn request(fields: &str) -> Request<Body> {
    let mut request = Request::post("/");
    for field in fields.split(", ").filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once(": ").expect("a name and a value");
        request = request.header(name, value);
    }
    request.body(Body::empty()).expect("a valid request")
}

async fn send(app: &Router, request: Request<Body>) -> Seen {
    let response = app.clone().oneshot(request).await;
    let (head, body) = response.expect("axum does not fail").into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    Seen {
        status: head.status,
        head: head.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

async fn ask(app: &Router, fields: &str) -> StatusCode {
    send(app, request(fields)).await.status
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", any(async || "1").layer(layer))
}

fn header(name: &str, value: &str) -> Key {
    Header::new(name).key(value)
}

/// What each quota of the rule `api` has left, for these keys.
async fn left(limits: &Limits, keys: impl Into<SubjectKeys>) -> Vec<u64> {
    let decision = limits.peek("api", keys).await.expect("an answer");
    let decision = decision.expect("there is a rule");
    let states = decision.quotas().iter();
    states.map(|state| state.remaining()).collect()
}
