//! Only failed logins count: a good one is charged first and given back when its answer is there.
//!
//! `cargo run --example login_failures`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use futures_util::future::join_all;
use support::show;
use tidegate::Limits;

const LIMITS: &str = r#"
    [rules.login]
    max-count = 3
    window = "1m"
    key = "header:x-user"
    refund-on = ["2xx"]
"#;

/// A password is checked slowly, so that it cannot be guessed quickly.
async fn login(uri: Uri) -> StatusCode {
    tokio::time::sleep(Duration::from_millis(50)).await;
    match uri.query() {
        Some("swordfish") => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = Limits::from_toml(LIMITS)?;
    let app = Router::new().route("/login", get(login).layer(limits.layer("login")));
    let ask = async |password| {
        let request = support::get(&format!("/login?{password}"));
        show(&app, request.header("x-user", "anna")).await;
    };

    println!("good logins, one after the other:");
    for _ in 0..4 {
        ask("swordfish").await;
    }
    println!("four together: each is charged until its answer is there");
    join_all([(); 4].map(|()| ask("swordfish"))).await;
    println!("failures, and then the right password:");
    for password in ["secret", "123456", "sword", "swordfish"] {
        ask(password).await;
    }
    // A service says this at the end of a graceful shutdown: Redis learns of it in the background.
    limits.flush(Duration::from_secs(1)).await;
    Ok(())
}
