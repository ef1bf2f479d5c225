//! Requests to an app, and what it answers.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use tidegate::store::Charges;
use tidegate::{Decision, Key, RateLimitLayer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::millis;

pub fn get(path: &str) -> Request<Body> {
    request(path, "")
}

/// A request with header fields, as in `x-key: alice, x-cost: 3`. One of gRPC is a POST.
///
/// # Panics
///
/// If a field has no `: `, or the path is none.
pub fn request(path: &str, fields: &str) -> Request<Body> {
    let is_grpc = fields.contains("application/grpc");
    let mut request = Request::get(path);
    if is_grpc {
        request = request.method("POST");
    }
    for field in fields.split(", ").filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once(": ").expect("a name and a value");
        request = request.header(name, value);
    }
    request.body(Body::empty()).expect("a valid request")
}

pub async fn send(app: &Router, path: &str) -> Response<Body> {
    call(app, get(path)).await
}

/// The answer of the app to any request.
pub async fn call(app: &Router, request: Request<Body>) -> Response<Body> {
    let answer = app.clone().oneshot(request).await;
    answer.expect("axum does not fail")
}

pub async fn status(app: &Router, path: &str) -> StatusCode {
    send(app, path).await.status()
}

pub async fn text(response: Response<Body>) -> String {
    let body = to_bytes(response.into_body(), usize::MAX).await;
    String::from_utf8(body.expect("a whole body").to_vec()).expect("text")
}

/// A server on a socket, which speaks HTTP/1.1 and, where its package says so, HTTP/2.
pub async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    server
}

/// What came of a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// By tokio's clock.
    pub after: Duration,
    pub fields: HeaderMap,
    pub body: String,
    /// As the layer left it in the extensions.
    pub decision: Option<Decision>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        Some(self.fields.get(name)?.to_str().expect("text"))
    }

    pub fn millis(&self) -> u128 {
        self.after.as_millis()
    }

    /// # Panics
    ///
    /// If there is none.
    pub fn decision(&self) -> &Decision {
        self.decision.as_ref().expect("a decision")
    }
}

/// Sends a request with these fields, see [`request`].
pub async fn ask(app: &Router, path: &str, fields: &str) -> Answer {
    let began = Instant::now();
    let (head, body) = call(app, request(path, fields)).await.into_parts();
    let after = began.elapsed();
    Answer {
        status: head.status.as_u16(),
        after,
        decision: Decision::from_extensions(&head.extensions).cloned(),
        fields: head.headers,
        body: text(Response::new(body)).await,
    }
}

/// The same in a task of its own, so many milliseconds later.
pub fn start(app: &Router, at: u64, path: &str, fields: &str) -> JoinHandle<Answer> {
    let (app, path, fields) = (app.clone(), path.to_owned(), fields.to_owned());
    tokio::spawn(async move {
        sleep(millis(at)).await;
        ask(&app, &path, &fields).await
    })
}

/// The statuses of so many requests, sent one after the other.
pub async fn statuses(app: &Router, path: &str, fields: &str, times: usize) -> Vec<u16> {
    let mut statuses = Vec::with_capacity(times);
    for _ in 0..times {
        statuses.push(ask(app, path, fields).await.status);
    }
    statuses
}

/// Header fields choose what it does: it holds for `x-hold` milliseconds, settles with `x-used`
/// units or gives all back with `x-refund`, and answers `x-status`; 200 by default.
///
/// # Panics
///
/// If one of them is no number, or the store does not settle.
pub async fn handler(request: Request<Body>) -> StatusCode {
    let fields = request.headers();
    let used = number(fields, "x-used");
    let refund = number(fields, "x-refund");
    let charges = used.or(refund);
    let charges = charges.map(|_| Charges::from_extensions(request.extensions()));
    sleep(millis(number(fields, "x-hold").unwrap_or(0))).await;
    match (used, charges) {
        (Some(used), Some(charges)) => _ = charges.settle(used).await.expect("an answer"),
        (None, Some(charges)) => _ = charges.refund().await.expect("an answer"),
        _ => {}
    }
    let status = number(fields, "x-status").unwrap_or(200);
    StatusCode::from_u16(status.try_into().expect("three digits")).expect("a status")
}

/// The value of a field, if it is there.
pub fn number(fields: &HeaderMap, name: &str) -> Option<u64> {
    let value = fields.get(name)?.to_str().expect("text");
    Some(value.parse().expect("a number"))
}

/// The key of a request by its field `x-key`; `k` without one.
pub fn key(head: &Parts) -> Key {
    let key = head.headers.get("x-key").map(|it| it.to_str());
    Key::from(key.map_or("k", |it| it.expect("text")))
}

/// Each request costs what its field `x-cost` says; 1 without one.
pub fn costly(layer: RateLimitLayer) -> RateLimitLayer {
    layer.cost(|head| number(&head.headers, "x-cost").unwrap_or(1))
}

/// The answer on a connection to which all of a request was sent: its head, in lower case. Its body
/// is read, too.
pub fn answer_on(connection: &mut std::net::TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|it| it.split_once("\r\n")?.0.parse().ok());
    connection.read_exact(&mut vec![0; length.unwrap_or(0)])?;
    Ok(head)
}
