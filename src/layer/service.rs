use std::mem::replace;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::ResponseFuture;
use super::future::marked;
use super::settings::Settings;
use crate::callback::OnInnerError;
use crate::key::Key;
use crate::rule::Rule;
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

impl<S: Clone> RateLimit<S> {
    /// The instance that was polled ready; another one takes its place.
    ///
    /// A request that does not reach the handler at once must take it along: left behind unused, it
    /// would keep what it has reserved, such as a permit of a `ConcurrencyLimit`.
    fn take_ready(&mut self) -> S {
        let fresh = self.inner.clone();
        replace(&mut self.inner, fresh)
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
        let Some(rule) = self.settings.rule() else {
            return ResponseFuture::passing(self.inner.call(request));
        };
        let headers = self.settings.headers;
        if self.settings.reads_heads(&rule) {
            return self.call_by_head(rule, request);
        }
        // Where nobody looks at it, the request stays in one piece: taking it apart and putting it
        // together again is a good part of what a decision costs.
        match self.settings.answer(Take::new(rule, Key::default())) {
            Ok(mark) => {
                request.extensions_mut().insert(mark.decision.clone());
                ResponseFuture::calling(self.inner.call(request), Some(mark), None, headers)
            }
            Err(halt) => {
                let (head, body) = request.into_parts();
                let outcome = self.settings.settle(halt, head);
                ResponseFuture::deciding(outcome, self.take_ready(), body, None, headers)
            }
        }
    }
}

impl<S: Clone> RateLimit<S> {
    fn call_by_head<ReqBody>(
        &mut self,
        rule: Arc<Rule>,
        request: Request<ReqBody>,
    ) -> ResponseFuture<S, ReqBody>
    where
        S: Service<Request<ReqBody>>,
        S::Error: 'static,
    {
        let headers = self.settings.headers;
        let on_error = self.settings.on_error.clone();
        let errors =
            |head: &_, rule: &_| OnInnerError::of::<S::Error>(on_error.as_ref(), rule, head);
        let (head, body) = request.into_parts();
        let halt = match self.settings.decide(rule, &head) {
            Ok(None) => {
                let request = Request::from_parts(head, body);
                return ResponseFuture::passing(self.inner.call(request));
            }
            Ok(Some(mark)) => {
                let errors = errors(&head, &mark.rule);
                let future = self.inner.call(marked(head, body, Some(&mark)));
                return ResponseFuture::calling(future, Some(mark), errors, headers);
            }
            Err(halt) => halt,
        };
        let errors = halt.rule().and_then(|rule| errors(&head, rule));
        let outcome = self.settings.settle(halt, head);
        ResponseFuture::deciding(outcome, self.take_ready(), body, errors, headers)
    }
}
