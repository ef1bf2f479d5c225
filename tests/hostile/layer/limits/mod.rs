//! `Limits` as the object of an application: its defaults for layers, decisions without a request,
//! keys with alternatives, and what a file exempts.

mod alike;
mod checks;
mod defaults;
mod exempt;
mod keys;
mod known_keys;
mod mistakes;
mod refusals;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::key::PeerAddr;
use tidegate::test_util::ManualClock;
use tidegate::{Limits, MemoryStore, Quota, RateLimitLayer, Rule};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use kit::HOUR;

/// Where the client of all requests is, unless a test says otherwise.
const PEER: &str = "203.0.113.9";

fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(window, max).expect("a valid quota")
}

/// A rule of one quota, by the hour.
fn hourly(path: &str, max: u64) -> Rule {
    Rule::new(path, [quota(max, HOUR)]).expect("a valid rule")
}

/// A layer around a service that has nothing to do.
type Wrapped = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

fn wrap(layer: RateLimitLayer) -> Wrapped {
    let empty = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()));
    BoxCloneSyncService::new(layer.layer(service_fn(empty)))
}

async fn send(service: &Wrapped, request: Request<Body>) -> Response<Body> {
    let answer = service.clone().oneshot(request).await;
    answer.expect("the service does not fail")
}

/// A request from [`PEER`] with these fields.
fn request(fields: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = Request::get("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let peer = SocketAddr::new(PEER.parse().expect("an address"), 4711);
    let request = request.extension(PeerAddr(peer)).body(Body::empty());
    request.expect("a valid request")
}

async fn status(service: &Wrapped, fields: &[(&'static str, &str)]) -> u16 {
    send(service, request(fields)).await.status().as_u16()
}

/// Everything of a response that a client sees.
async fn seen(response: Response<Body>) -> String {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let mut fields: Vec<_> = head.headers.iter().collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    format!("{:?} {:?} {fields:?} {body:?}", head.status, head.version)
}

/// A clock of its own for each test, and a store that reads it.
fn clocked() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    (clock.clone(), MemoryStore::new().clock(clock))
}

/// What is left for a key, as `peek` says.
async fn left(limits: &Limits, path: &str, key: impl Into<tidegate::Key>) -> u64 {
    let left = limits.peek(path, key).await.expect("an answer");
    left.expect("there is a rule").remaining()
}
