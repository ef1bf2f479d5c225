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

use std::net::IpAddr;
use std::sync::RwLock;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use ipnet::IpNet;
use tidegate::MatchedPath;
use tidegate::key::{Forwarding, Method};
use tidegate::rule::Plan;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::*;
use client::{Client, serve};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// How many requests of a rule were allowed and denied.
fn counted(limits: &Limits, rule: &str) -> (u64, u64) {
    let rule = crate::counted(limits, rule);
    let of = |outcome| rule.decisions(outcome);
    (of(DecisionOutcome::Allowed), of(DecisionOutcome::Denied))
}

/// `/` with a layer around it.
fn limited(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(async || "1").post(async || "1").layer(layer))
}

/// Limits that are counted on a Redis of their own.
async fn on_redis(limits: Limits) -> (Limits, Redis) {
    let redis = Redis::start();
    let limits = limits.store(store_on(&redis).await);
    (limits, redis)
}

/// The same, and a server whose `/` is behind the layer of a rule.
async fn limiting(limits: Limits, rule: &str) -> (Client, Limits, Redis) {
    let (limits, redis) = on_redis(limits).await;
    let client = serve(limited(limits.layer(rule))).await;
    (client, limits, redis)
}

#[derive(Clone)]
struct User;

/// Stands for authentication: the fields name the user and the plan.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let plan = request.headers().get("x-plan");
    if plan.is_some_and(|plan| plan == "pro") {
        request.extensions_mut().insert(Plan::new("pro"));
    }
    if request.headers().contains_key("x-user") {
        request.extensions_mut().insert(User);
    }
    next.run(request).await
}
