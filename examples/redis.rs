//! One limit for all processes that use the same Redis: start this example several times.
//!
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use support::show;
use tidegate::{RateLimitLayer, Resilient, Store, StoreError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), StoreError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    // A decision takes at most 20 ms, whatever Redis does. Then each of at most two processes
    // admits a half by itself. All keys begin with "shop:".
    let store = Resilient::redis(url, "shop")?
        .timeout(Duration::from_millis(20))
        .processes(2)
        .connect()
        .await?;
    println!("{} decides", store.name());

    let limited = RateLimitLayer::new("getId", Duration::from_secs(10), 5).store(store);
    let app = Router::new().route("/getId", get(|| async { "1" }).layer(limited));
    for _ in 0..7 {
        show(&app, support::get("/getId")).await;
    }
    Ok(())
}
