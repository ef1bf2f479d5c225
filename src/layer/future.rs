use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::Headers;
use super::decide::{Mark, Outcome};
use crate::callback::{BoxFuture, OnInnerError};

pin_project! {
    /// The response future of [`RateLimit`](super::RateLimit).
    ///
    /// Dropping it before the store has decided may or may not charge the request: it depends on
    /// whether the question was sent. Dropping it later changes nothing any more.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, S::Future, S::Error, B>,
        headers: Headers,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, E, B> {
        /// The store, or an error callback, is at work.
        Deciding {
            outcome: BoxFuture<'static, Outcome>,
            waiting: Option<(S, B)>,
            errors: Option<Box<OnInnerError>>,
        },
        /// A callback is at work in place of the handler, which is not held any more.
        Degrading {
            response: BoxFuture<'static, Response<Body>>,
        },
        /// The handler is at work.
        Calling {
            #[pin]
            future: F,
            mark: Option<Mark>,
            errors: Option<Box<OnInnerError>>,
        },
        /// The handler has failed and an error callback is at work.
        Recovering {
            recovered: BoxFuture<'static, Result<Response<Body>, E>>,
            mark: Option<Mark>,
        },
        Answering {
            response: Option<Response<Body>>,
        },
    }
}

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    fn new(state: State<S, S::Future, S::Error, B>, headers: Headers) -> Self {
        Self { state, headers }
    }

    /// Nothing is limited.
    pub(super) fn passing(future: S::Future) -> Self {
        Self::calling(future, None, None, Headers::None)
    }

    pub(super) fn calling(
        future: S::Future,
        mark: Option<Mark>,
        errors: Option<Box<OnInnerError>>,
        headers: Headers,
    ) -> Self {
        let state = State::Calling {
            future,
            mark,
            errors,
        };
        Self::new(state, headers)
    }

    /// The outcome may be known by now, or not.
    pub(super) fn deciding(
        outcome: Outcome,
        inner: S,
        body: B,
        errors: Option<Box<OnInnerError>>,
        headers: Headers,
    ) -> Self {
        Self::new(State::after(outcome, inner, body, errors), headers)
    }
}

impl<S: Service<Request<B>>, B> State<S, S::Future, S::Error, B> {
    fn after(outcome: Outcome, mut inner: S, body: B, errors: Option<Box<OnInnerError>>) -> Self {
        match outcome {
            Outcome::Proceed(head, mark) => Self::Calling {
                future: inner.call(marked(head, body, mark.as_ref())),
                mark,
                errors,
            },
            Outcome::Answer(response) => Self::Answering {
                response: Some(response),
            },
            Outcome::Answering(response) => Self::Degrading { response },
            Outcome::Undecided(outcome) => Self::Deciding {
                outcome,
                waiting: Some((inner, body)),
                errors,
            },
        }
    }
}

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    S::Error: Send + Sync + 'static,
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Deciding {
                    outcome,
                    waiting,
                    errors,
                } => {
                    let outcome = ready!(outcome.as_mut().poll(cx));
                    let (inner, body) = waiting.take().expect("polled after completion");
                    State::after(outcome, inner, body, errors.take())
                }
                StateProj::Degrading { response } => {
                    return Poll::Ready(Ok(ready!(response.as_mut().poll(cx))));
                }
                StateProj::Calling {
                    future,
                    mark,
                    errors,
                } => match (ready!(future.poll(cx)), errors.take()) {
                    (Err(error), Some(errors)) => State::Recovering {
                        recovered: Box::pin(errors.recover(error)),
                        mark: mark.take(),
                    },
                    (result, _) => {
                        let result = result.map(|response| {
                            show(response.map(Body::new), mark.take(), *this.headers)
                        });
                        return Poll::Ready(result);
                    }
                },
                StateProj::Recovering { recovered, mark } => {
                    let recovered = ready!(recovered.as_mut().poll(cx));
                    let show = |response| show(response, mark.take(), *this.headers);
                    return Poll::Ready(recovered.map(show));
                }
                StateProj::Answering { response } => {
                    let response = response.take().expect("polled after completion");
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

/// The request, with the decision for the handler to see.
pub(super) fn marked<B>(mut head: Parts, body: B, mark: Option<&Mark>) -> Request<B> {
    if let Some(mark) = mark {
        head.extensions.insert(mark.decision.clone());
    }
    Request::from_parts(head, body)
}

/// The response, with the decision for the client to see.
fn show(mut response: Response<Body>, mark: Option<Mark>, headers: Headers) -> Response<Body> {
    if let Some(mark) = mark {
        headers.write(&mark.rule, mark.decision, &mut response);
    }
    response
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Deciding { .. } => "ResponseFuture::Deciding",
            State::Degrading { .. } => "ResponseFuture::Degrading",
            State::Calling { .. } => "ResponseFuture::Calling",
            State::Recovering { .. } => "ResponseFuture::Recovering",
            State::Answering { .. } => "ResponseFuture::Answering",
        })
    }
}
