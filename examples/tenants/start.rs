//! The limits of tenants from a table of a database, which changes while the service runs.
//!
//! `cargo run -p tidegate-tenants-example`

#[path = "../support/mod.rs"]
mod support;
mod tenants;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use support::show;
use tenants::{AnyError, Tenants};
use tidegate::{Header, Quota, RateLimitLayer, Rule};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let folder = tempfile::tempdir()?;
    let tenants = Arc::new(Tenants::open(&folder.path().join("tenants.redb"))?);
    tenants.set_max("acme", 2).await?;

    let known = Arc::clone(&tenants);
    // A tenant that is not in the table has the quotas of the rule.
    let rule = Rule::new("api", [Quota::per_minute(1)])?.with_key(Header::new("x-tenant"));
    let limited = RateLimitLayer::from_rule(rule)
        .plan_value(move |head| known.plan(head.headers.get("x-tenant")?.to_str().ok()?));
    let app = Router::new().route("/api", get(async || "ok").layer(limited));
    let ask = async |tenant, times| {
        for _ in 0..times {
            let request = support::get(&format!("/api?{tenant}"));
            show(&app, request.header("x-tenant", tenant)).await;
        }
    };

    println!("acme has two requests a minute, everybody else one:");
    ask("acme", 3).await;
    ask("other", 2).await;
    println!("acme buys four, and what it has used counts:");
    tenants.set_max("acme", 4).await?;
    ask("acme", 3).await;
    Ok(())
}
