//! Attacks on what a new user meets first: warnings, the safe set-up, several layers, charges,
//! gRPC answers, and jobs with a limiter that carries its rate.

mod answers;
mod charges;
mod jobs;
mod layers;
mod set_up;
mod warnings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use futures_util::future::join_all;
use http::StatusCode;
use kit::http::{send, text};
use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use kit::{HOUR, PATIENT, Redis as Server, eventually, millis, per_hour, words};
use tidegate::decision::Source;
use tidegate::rule::OnError;
use tidegate::store::StoreErrorKind;
use tidegate::{
    FailOpen, Key, Limits, MemoryStore, RateLimitLayer, RedisStore, Resilient, Rule, Store, Take,
};
use tokio::time::{sleep, timeout};

/// The safe set-up in one line.
fn shop(url: &str) -> Resilient<RedisStore> {
    Resilient::redis(url, "shop").expect("an address")
}

/// The same, and it has a connection: the first one may take longer than a decision.
async fn connected(url: &str) -> Resilient<RedisStore> {
    shop(url).connect().await.expect("a running server")
}
