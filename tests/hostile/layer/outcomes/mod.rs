//! Charging by outcome, attacked: only what the response's head says is given back, once, to whom
//! it was charged; what cannot be given back stays charged and is counted; nobody waits for a
//! refund.

mod aborts;
mod failures;
mod flushes;
mod many;
mod once;
mod reloads;
mod runtimes;
mod statuses;

use std::io;

use kit::clocked::Stores;
use kit::http::number;
use tokio::sync::Semaphore;

use crate::*;

const ALGORITHMS: [Algorithm; 4] = Algorithm::ALL;
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

/// Limits of this rule in this store, and a handler behind its layer.
fn world(rule: Rule, store: impl Store) -> (Limits, Wrapped) {
    let path = rule.path().to_owned();
    let limits = limits(rule, store);
    let service = wrap(&limits.layer(&path));
    (limits, service)
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

    /// A request that it holds, in a task, and that its handler gives this status.
    fn start(&self, service: &Wrapped, status: u16) -> JoinHandle<u16> {
        let (service, mut request) = (service.clone(), request(&format!("x-status: {status}")));
        request.extensions_mut().insert(self.clone());
        tokio::spawn(async move { call(&service, request).await })
    }
}

/// Answers with `x-status`, after `x-sleep` milliseconds, and behaves before that as `x-how` says.
fn handler() -> Wrapped {
    BoxCloneSyncService::new(service_fn(async |request: Request<Body>| {
        let (head, _) = request.into_parts();
        let fields = &head.headers;
        if let Some(time) = number(fields, "x-sleep") {
            sleep(millis(time)).await;
        }
        if let Some(Gate(gate)) = head.extensions.get() {
            assert!(gate.acquire().await.is_err(), "it is opened for all");
        }
        let charges = Charges::from_extensions(&head.extensions);
        match text(fields, "x-how") {
            Some("refund") => drop(charges.refund().await),
            Some("settle") => {
                for charge in &charges {
                    charge
                        .settle(number(fields, "x-used").unwrap_or(0))
                        .await
                        .ok();
                }
            }
            _ => {}
        }
        let status = number(fields, "x-status").unwrap_or(200) as u16;
        let mut response = Response::builder().status(status);
        for name in ["grpc-status", "x-cache", "content-type"] {
            for value in fields.get_all(format!("x-back-{name}")) {
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
fn request(fields: &str) -> Request<Body> {
    match fields.contains("x-key: ") {
        true => kit::http::request("/", fields),
        false => kit::http::request("/", &format!("x-key: x, {fields}")),
    }
}

/// The status of the answer; 0 for an error.
async fn call(service: &Wrapped, request: Request<Body>) -> u16 {
    let answer = service.clone().oneshot(request).await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

async fn ask(service: &Wrapped, fields: &str) -> u16 {
    call(service, request(fields)).await
}

/// The same of a gRPC request.
async fn ask_grpc(service: &Wrapped, fields: &str) -> u16 {
    ask(
        service,
        &format!("content-type: application/grpc, {fields}"),
    )
    .await
}

/// The same in a task of its own.
fn start(service: &Wrapped, fields: &str) -> JoinHandle<u16> {
    let (service, fields) = (service.clone(), fields.to_owned());
    tokio::spawn(async move { ask(&service, &fields).await })
}

/// The status of a response that a handler gave this status.
async fn send(service: &Wrapped, status: u16) -> u16 {
    ask(service, &format!("x-status: {status}")).await
}

/// So many requests in turn, which are admitted, and whose handler gives them this status.
async fn pass(service: &Wrapped, status: u16, times: usize) {
    for at in 0..times {
        assert_eq!(send(service, status).await, status, "request {at}");
    }
}

/// A rule by `x-key` with this max per hour.
fn of(path: &str, max: u64, refund_on: &[&str]) -> Rule {
    of_window(path, max, HOUR, refund_on)
}

fn of_window(path: &str, max: u64, window: Duration, refund_on: &[&str]) -> Rule {
    let rule = kit::owned_rule(path, max, window).with_key(Header::new("x-key"));
    match refund_on {
        [] => rule,
        some => rule.with_refund_on(some.iter().copied()).expect("valid"),
    }
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule]).store(store)
}

/// What is left for the key `x`.
async fn left(limits: &Limits, path: &str) -> u64 {
    kit::left(limits, path, key("x")).await
}

/// The same under a rule, as the store says.
async fn left_in(store: &dyn Store, rule: &Rule) -> u64 {
    let take = Take::new(Arc::new(rule.clone()), key("x"));
    kit::clocked::remaining(store, &take).await
}

async fn reset(limits: &Limits, path: &str) -> bool {
    limits.reset(path, key("x")).await.expect("an answer")
}

async fn flushed(limits: &Limits) {
    assert!(limits.flush(PATIENT).await, "refunds are not answered");
}

/// Refunds, units that were given back, and refunds that were lost.
fn counted(limits: &Limits, path: &str) -> (u64, u64, u64) {
    let rule = kit::counters(limits, path);
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

async fn until_left(limits: &Limits, path: &str, expected: u64) {
    until(expected, async || left(limits, path).await).await;
}
