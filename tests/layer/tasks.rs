//! Twenty-five tasks that users have. Each is done with the code of its snippet in the guides, in a
//! server on a socket, and counted on a real Redis. Two of them have no test here:
//!
//! - a gRPC server: `peers` and `unary` in tests/grpc, with tonic's own client. There is also the
//!   channel of tonic that paces its own calls;
//! - a ban after repeated denials: the crate cannot do it, because a denial changes nothing in a
//!   store, so a store does not know how many there were.

mod client;
mod operating;
mod what_counts;
mod who_is_counted;
mod without_a_request;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use client::serve;
use futures_util::future::join_all;
use http::{HeaderName, StatusCode};
use ipnet::IpNet;
use kit::Redis;
use tidegate::key::{Bearer, Forwarding, Method};
use tidegate::layer::Refused;
use tidegate::metrics::DecisionOutcome;
use tidegate::rule::{Plan, Quotas};
use tidegate::store::Charges;
use tidegate::{
    ClientIp, Header, Key, KeyExtractor, Limits, MatchedPath, PeerIp, Quota, RateLimitLayer, Rule,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::store_on;

const MINUTE: Duration = Duration::from_secs(60);
/// Nothing takes so long, even on a busy machine.
const BOUND: Duration = Duration::from_secs(20);

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// How many requests of a rule were allowed and denied.
fn counted(limits: &Limits, rule: &str) -> (u64, u64) {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(rule).expect("a rule with a layer");
    let of = |outcome| rule.decisions(outcome);
    (of(DecisionOutcome::Allowed), of(DecisionOutcome::Denied))
}

fn per_minute(path: &str, max: u32) -> Rule {
    Rule::new(path, [Quota::per_minute(max)]).expect("valid")
}

/// `/` with a layer around it.
fn limited(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(async || "1").post(async || "1").layer(layer))
}

#[derive(Clone)]
struct User;

/// Stands for authentication: the fields name the user and the plan.
async fn authenticate(mut request: Request, next: Next) -> Response {
    if request
        .headers()
        .get("x-plan")
        .is_some_and(|plan| plan == "pro")
    {
        request.extensions_mut().insert(Plan::new("pro"));
    }
    if request.headers().contains_key("x-user") {
        request.extensions_mut().insert(User);
    }
    next.run(request).await
}
