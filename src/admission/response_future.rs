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
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::outcome::Recovered;
use super::{Admitted, AnswerHandler, AskedTake, Outcome, Question};
use crate::callback::BoxFuture;
use crate::decision::Decision;
use crate::store::{Charges, StoreFuture};

pin_project! {
    /// The response future of [`RateLimit`](crate::layer::RateLimit) and of `Exclusive`.
    ///
    /// Dropping it before a store has decided may or may not charge the request: it depends on
    /// whether the question was sent. Dropping it later changes nothing any more. A permit is given
    /// back in any case.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future, S::Error>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, F, E> {
        /// The store answers.
        Asking {
            #[pin]
            answer: StoreFuture<Decision>,
            question: Option<(Arc<dyn AnswerHandler>, AskedTake)>,
            held: Option<Held<S, B>>,
        },
        /// The request waits, or the error callback says how to go on.
        Waiting {
            outcome: BoxFuture<'static, Outcome>,
            held: Option<Held<S, B>>,
        },
        /// An admitted request has waited: its instance of the inner service gets ready.
        Readying {
            admitted: Option<Admitted>,
            held: Option<Held<S, B>>,
        },
        /// The inner service answers.
        Calling {
            #[pin]
            response: F,
            admitted: Option<Admitted>,
        },
        /// The error callback answers for the inner service, which has failed.
        Recovering {
            response: Recovered<E>,
            admitted: Option<Admitted>,
        },
        /// The degrade callback answers.
        Degrading {
            response: BoxFuture<'static, Response<Body>>,
        },
        Responding {
            response: Option<Response<Body>>,
        },
    }
}

/// A request without a verdict, and the instance of the inner service that it would go to.
struct Held<S, B> {
    service: S,
    is_ready: bool,
    request: Request<B>,
}

const DONE: &str = "polled after completion";

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    /// Nothing limits this request.
    pub(crate) fn unlimited(response: S::Future) -> Self {
        let admitted = None;
        let state = State::Calling { response, admitted };
        Self { state }
    }

    /// Acts on the first outcome. The service has been polled ready.
    pub(crate) fn new(outcome: Outcome, service: &mut S, request: Request<B>) -> Self
    where
        S: Clone,
        S::Error: 'static,
    {
        if let Outcome::Admit(admitted) = outcome {
            let state = State::call(service, request, admitted);
            return Self { state };
        }
        // The future takes the ready instance along: one that is left behind unused keeps what it
        // has reserved, such as a permit of a `ConcurrencyLimit`.
        let fresh = service.clone();
        let held = Held {
            service: std::mem::replace(service, fresh),
            is_ready: true,
            request,
        };
        let state = State::after(outcome, held);
        Self { state }
    }
}

impl<S, B> State<S, B, S::Future, S::Error>
where
    S: Service<Request<B>>,
    S::Error: 'static,
{
    fn after(outcome: Outcome, mut held: Held<S, B>) -> Self
    where
        S: Clone,
    {
        match outcome {
            Outcome::Admit(admitted) if held.is_ready => {
                Self::call(&mut held.service, held.request, admitted)
            }
            Outcome::Admit(admitted) => Self::Readying {
                admitted: Some(admitted),
                held: Some(held),
            },
            Outcome::Ask(Question {
                handler,
                asked,
                answer,
            }) => Self::Asking {
                answer,
                question: Some((handler, asked)),
                held: Some(held),
            },
            Outcome::Wait(outcome) => Self::Waiting {
                outcome,
                held: Some(held.unready()),
            },
            Outcome::Fail(callback) => Self::Waiting {
                outcome: callback(head(&held.request)),
                held: Some(held.unready()),
            },
            Outcome::Deny(callback) => Self::Degrading {
                response: callback(held.request.into_parts().0),
            },
            Outcome::Respond(response) => Self::Responding {
                response: Some(response),
            },
        }
    }

    fn call(service: &mut S, mut request: Request<B>, mut admitted: Admitted) -> Self {
        if let Some(decision) = &admitted.decision {
            request.extensions_mut().insert(decision.clone());
        }
        if let Some(charge) = &admitted.charge {
            Charges::add_inner(charge, request.extensions_mut());
        }
        // Axum's services never fail.
        let may_fail = TypeId::of::<S::Error>() != TypeId::of::<Infallible>();
        if may_fail && admitted.on_error.is_some() {
            admitted.head = Some(Box::new(head(&request)));
        }
        Self::Calling {
            response: service.call(request),
            admitted: Some(admitted),
        }
    }
}

impl<S: Clone, B> Held<S, B> {
    /// Gives back what the ready instance has reserved.
    fn unready(mut self) -> Self {
        self.service = self.service.clone();
        self.is_ready = false;
        self
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
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Asking {
                    answer,
                    question,
                    held,
                } => {
                    let span = &question.as_ref().expect(DONE).1.span;
                    let answer = ready!(span.in_scope(|| answer.poll(cx)));
                    let (handler, asked) = question.take().expect(DONE);
                    State::after(handler.answered(asked, answer), held.take().expect(DONE))
                }
                StateProj::Waiting { outcome, held } => {
                    let outcome = ready!(outcome.as_mut().poll(cx));
                    State::after(outcome, held.take().expect(DONE))
                }
                StateProj::Readying { admitted, held } => {
                    let service = &mut held.as_mut().expect(DONE).service;
                    ready!(service.poll_ready(cx))?;
                    let mut held = held.take().expect(DONE);
                    let admitted = admitted.take().expect(DONE);
                    State::call(&mut held.service, held.request, admitted)
                }
                StateProj::Calling { response, admitted } => {
                    let result = ready!(response.poll(cx));
                    let Some(mut admitted) = admitted.take() else {
                        return Poll::Ready(result.map(|response| response.map(Body::new)));
                    };
                    match result {
                        Ok(response) => return Poll::Ready(Ok(admitted.finish(response))),
                        Err(error) => State::Recovering {
                            response: admitted.recover(error)?,
                            admitted: Some(admitted),
                        },
                    }
                }
                StateProj::Recovering { response, admitted } => {
                    let response = ready!(response.as_mut().poll(cx))?;
                    return Poll::Ready(Ok(admitted.take().expect(DONE).finish(response)));
                }
                StateProj::Degrading { response } => return response.as_mut().poll(cx).map(Ok),
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
