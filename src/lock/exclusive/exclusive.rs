use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::exclusive_settings::ExclusiveSettings;
use crate::layer::{Action, ResponseFuture};

/// The service that an [`ExclusiveLayer`](super::ExclusiveLayer) makes.
///
/// Its error type is the inner service's. Its responses have axum's body, whatever the inner
/// service's body is.
#[derive(Debug, Clone)]
pub struct Exclusive<S> {
    inner: S,
    settings: Arc<ExclusiveSettings>,
}

impl<S> Exclusive<S> {
    pub(super) fn new(inner: S, settings: Arc<ExclusiveSettings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Exclusive<S>
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

    fn call(&mut self, request: Request<ReqBody>) -> ResponseFuture<S, ReqBody> {
        let (settings, responder) = (&self.settings, &self.settings.responder);
        let (head, body) = request.into_parts();
        let key = responder.extract(&settings.rule, &head);
        let request = Request::from_parts(head, body);
        let action = match key {
            Ok(key) => Action::Wait(Box::pin(Arc::clone(settings).decide(key))),
            Err(action) => *action,
        };
        ResponseFuture::new(action, &mut self.inner, request, responder)
    }
}
