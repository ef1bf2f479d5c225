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

use std::net::SocketAddr;

use kit::per_hour as hourly;
use tidegate::key::{Bearer, Cookie};

use crate::*;

/// Where the client of all requests is, unless a test says otherwise.
const PEER: &str = "203.0.113.9";

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

async fn send(service: &Wrapped, request: Request<Body>) -> Response<Body> {
    let answer = service.clone().oneshot(request).await;
    answer.expect("the service does not fail")
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

async fn peek(limits: &Limits, path: &str, key: &str) -> Option<Decision> {
    limits.peek(path, key).await.expect("an answer")
}

/// Whether there was something to forget.
async fn reset(limits: &Limits, path: &str, key: impl Into<Key>) -> bool {
    limits.reset(path, key.into()).await.expect("an answer")
}

async fn refused(limits: &Limits, path: &str, key: &str) -> Refused {
    let answer = limits.check(path, key).await;
    answer.expect_err("it is used up")
}

async fn admitted(limits: &Limits, path: &str, key: &str) -> tidegate::layer::Admitted {
    limits.check(path, key).await.expect("there is room")
}
