//! The middleware as an application sees it: what it answers, whom it counts, how it is configured.

mod allocations;
// Combinations of what all features offer.
#[cfg(feature = "full")]
mod attacks;
mod calls;
mod charges;
mod client_ip;
mod closures;
mod config;
mod config_permits;
mod config_subjects;
mod contract;
mod counters;
mod errors;
#[cfg(feature = "tracing")]
mod events;
mod examples;
mod exempt;
mod failures;
#[cfg(feature = "test-util")]
mod fields;
mod grpc;
// Each binary uses a part of it.
#[allow(dead_code)]
#[path = "../helpers/mod.rs"]
mod helpers;
mod joint;
mod joint_requests;
mod joint_waiting;
mod keys;
mod llm_gateway;
mod many_plans;
mod open_charges;
mod outcomes;
mod outgoing;
mod owed;
#[cfg(feature = "page")]
mod page;
mod permits;
mod plans;
#[cfg(feature = "metrics")]
mod published;
mod refused;
mod reload;
mod semantics;
mod several;
mod shadow;
mod stores;
mod tasks;
mod usage;
mod waiting;
#[cfg(feature = "test-util")]
mod warnings;
mod web_app;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use test_support::Redis;
use tidegate::{MemoryStore, RedisStore, Store};
use tower::ServiceExt;

const WINDOW: Duration = Duration::from_secs(60);

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
        let flushed: redis::RedisResult<()> =
            redis::cmd("FLUSHALL").query(&mut self.server.connection());
        flushed.expect("an answer");
    }
}

/// A store with a time-out that only a hanging server exceeds, not a busy machine.
async fn store_on(server: &Redis) -> RedisStore {
    let store = RedisStore::connect(&server.url).await;
    let store = store.expect("a running server");
    store.timeout(Duration::from_secs(20))
}

/// A store that never decides a take that costs something: it has no room for any key.
fn no_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_max_keys(0))
}

fn get(path: &str) -> Request<Body> {
    Request::get(path)
        .body(Body::empty())
        .expect("a valid request")
}

async fn send(app: &Router, path: &str) -> Response<Body> {
    app.clone()
        .oneshot(get(path))
        .await
        .expect("axum does not fail")
}

async fn status(app: &Router, path: &str) -> StatusCode {
    send(app, path).await.status()
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.expect("a whole body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}
