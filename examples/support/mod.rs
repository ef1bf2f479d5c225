//! Sends requests to an app without a server, and prints what a client would see.

use axum::Router;
use axum::body::{Body, to_bytes};
use http::Request;
use tower::ServiceExt;

/// Sends one request and prints status, fields and body.
pub(crate) async fn show(app: &Router, request: http::request::Builder) {
    let request = request.body(Body::empty()).expect("a valid request");
    let asked = format!("{} {}", request.method(), request.uri());
    let response = match app.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    let fields = ["ratelimit", "retry-after"].into_iter().filter_map(|name| {
        let value = head.headers.get(name)?.to_str().ok()?;
        Some(format!("{name}: {value}"))
    });
    let fields: Vec<_> = fields.collect();
    let body = to_bytes(body, 10_000).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body);
    println!("{asked} -> {} [{}] {body}", head.status, fields.join(", "));
}

/// A request of nothing but a path.
pub(crate) fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}
