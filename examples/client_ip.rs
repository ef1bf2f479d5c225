//! Each client has its own limit, also behind a proxy. A client that sends a forged address keeps
//! its limit.
//!
//! `cargo run --example client_ip`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use support::show;
use tidegate::key::PeerAddr;
use tidegate::{ClientIp, RateLimitLayer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Only proxies in this network may say which client they speak for.
    let client = ClientIp::behind(["10.0.0.0/8".parse()?]);
    let limited = RateLimitLayer::new("search", Duration::from_secs(60), 1).key(client);
    let app = Router::new().route("/search", get(|| async { "found" }).layer(limited));

    // A server tells the peer's address: serve with
    // `into_make_service_with_connect_info::<SocketAddr>()`. Here each request carries it.
    let proxy = PeerAddr("10.0.0.1:443".parse()?);
    let from = |fields: &str| {
        let request = support::get("/search").extension(proxy);
        request.header("x-forwarded-for", fields)
    };
    println!("two clients:");
    show(&app, from("198.51.100.7")).await;
    show(&app, from("198.51.100.8")).await;
    println!("the first again, with addresses that it made up:");
    show(&app, from("203.0.113.1, 198.51.100.7")).await;
    show(&app, from("203.0.113.2, 198.51.100.7")).await;
    Ok(())
}
