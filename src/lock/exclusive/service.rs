use std::mem::replace;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::ExclusiveFuture;
use super::settings::Settings;
use crate::callback::OnInnerError;

/// The service that an [`ExclusiveLayer`](super::ExclusiveLayer) makes.
///
/// Its error type is the inner service's. Its responses have axum's body, whatever the inner service's body is.
#[derive(Debug, Clone)]
pub struct Exclusive<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> Exclusive<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
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
    type Future = ExclusiveFuture<S, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> ExclusiveFuture<S, ReqBody> {
        let (head, body) = request.into_parts();
        let Settings { on_error, rule, .. } = &*self.settings;
        let errors = OnInnerError::of::<S::Error>(on_error.as_ref(), rule, &head);
        let outcome = Arc::clone(&self.settings).decide(head);
        // The instance that was polled ready; another one takes its place.
        let fresh = self.inner.clone();
        let ready = replace(&mut self.inner, fresh);
        ExclusiveFuture::deciding(Box::pin(outcome), ready, body, errors)
    }
}
