//! A denied request gets the last finished report instead of an error.
//!
//! `cargo run --example degrade`

#[path = "support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use support::show;
use tidegate::RateLimitLayer;

type LastReport = Arc<Mutex<Option<String>>>;

async fn export(State(last): State<LastReport>) -> String {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let report = "a report that took its time".to_owned();
    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(report.clone());
    report
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let last = LastReport::default();
    let instead = last.clone();
    let limited =
        RateLimitLayer::new("export", Duration::from_secs(60), 1).degrade_fn(move |denied| {
            let last = Arc::clone(&instead);
            async move {
                let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let wait = denied.decision.retry_after().unwrap_or_default();
                match last {
                    Some(report) => format!("{report} (a new one in {} s)", wait.as_secs()),
                    None => "the first report is being made".to_owned(),
                }
            }
        });
    let app = Router::new()
        .route("/export", get(export).layer(limited))
        .with_state(last);

    tokio::join!(
        show(&app, support::get("/export?the-first")),
        show(&app, support::get("/export?while-it-runs")),
    );
    show(&app, support::get("/export?later")).await;
}
