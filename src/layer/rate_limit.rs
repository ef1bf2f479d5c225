use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::action::{Action, Begun};
use super::gate::Gate;
use super::response_future::ResponseFuture;
use crate::key::Key;
use crate::take::Take;

/// The service that a [`RateLimitLayer`](super::RateLimitLayer) makes.
///
/// Its error type is the inner service's. Its responses have axum's body, whatever the inner
/// service's body is. The body of a request is any that may be read in a task of its own: of an
/// upload that is [denied](super::RateLimitLayer::close_denied_uploads) the rest is read there.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use axum::body::Body;
/// use http::{Request, Response};
/// use tidegate::RateLimitLayer;
/// use tidegate::layer::RateLimit;
/// use tower::{Layer, service_fn};
///
/// let handler = service_fn(async |_: Request<Body>| {
///     Ok::<_, Infallible>(Response::new(Body::from("1")))
/// });
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5);
/// let limited: RateLimit<_> = layer.layer(handler);
/// # let _ = limited;
/// ```
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    pub(super) inner: S,
    pub(super) gate: Arc<Gate>,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S::Error: Send + Sync + 'static,
    ReqBody: HttpBody + Send + 'static,
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> ResponseFuture<S, ReqBody> {
        let (gate, inner) = (&self.gate, &mut self.inner);
        let Some(rule) = gate.rule_or_count() else {
            return ResponseFuture::new(Begun::Act(Action::Pass), inner, request, gate);
        };
        gate.inspect(&rule, Some(request.headers()));
        // A request whose head is not read stays in one piece: taking it apart and putting it
        // together again is a good part of what a decision costs.
        if !gate.reads_head(&rule, &request) {
            let begun = gate.begin(Ok(Take::new(rule, Key::default())), request.extensions());
            return ResponseFuture::new(begun, inner, request, gate);
        }
        let (mut head, body) = request.into_parts();
        let take = gate.read_head(rule, &mut head);
        let begun = gate.begin(take, &head.extensions);
        ResponseFuture::new(begun, inner, Request::from_parts(head, body), gate)
    }
}
