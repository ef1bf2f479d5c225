//! Mistakes in the set-up say what mends them.

use std::time::Duration;

use axum::http::request::Parts;
use tidegate::{Header, Key, RateLimitLayer};

fn layer() -> RateLimitLayer {
    RateLimitLayer::new("search", Duration::from_secs(1), 10)
}

fn key_that_is_a_name() {
    layer().key("client-ip");
}

fn key_without_a_result() {
    layer().key(|head: &Parts| Key::from(head.uri.path()));
}

fn tuple_with_a_name() {
    layer().key((Header::new("x-user"), "peer-ip"));
}

fn five_extractors() {
    let h = Header::new("x-user");
    layer().key((h.clone(), h.clone(), h.clone(), h.clone(), h));
}

fn closure_without_a_type() {
    layer().key(|head| Key::from(head.uri.path()));
}

fn main() {}
