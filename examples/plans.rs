//! Customers with plans: each has the limits of its plan, and an upgrade keeps what was used.
//!
//! `cargo run --example plans`

#[path = "support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, RwLock};

use axum::Router;
use axum::extract::Request;
use axum::middleware::map_request;
use axum::routing::get;
use support::show;
use tidegate::Limits;
use tidegate::rule::Plan;

const LIMITS: &str = r#"
    [rules.reports]
    max-count = 2
    window = "1m"
    key = "header:x-user"

    [rules.reports.plans.pro]
    max-count = 5
    window = "1m"
"#;

/// The plan of each customer that has one.
type Customers = RwLock<HashMap<&'static str, &'static str>>;

/// Puts the plan into the request. A real service verifies a token in place of the field `x-user`.
fn authenticate(customers: &Customers, mut request: Request) -> Request {
    let user = request.headers().get("x-user");
    let user = user.and_then(|user| user.to_str().ok()).unwrap_or_default();
    let plan = customers.read().expect("no panic").get(user).copied();
    if let Some(plan) = plan {
        request.extensions_mut().insert(Plan::new(plan));
    }
    request
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let customers: Arc<Customers> = Arc::new(RwLock::new([("ben", "pro")].into()));
    let known = Arc::clone(&customers);
    let limits = Limits::from_toml(LIMITS)?;
    let app = Router::new()
        .route(
            "/reports",
            get(async || "a report").layer(limits.layer("reports")),
        )
        // It stands outside of the limit.
        .layer(map_request(move |request| {
            ready(authenticate(&known, request))
        }));
    let ask = async |user| {
        show(
            &app,
            support::get(&format!("/reports?{user}")).header("x-user", user),
        )
        .await
    };

    println!("two reports a minute, and five for a pro such as ben:");
    for user in ["anna", "anna", "anna", "ben"] {
        ask(user).await;
    }
    println!("anna becomes a pro, and what she has used counts:");
    customers.write().expect("no panic").insert("anna", "pro");
    for _ in 0..4 {
        ask("anna").await;
    }
    Ok(())
}
