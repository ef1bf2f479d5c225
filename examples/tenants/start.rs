//! The limits of tenants from a table of a database, which changes while the service runs: one read
//! at a time for each tenant, again after a time to live, and the last known value while the
//! database fails.
//!
//! `cargo run -p tidegate-tenants-example`

#[path = "../support/mod.rs"]
mod support;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use support::show;
use tenants::{AnyError, Tenants};
use tidegate::rule::Plan;
use tidegate::{Header, Limits, Quota, Rule};

const TIME_TO_LIVE: Duration = Duration::from_millis(300);

/// Finds what the tenant of a request bought. It stands behind authentication, and outside of the
/// layer, which cannot wait for a database.
async fn with_plan(
    State(tenants): State<Arc<Tenants>>,
    mut request: Request,
    next: Next,
) -> Response {
    let tenant = request.headers().get("x-tenant");
    let tenant = tenant.and_then(|it| it.to_str().ok());
    if let Some(tenant) = tenant
        && let Some(plan) = tenants.plan(tenant).await
    {
        request.extensions_mut().insert(plan);
    }
    next.run(request).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), AnyError> {
    let folder = tempfile::tempdir()?;
    let tenants = Tenants::open(&folder.path().join("tenants.redb"), TIME_TO_LIVE)?;
    let tenants = Arc::new(tenants);
    tenants.set_max("acme", 2)?;

    // A tenant that is not in the table has the quotas of the rule.
    let rule = Rule::new("api", [Quota::per_minute(1)])?.with_key(Header::new("x-tenant"));
    let limits =
        Limits::new([rule]).plan_value("api", |head| head.extensions.get::<Plan>().cloned());
    let app = Router::new()
        .route("/api", get(async || "ok"))
        .route_layer(limits.layer("api"))
        .route_layer(from_fn_with_state(Arc::clone(&tenants), with_plan));
    let request = |tenant| support::get(&format!("/api?{tenant}")).header("x-tenant", tenant);
    let ask = async |tenant, times| {
        for _ in 0..times {
            show(&app, request(tenant)).await;
        }
    };

    println!("acme has two requests a minute, everybody else one, three come at once:");
    tokio::join!(
        show(&app, request("acme")),
        show(&app, request("acme")),
        show(&app, request("acme")),
    );
    ask("other", 2).await;
    println!("the database was read {} times", tenants.reads());
    println!("acme buys four, and what it has used counts:");
    tenants.set_max("acme", 4)?;
    tokio::time::sleep(TIME_TO_LIVE).await;
    ask("acme", 1).await;
    println!("the database fails, and acme has four:");
    tenants.lose_all()?;
    tokio::time::sleep(TIME_TO_LIVE).await;
    ask("acme", 2).await;
    println!("the database was read {} times", tenants.reads());
    Ok(())
}
