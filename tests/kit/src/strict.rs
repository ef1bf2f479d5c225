//! A service that a layer has to ask first.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

/// Panics if it is called without having been polled ready. A clone starts unready.
#[derive(Debug, Default)]
pub struct Strict {
    ready: bool,
    pub calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: self.calls.clone(),
        }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let is_ready = std::mem::take(&mut self.ready);
        assert!(is_ready, "called without being ready");
        self.calls.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(Body::empty())))
    }
}
