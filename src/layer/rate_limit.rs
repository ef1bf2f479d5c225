use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower_service::Service;

use super::action::Action;
use super::decide::{Begun, Verdict, Waiting};
use super::outage::Outage;
use super::response_future::ResponseFuture;
use super::settings::Settings;
use crate::store::{LateCharge, Take};

/// The service that a [`RateLimitLayer`](super::RateLimitLayer) makes.
///
/// Its error type is the inner service's. Its responses have axum's body, whatever the inner
/// service's body is.
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
/// let limited: RateLimit<_> = RateLimitLayer::new("getId", Duration::from_secs(10), 5).layer(handler);
/// # let _ = limited;
/// ```
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

    fn call(&mut self, request: Request<ReqBody>) -> ResponseFuture<S, ReqBody> {
        let settings = &self.settings;
        let Some(rule) = settings.rule() else {
            settings.count_unmatched();
            return ResponseFuture::unlimited(&mut self.inner, request);
        };
        settings.inspect(&rule, Some(request.headers()));
        let (take, request) = settings.take_for(rule, request);
        let action = match take {
            Ok(take) if settings.let_through(&take) => Action::Pass,
            Ok(mut take) => {
                let store = settings.decider.store();
                if let Some(failure) = Outage::known(request.extensions(), store) {
                    take.set_failure(Some(failure));
                }
                settings.limit(take)
            }
            Err(action) => *action,
        };
        ResponseFuture::new(action, &mut self.inner, request, &settings.responder)
    }
}

impl Settings {
    /// Asks the store about a request, and says what becomes of it.
    fn limit(self: &Arc<Self>, take: Take) -> Action {
        if take.rule().is_shadow() {
            let rule = Arc::clone(take.rule());
            return match self.responder.outcome.apply_to(&rule) {
                false => {
                    self.decider.take_in_shadow(take, None);
                    Action::Pass
                }
                true => {
                    let charge = LateCharge::new(&self.responder.outcome.queue);
                    self.decider.take_in_shadow(take, Some(Arc::clone(&charge)));
                    Action::Admit(self.responder.admit_in_shadow(rule, charge))
                }
            };
        }
        match self.decider.take_first(take) {
            Begun::Judged(judged) => self.act(judged),
            Begun::Asked(asked, answer) => {
                let settings = Arc::clone(self);
                Action::Ask(Box::pin(async move {
                    settings.act(settings.decider.judge_later(asked, answer).await)
                }))
            }
        }
    }

    /// What becomes of a request that was decided, or may wait.
    fn act(self: &Arc<Self>, judged: ControlFlow<Verdict, Waiting>) -> Action {
        match judged {
            Break(verdict) => self.responder.act(verdict),
            Continue(waiting) => {
                let settings = Arc::clone(self);
                Action::Wait(Box::pin(async move {
                    let is_let_through = |take: &Take| settings.let_through(take);
                    let verdict = settings.decider.wait(waiting, is_let_through).await;
                    verdict.map_or(Action::Pass, |verdict| settings.responder.act(verdict))
                }))
            }
        }
    }
}
