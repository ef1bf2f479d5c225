use std::any::TypeId;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::action::{Action, Admission, Begun, marked};
use super::decisions::{AskedTake, Deciding};
use super::gate::Gate;
use super::outer_layers::WaitingSince;
use super::upload::Upload;
use crate::callback::{AnswerForm, BoxFuture, internal_error};
use crate::charge::Answers;
use crate::warning::{Warning, WarningKind};

pin_project! {
    /// The response future of [`RateLimit`](crate::layer::RateLimit).
    ///
    /// Dropping it before a store has decided may or may not charge the request: it depends on
    /// whether the question was sent. Dropping it later changes nothing any more, but
    /// [`settle-dropped`](crate::Rule::with_settle_dropped) may. A permit is given back in any case.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use axum::body::Body;
    /// use http::{Request, Response, StatusCode};
    /// use tidegate::RateLimitLayer;
    /// use tidegate::layer::ResponseFuture;
    /// use tower::{Layer, Service, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let handler = service_fn(async |_: Request<Body>| {
    ///     Ok::<_, std::io::Error>(Response::new(Body::from("1")))
    /// });
    /// let mut limited = RateLimitLayer::new("getId", Duration::from_secs(10), 0).layer(handler);
    /// let answer: ResponseFuture<_, _> = limited.call(Request::get("/").body(Body::empty())?);
    /// assert_eq!(answer.await?.status(), StatusCode::TOO_MANY_REQUESTS);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: ResponseState<S, B, S::Future, S::Error>,
    }
}

pin_project! {
    #[project = StateProj]
    enum ResponseState<S, B, F, E> {
        /// The store answers.
        Asking {
            #[pin]
            asked: AskedTake,
            kept: Option<KeptRequest<S, B>>,
        },
        /// The request waits, or the error callback says how to go on.
        Choosing {
            action: BoxFuture<'static, Action>,
            kept: Option<KeptRequest<S, B>>,
        },
        /// A request that goes on after a while: its instance of the inner service gets ready.
        Readying {
            admitted: Option<Admission>,
            kept: Option<KeptRequest<S, B>>,
        },
        /// The inner service answers. `None`: no rule applied, and nothing was charged.
        Calling {
            #[pin]
            response: F,
            admitted: Option<Admission>,
        },
        /// The degrade callback answers, or the error callback for an inner service that has
        /// failed, or the rest of an upload is read.
        Answering {
            response: BoxFuture<'static, Result<Response<Body>, E>>,
        },
        Responding {
            response: Option<Response<Body>>,
        },
    }
}

/// A request without a response, and the instance of the inner service that it would go to.
struct KeptRequest<S, B> {
    service: S,
    is_ready: bool,
    request: Request<B>,
    gate: Arc<Gate>,
    /// When the request arrived; `None` if it was just now.
    arrived: Option<Instant>,
}

const DONE: &str = "polled after completion";

impl<S: Service<Request<B>>, B> ResponseFuture<S, B>
where
    S: Clone,
    S::Error: 'static,
    B: HttpBody + Send + 'static,
{
    /// Goes on with the request. The service has been polled ready.
    // Inlined, it would be copied into the future.
    #[inline(never)]
    #[allow(clippy::result_large_err, reason = "a box would cost an allocation")]
    pub(super) fn new(
        begun: Begun,
        service: &mut S,
        request: Request<B>,
        gate: &Arc<Gate>,
    ) -> Self {
        let admitted = match begun {
            Err(Action::Pass) => None,
            Err(Action::Admit(admitted)) => Some(admitted),
            begun => return Self::kept(begun, service, request, gate),
        };
        let state = ResponseState::call(service, request, admitted);
        Self { state }
    }

    /// Keeps the request. No ready instance is left behind unused: it would keep what it has
    /// reserved, such as a permit of a `ConcurrencyLimit`.
    fn kept(begun: Begun, service: &mut S, request: Request<B>, gate: &Arc<Gate>) -> Self {
        let fresh = service.clone();
        let kept = KeptRequest {
            service: std::mem::replace(service, fresh),
            is_ready: true,
            request,
            gate: Arc::clone(gate),
            arrived: None,
        };
        let state = ResponseState::after(begun, kept);
        Self { state }
    }
}

