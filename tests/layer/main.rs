//! The middleware as an application sees it: what it answers, whom it counts, how it is configured.

mod allocations;
mod budget_histories;
mod caches;
mod calendar;
mod calls;
mod charges;
mod client_ip;
mod config;
mod config_answers;
mod config_permits;
mod config_subjects;
mod contract;
mod counters;
mod crossings;
mod errors;
mod events;
mod examples;
mod exempt;
mod failures;
mod fields;
mod forms;
mod grpc;
mod host;
mod joint;
mod keys;
mod lanes;
mod llm_gateway;
mod lockout;
mod migrating;
mod mistakes;
mod no_cost;
mod operators;
mod outcomes;
mod outgoing;
mod outgoing_answers;
mod outgoing_costs;
mod owed;
mod page;
mod permits;
mod plans;
mod published;
mod recipes;
mod refused;
mod reload;
mod semantics;
mod several;
mod shadow;
mod statuses;
mod tasks;
mod turns;
mod uploads;
mod usage;
mod waiting;
mod waiting_histories;
mod warnings;
mod web_app;

// What most of these tests name; they have it by `use crate::*`.
use std::fs;
use std::net::SocketAddr;

use http::request::Builder;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kit::counters as counted;
use kit::http::{Answer, ask, call, get, request, send, serve, start, status, statuses, text};
use kit::log::Log;
use kit::prelude::*;
use kit::stub::far;
use tidegate::ErrorCallbackChain;
use tidegate::key::Bearer;
use tidegate::rule::Plan;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);
const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Held by a test that installs limits for the process.
static INSTALLED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A store that answers at once, and one that has to be waited for: both ways through the layer.
struct Stores {
    all: [Arc<dyn Store>; 2],
    server: Redis,
}

impl Stores {
    async fn start() -> Self {
        let server = Redis::start();
        let redis = store_on(&server).await;
        Self {
            all: [Arc::new(MemoryStore::new()), Arc::new(redis)],
            server,
        }
    }

    /// The server loses its data.
    fn flush(&self) {
        kit::run(&self.server, "FLUSHALL");
    }
}

/// A store that never decides a take that costs something: it has no room for any key.
fn no_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_max_keys(0))
}

/// In memory, by the clock of tokio, which a test can pause.
fn paused() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new().tokio_clock())
}

/// The limits of a text, which is valid.
fn of_toml(text: &str) -> Limits {
    Limits::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A rule that gives back what a request was charged if its outcome is one of these.
fn refunding(path: &str, max: u64, outcomes: &[&'static str]) -> Rule {
    let rule = per_minute(path, max).with_refund_on(outcomes.iter().copied());
    rule.expect("valid outcomes")
}

/// Quotas that code chooses, as closures share them.
fn plan_value(quotas: impl IntoIterator<Item = Quota>) -> Plan {
    Plan::of(quotas).expect("valid")
}

/// Limits of one rule in this store.
fn limits_of(rule: &Rule, store: &Arc<dyn Store>) -> Limits {
    Limits::new([rule.clone()]).store(Arc::clone(store))
}

/// A POST with these fields, as in `content-type: text/plain, x-user: alice`.
fn post(path: &str, fields: &str) -> Request<Body> {
    let mut request = kit::http::request(path, fields);
    *request.method_mut() = Method::POST;
    request
}

/// A request with these fields from this peer, of which a server on a socket tells.
fn from(peer: &str, path: &str, fields: &[(&str, &str)]) -> Request<Body> {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4711);
    let request = Request::get(path).extension(PeerAddr(peer));
    let add = |request: Builder, (name, value): &(&str, &str)| request.header(*name, *value);
    let request = fields.iter().fold(request, add);
    request.body(Body::empty()).expect("a valid request")
}

/// The answer of a server on a socket over HTTP/1.1.
async fn over_tcp(server: SocketAddr, request: Request<Body>) -> Response<Body> {
    let io = TokioIo::new(TcpStream::connect(server).await.expect("a server"));
    let (mut client, connection) = http1::handshake(io).await.expect("a server");
    tokio::spawn(connection);
    let answer = client.send_request(request).await;
    answer.expect("an answer").map(Body::new)
}

/// A request in a task of its own.
fn spawn(app: &Router, path: &'static str) -> JoinHandle<StatusCode> {
    let app = app.clone();
    tokio::spawn(async move { status(&app, path).await })
}

/// Whether nothing of a response says that there is a limit.
fn is_untouched(response: &Response<Body>) -> bool {
    let mut names = response.headers().keys();
    names.all(|name| !name.as_str().contains("ratelimit"))
        && Decision::from_extensions(response.extensions()).is_none()
        && Charges::from_extensions(response.extensions()).is_empty()
}

/// Status, fields and body of a response, without the fields of these names.
async fn shown(response: Response<Body>, without: &[&str]) -> String {
    let mut shown = format!("{}\n", response.status());
    for (name, value) in response.headers() {
        if !without.contains(&name.as_str()) {
            shown += &format!("{name}: {}\n", value.to_str().expect("printable"));
        }
    }
    shown + &text(response).await
}
