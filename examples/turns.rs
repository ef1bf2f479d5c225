//! Several tenants on one upstream: those that wait take turns, by what they cost and by the weight
//! of their plan, however many requests one of them sends.
//!
//! `cargo run --example turns` needs no Redis. Three tenants send what they can for three seconds.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::{Router, routing::get};
use tidegate::Limits;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const FILE: &str = r#"
[rules.upstream]
# Clients are not told of what all share.
quotas = [
    { max-count = 50, window = "1s", pace = "even", hidden = true },
    { max-concurrent = 8, hidden = true },
]
key = "everyone"
fair-by = "header:x-tenant"      # a layer outside has to have checked it

[rules.upstream.plans.pro]
fair-weight = 3                  # three times as much as a tenant without a plan
"#;

/// The tenants, and how many requests each has in progress.
const TENANTS: [(&str, usize); 3] = [("loud", 60), ("quiet", 4), ("pro", 20)];

async fn upstream() -> &'static str {
    sleep(Duration::from_millis(20)).await;
    "an answer"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = Limits::from_toml(FILE)?.plan(|head| match head.headers.get("x-tenant") {
        Some(tenant) if tenant == "pro" => Some("pro"),
        _ => None,
    });
    let layer = limits.layer("upstream").wait(Duration::from_secs(30));
    let app: Router = Router::new().route("/", get(upstream).layer(layer));
    limits.verify()?;

    let (served, end) = (
        Arc::new(Mutex::new(BTreeMap::new())),
        Instant::now() + Duration::from_secs(3),
    );
    let mut callers = JoinSet::new();
    for (tenant, number) in TENANTS {
        for _ in 0..number {
            let (app, served) = (app.clone(), Arc::clone(&served));
            callers.spawn(async move {
                while Instant::now() < end {
                    let request = Request::builder().header("x-tenant", tenant);
                    let request = request.body(Body::empty()).expect("a valid request");
                    let Ok(response) = app.clone().oneshot(request).await;
                    if response.status().is_success() {
                        *served.lock().expect("no panic").entry(tenant).or_insert(0) += 1;
                    }
                }
            });
        }
    }
    sleep(Duration::from_secs(3)).await;
    // As when a process ends: whoever waits is denied now, and not cut off.
    limits.stop_waiting();
    while callers.join_next().await.is_some() {}
    for (tenant, number) in served.lock().expect("no panic").iter() {
        println!("{tenant}: {number} requests");
    }
    Ok(())
}