impl<S, B> ResponseState<S, B, S::Future, S::Error>
where
    S: Service<Request<B>>,
    S::Error: 'static,
    B: HttpBody + Send + 'static,
{
    fn after(begun: Begun, mut kept: KeptRequest<S, B>) -> Self
    where
        S: Clone,
    {
        let action = match begun {
            Ok(Deciding::Asked(asked)) => {
                kept.arrived = kept.arrived.or(Some(asked.since()));
                let kept = Some(kept);
                return Self::Asking { asked, kept };
            }
            Ok(Deciding::Waiting(waiting)) => {
                let gate = Arc::clone(&kept.gate);
                let action = gate.act_after_waiting(waiting, head(&kept.request));
                return Self::choosing(action, kept);
            }
            Ok(Deciding::Done(decided)) => kept.gate.act(decided),
            Err(action) => action,
        };
        let admitted = match action {
            Action::Pass => None,
            Action::Admit(admitted) => Some(admitted),
            Action::Refuse(refusal) => {
                return kept.respond(|gate, form| gate.answer(refusal, form));
            }
            Action::Panicked(panicked) => {
                return kept.respond(|_, form| marked(internal_error(&panicked, form)));
            }
            Action::Respond(response) => return kept.respond(|_, _| response),
            Action::Degrade(callback, take, decision) => {
                let head = head(&kept.request);
                let upload = Upload::find(kept.request, &kept.gate);
                let gate = kept.gate;
                let response = gate.degrade(callback, take, decision, head, kept.arrived);
                let response = async { Ok(Upload::read_on(upload, response.await).await) };
                let response = Box::pin(response);
                return Self::Answering { response };
            }
            Action::Recover(callback, decided) => {
                let gate = Arc::clone(&kept.gate);
                let head = head(&kept.request);
                let action = gate.recover(callback, decided, head, kept.arrived);
                return Self::choosing(action, kept);
            }
        };
        if kept.is_ready {
            Self::call(&mut kept.service, kept.request, admitted)
        } else {
            Self::Readying {
                admitted,
                kept: Some(kept),
            }
        }
    }

    fn choosing(
        action: impl Future<Output = Action> + Send + 'static,
        mut kept: KeptRequest<S, B>,
    ) -> Self
    where
        S: Clone,
    {
        kept.arrived = kept.arrived.or_else(|| Some(Instant::now()));
        // What the ready instance has reserved is given back.
        (kept.service, kept.is_ready) = (kept.service.clone(), false);
        let kept = Some(kept);
        let action = Box::pin(action);
        Self::Choosing { action, kept }
    }

    fn call(service: &mut S, mut request: Request<B>, mut admitted: Option<Admission>) -> Self {
        if let Some(admitted) = &mut admitted {
            admitted.is_connect = request.method() == Method::CONNECT;
            let rule = &admitted.rule;
            let without = admitted.gate.options.without_extensions.request;
            if let Some(answer) = &admitted.answer
                && (!without || rule.settles() || rule.counts_failures())
                && Answers::add_inner(request.extensions_mut(), answer)
            {
                let warning = Warning::new(WarningKind::ChargedTwice).about(rule.path());
                admitted.gate.decider.warnings.add(warning);
            }
            if let Some(since) = admitted.waiting_since {
                request.extensions_mut().insert(WaitingSince(since));
            }
            if let Some(outage) = admitted.outage.take() {
                outage.mark(request.extensions_mut());
            }
            // Axum's services never fail.
            let may_fail = TypeId::of::<S::Error>() != TypeId::of::<Infallible>();
            let may_recover = may_fail && admitted.shadow.is_none();
            if may_recover && admitted.gate.options.on_error.is_some() {
                admitted.head = Some(Box::new(head(&request)));
            }
        }
        Self::Calling {
            response: service.call(request),
            admitted,
        }
    }
}

impl<S: Service<Request<B>>, B: HttpBody + Send + 'static> KeptRequest<S, B> {
    /// Answers with the response that this makes in the form of the request.
    fn respond(
        self,
        make: impl FnOnce(&Gate, &AnswerForm) -> Response<Body>,
    ) -> ResponseState<S, B, S::Future, S::Error> {
        let (gate, of) = (&self.gate, &self.request);
        let (method, headers) = (of.method(), of.headers());
        let form = gate.form(method, of.uri(), headers, of.extensions(), self.arrived);
        let response = make(gate, &form);
        let upload = Upload::find(self.request, gate);
        if upload.is_none() {
            let response = Some(response);
            return ResponseState::Responding { response };
        }
        let response = Box::pin(async { Ok(Upload::read_on(upload, response).await) });
        ResponseState::Answering { response }
    }
}

/// A copy of the request without its body.
fn head<B>(request: &Request<B>) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.version = request.version();
    head.headers = request.headers().clone();
    head.extensions = request.extensions().clone();
    head
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    S::Error: Send + Sync + 'static,
    ReqBody: HttpBody + Send + 'static,
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Asking { asked, kept } => {
                    let gate = &kept.as_ref().expect(DONE).gate;
                    let deciding = ready!(asked.poll(&gate.decider, cx));
                    ResponseState::after(Ok(deciding), kept.take().expect(DONE))
                }
                StateProj::Choosing { action, kept } => {
                    let action = ready!(action.as_mut().poll(cx));
                    ResponseState::after(Err(action), kept.take().expect(DONE))
                }
                StateProj::Readying { admitted, kept } => {
                    let service = &mut kept.as_mut().expect(DONE).service;
                    ready!(service.poll_ready(cx))?;
                    let mut kept = kept.take().expect(DONE);
                    ResponseState::call(&mut kept.service, kept.request, admitted.take())
                }
                StateProj::Calling { response, admitted } => {
                    let result = ready!(response.poll(cx));
                    let Some(admitted) = admitted.take() else {
                        return Poll::Ready(result.map(|response| response.map(Body::new)));
                    };
                    match result {
                        Ok(response) => return Poll::Ready(Ok(admitted.finish(response))),
                        Err(error) => ResponseState::Answering {
                            response: admitted.recover(error)?,
                        },
                    }
                }
                StateProj::Answering { response } => return response.as_mut().poll(cx),
                StateProj::Responding { response } => {
                    return Poll::Ready(Ok(response.take().expect(DONE)));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
