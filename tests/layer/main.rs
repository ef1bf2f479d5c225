//! The middleware as an application sees it.

#[path = "../support/log.rs"]
mod log;
#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod charges;
mod contract;
mod events;
mod failures;
mod fields;
mod semantics;
mod stores;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tidegate::{MemoryStore, Store};
use tower::ServiceExt;

use support::Redis;

const WINDOW: Duration = Duration::from_secs(60);

/// A store that answers at once, and one that has to be waited for: both ways through the layer.
struct Stores {
    all: [Arc<dyn Store>; 2],
    _server: Redis,
}

impl Stores {
    async fn start() -> Self {
        let server = Redis::start();
        let redis = server.store().await;
        Self {
            all: [Arc::new(MemoryStore::new()), Arc::new(redis)],
            _server: server,
        }
    }
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
