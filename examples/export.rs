//! Users press an export button again and again: one export of each user runs in the whole fleet,
//! and further presses are answered immediately.
//!
//! `cargo run --example export` uses the Redis at `REDIS_URL`, or starts one.

#[path = "support/redis.rs"]
mod redis_support;
#[path = "support/mod.rs"]
mod support;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use redis_support::Server;
use support::show;
use tidegate::{Limits, RedisStore};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::from_env()?;
    // To Redis, two stores are two processes.
    let apps = [app(&server.url).await?, app(&server.url).await?];

    println!("Anna presses four times, at both processes, and Ben once:");
    let users = ["anna", "anna", "ben", "anna", "anna"];
    let presses = users.iter().enumerate().map(async |(at, user)| {
        sleep(Duration::from_millis(30 * at as u64)).await;
        press(&apps[at % 2], user).await;
    });
    join_all(presses).await;

    println!("and once more when it is done:");
    press(&apps[1], "anna").await;
    Ok(())
}

async fn press(app: &Router, user: &str) {
    let request = support::get(&format!("/export?{user}"));
    show(app, request.header("x-user", user)).await;
}

async fn app(url: &str) -> Result<Router, Box<dyn Error>> {
    let rule = "rules.export = { max-concurrent = 1, key = 'header:x-user' }";
    let limits = Limits::from_toml(rule)?
        .store(RedisStore::connect(url).await?)
        .degrade_fn(async |_| "your export is being made, it will be here soon");
    Ok(Router::new().route("/export", get(export).layer(limits.layer("export"))))
}

async fn export() -> &'static str {
    sleep(Duration::from_millis(400)).await;
    "a,b,c"
}
