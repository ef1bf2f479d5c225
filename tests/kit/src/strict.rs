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
    is_never_ready: bool,
    /// How often it was asked whether it is.
    pub polls: Arc<AtomicUsize>,
    pub calls: Arc<AtomicUsize>,
}

impl Strict {
    pub fn never_ready() -> Self {
        Self {
            is_never_ready: true,
            ..Self::default()
        }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            is_never_ready: self.is_never_ready,
            polls: self.polls.clone(),
            calls: self.calls.clone(),
        }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if self.is_never_ready {
            return Poll::Pending;
        }
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
