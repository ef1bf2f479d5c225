//! Charging by outcome, attacked: only what the response's head says is given back, once, to whom
//! it was charged; what cannot be given back stays charged and is counted; nobody waits for a
//! refund.

mod aborts;
mod config;
mod failures;
mod flushes;
mod histories;
mod inner;
mod many;
mod neighbours;
mod once;
mod reloads;
mod runtimes;
mod shadows;
mod statuses;
mod wrapped;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{HeaderMap, Method, Request, Response};
use tidegate::store::Charges;
use tidegate::{Algorithm, Header, Key, Limits, Quota, RateLimitLayer, Rule, Store, Take};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use kit::{HOUR, PATIENT, millis};

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::Gcra,
    Algorithm::FixedWindow,
];

/// A layer around a handler that does what its request says.
type Wrapped = BoxCloneSyncService<Request<Body>, Response<Body>, io::Error>;

fn around<L>(layer: &L, inner: Wrapped) -> Wrapped
where
    L: Layer<Wrapped>,
    L::Service: tower::Service<Request<Body>, Response = Response<Body>, Error = io::Error>
        + Clone
        + Send
        + Sync
        + 'static,
    <L::Service as tower::Service<Request<Body>>>::Future: Send,
{
    BoxCloneSyncService::new(layer.layer(inner))
}

fn wrap(layer: &RateLimitLayer) -> Wrapped {
    around(layer, handler())
}

/// Holds the handlers of all requests that carry it until it is opened.
#[derive(Debug, Clone)]
struct Gate(Arc<Semaphore>);

impl Gate {
    fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    fn open(&self) {
        self.0.close();
    }

    /// A request of the key `x` that it holds.
    fn request(&self) -> Request<Body> {
        let mut request = request(&[]);
        request.extensions_mut().insert(self.clone());
        request
    }
}

/// Answers with `x-status`, after `x-sleep` milliseconds, and behaves before that as `x-how` says.
fn handler() -> Wrapped {
    BoxCloneSyncService::new(service_fn(async |request: Request<Body>| {
        let (head, _) = request.into_parts();
        let field = |name| text(&head.headers, name);
        let number = |name| field(name).map(|it| it.parse::<u64>().expect("a number"));
        if let Some(time) = number("x-sleep") {
            sleep(millis(time)).await;
        }
        if let Some(Gate(gate)) = head.extensions.get() {
            assert!(gate.acquire().await.is_err(), "it is opened for all");
        }
        let charges = Charges::from_extensions(&head.extensions);
        match field("x-how") {
            Some("error") => return Err(io::Error::other("the handler failed")),
            Some("panic") => panic!("a handler of a test"),
            Some("refund") => drop(charges.refund().await),
            Some("settle") => {
                for charge in &charges {
                    charge.settle(number("x-used").unwrap_or(0)).await.ok();
                }
            }
            Some("never") => std::future::pending().await,
            _ => {}
        }
        let status = number("x-status").unwrap_or(200) as u16;
        let mut response = Response::builder().status(status);
        for name in ["grpc-status", "x-cache", "content-type"] {
            let copied = format!("x-back-{name}");
            for value in head.headers.get_all(&copied) {
                response = response.header(name, value);
            }
        }
        Ok(response.body(Body::empty()).expect("a valid response"))
    }))
}

fn text<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    fields.get(name).map(|it| it.to_str().expect("text"))
}

/// A request of the key `x` unless it says something else.
fn request(fields: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::get("/");
    if !fields.iter().any(|(name, _)| *name == "x-key") {
        request = request.header("x-key", "x");
    }
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).expect("a valid request")
}

/// The same as a gRPC request.
fn grpc(fields: &[(&str, &str)]) -> Request<Body> {
    let mut request = request(fields);
    *request.method_mut() = Method::POST;
    let grpc = "application/grpc".parse().expect("a value");
    request.headers_mut().insert("content-type", grpc);
    request
}

async fn ask(service: &Wrapped, request: Request<Body>) -> u16 {
    let answer = service.clone().oneshot(request).await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

/// The status of a response that a handler gave this status.
async fn send(service: &Wrapped, status: u16) -> u16 {
    ask(service, request(&[("x-status", &status.to_string())])).await
}

/// A rule by `x-key` with this max per hour.
fn of(path: &str, max: u64, refund_on: &[&str]) -> Rule {
    of_window(path, max, HOUR, refund_on)
}

fn of_window(path: &str, max: u64, window: Duration, refund_on: &[&str]) -> Rule {
    let quota = Quota::new(window, max).expect("a valid quota");
    let rule = Rule::new(path, [quota]).expect("a valid rule");
    let rule = rule.with_key(Header::new("x-key"));
    match refund_on {
        [] => rule,
        some => rule
            .with_refund_on(some.iter().copied())
            .expect("valid outcomes"),
    }
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule]).store(store)
}

fn key(name: &str) -> Key {
    Header::new("x-key").key(name)
}

/// What is left for the key.
async fn left_of(limits: &Limits, path: &str, name: &str) -> u64 {
    let left = limits.peek(path, key(name)).await;
    left.expect("an answer").expect("a rule").remaining()
}

/// The same under a rule, as the store says.
async fn left_in(store: &dyn Store, rule: &Rule, name: &str) -> u64 {
    let take = Take::new(Arc::new(rule.clone()), key(name));
    store.peek(&take).await.expect("an answer").remaining()
}

async fn flushed(limits: &Limits) {
    assert!(limits.flush(PATIENT).await, "refunds are not answered");
}

/// Refunds, units that were given back, and refunds that were lost.
fn counted(limits: &Limits, path: &str) -> (u64, u64, u64) {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path).expect("used");
    (rule.refunds, rule.refunded_units, rule.refunds_lost)
}

/// Asks until it is as it should be, and tells what it was at last.
async fn until<T: PartialEq + std::fmt::Debug>(expected: T, ask: impl AsyncFn() -> T) {
    let began = Instant::now();
    loop {
        let got = ask().await;
        if got == expected {
            return;
        }
        assert!(began.elapsed() < PATIENT, "{got:?}, expected {expected:?}");
        sleep(millis(10)).await;
    }
}
