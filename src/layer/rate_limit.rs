use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::gate::Gate;
use super::response_future::ResponseFuture;

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
        let (begun, request) = self.gate.begin(request);
        ResponseFuture::new(begun, &mut self.inner, request, &self.gate)
    }
}
