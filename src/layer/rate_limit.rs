use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::settings::Settings;
use crate::admission::ResponseFuture;
use crate::key::Key;
use crate::store::Take;

/// The service that a [`RateLimitLayer`](super::RateLimitLayer) makes.
///
/// Its error type is the inner service's. Its responses have axum's body, whatever the inner
/// service's body is.
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S::Error: Send + Sync + 'static,
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> ResponseFuture<S, ReqBody> {
        let settings = &self.settings;
        let Some(rule) = settings.rule() else {
            settings.count_unmatched();
            return ResponseFuture::unlimited(self.inner.call(request));
        };
        // A request whose head is not read stays in one piece: taking it apart and putting it
        // together again is a good part of what a decision costs.
        let outcome = match settings.reads_heads(&rule) {
            false => settings.ask_first(Take::new(rule, Key::default())),
            true => {
                let (head, body) = request.into_parts();
                let outcome = settings.ask_about(rule, &head);
                request = Request::from_parts(head, body);
                outcome
            }
        };
        match outcome {
            Some(outcome) => ResponseFuture::new(outcome, &mut self.inner, request),
            None => ResponseFuture::unlimited(self.inner.call(request)),
        }
    }
}
