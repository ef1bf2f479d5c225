//! Requests whose handler fails are not charged: they get their units back.
//!
//! `cargo run --example refund`

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use support::show;
use tidegate::RateLimitLayer;
use tidegate::store::Charges;

/// Fails for the reports with an odd number.
async fn report(Path(number): Path<u32>) -> Result<String, StatusCode> {
    match number % 2 {
        0 => Ok(format!("report {number}")),
        _ => Err(StatusCode::BAD_GATEWAY),
    }
}

/// Stands outside of the limit, and sees what all layers inside have charged.
async fn refund_failures(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_server_error() {
        let charges = Charges::from_extensions(response.extensions());
        // A response does not wait for its refund.
        tokio::spawn(async move {
            match charges.refund().await {
                Ok(units) => println!("{units} unit was given back"),
                Err(error) => eprintln!("nothing was given back: {error}"),
            }
        });
    }
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let limited = RateLimitLayer::new("report", Duration::from_secs(60), 2);
    let app = Router::new()
        .route("/{number}", get(report))
        .layer(limited)
        .layer(from_fn(refund_failures));

    for number in [1, 3, 5, 2, 4, 6] {
        show(&app, support::get(&format!("/{number}"))).await;
        tokio::task::yield_now().await;
    }
}
