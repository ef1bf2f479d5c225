//! The HTTP server of a process.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use tower::util::MapResponseLayer;

use crate::Result;

static ALLOWED: AtomicU64 = AtomicU64::new(0);
static DENIED: AtomicU64 = AtomicU64::new(0);
static OTHER: AtomicU64 = AtomicU64::new(0);

/// Serves these routes until the process is ended; the first line of its output is the port.
pub fn serve(router: impl Future<Output = Result<Router>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let router = router
            .await?
            .layer(MapResponseLayer::new(count as fn(Response) -> Response))
            .merge(Router::new().route("/statuses", get(statuses)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        axum::serve(listener, router).await?;
        Ok(())
    })
}

/// Counts every response by its status. All routes pay the same for that.
fn count(response: Response) -> Response {
    let counter = match response.status() {
        StatusCode::OK => &ALLOWED,
        StatusCode::TOO_MANY_REQUESTS => &DENIED,
        _ => &OTHER,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    response
}

/// How many responses were 200, 429 and anything else since the last call.
async fn statuses() -> String {
    let [allowed, denied, other] =
        [&ALLOWED, &DENIED, &OTHER].map(|counter| counter.swap(0, Ordering::Relaxed));
    format!("{allowed} {denied} {other}")
}
