//! A custom store: counts in a file, which survive a restart.
//!
//! `cargo run --example redb_store`, and once more within a minute. The suite that every store
//! passes is run on it by `bash tests/run.sh --test store redb`.

mod store;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use store::RedbStore;
use support::show;
use tidegate::RateLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join("tidegate-example.redb");
    println!("the counts are in {}", path.display());
    let store = RedbStore::open(&path)?;
    let limited = RateLimitLayer::new("getId", Duration::from_secs(60), 3).store(store);
    let app = Router::new().route("/getId", get(async || "1").layer(limited));
    for _ in 0..2 {
        show(&app, support::get("/getId")).await;
    }
    Ok(())
}
