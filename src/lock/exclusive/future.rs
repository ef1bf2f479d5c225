use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum_core::BoxError;
use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::Keeping;
use super::decide::Outcome;
use crate::callback::{BoxFuture, OnInnerError};
use crate::lock::slots::Permit;

pin_project! {
    /// The response future of [`Exclusive`](super::Exclusive).
    ///
    /// Dropping it gives the permit back, whatever it has come to.
    #[must_use = "futures do nothing unless polled"]
    pub struct ExclusiveFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, S::Future, S::Error, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, E, B> {
        /// There is no permit yet.
        Deciding {
            outcome: BoxFuture<'static, Outcome>,
            waiting: Option<(S, B)>,
            errors: Option<Box<OnInnerError>>,
        },
        /// A callback is at work in place of the handler, which is not held any more.
        Answering {
            response: BoxFuture<'static, Response<Body>>,
        },
        /// The handler is at work.
        Calling {
            #[pin]
            future: F,
            permit: Option<Permit>,
            errors: Option<Box<OnInnerError>>,
        },
        /// The handler has failed, without a permit by now, and an error callback is at work.
        Recovering {
            recovered: BoxFuture<'static, Result<Response<Body>, E>>,
        },
    }
}

impl<S: Service<Request<B>>, B> ExclusiveFuture<S, B> {
    pub(super) fn deciding(
        outcome: BoxFuture<'static, Outcome>,
        inner: S,
        body: B,
        errors: Option<Box<OnInnerError>>,
    ) -> Self {
        let waiting = Some((inner, body));
        let state = State::Deciding {
            outcome,
            waiting,
            errors,
        };
        Self { state }
    }
}

impl<S: Service<Request<B>>, B> State<S, S::Future, S::Error, B> {
    fn after(outcome: Outcome, mut inner: S, body: B, errors: Option<Box<OnInnerError>>) -> Self {
        match outcome {
            Outcome::Proceed(head, permit) => Self::Calling {
                future: inner.call(Request::from_parts(*head, body)),
                permit,
                errors,
            },
            Outcome::Answering(response) => Self::Answering { response },
        }
    }
}

impl<S, ReqBody, ResBody> Future for ExclusiveFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    S::Error: Send + Sync + 'static,
    ResBody: HttpBody<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Deciding {
                    outcome,
                    waiting,
                    errors,
                } => {
                    let outcome = ready!(outcome.as_mut().poll(cx));
                    let (inner, body) = waiting.take().expect("polled after completion");
                    State::after(outcome, inner, body, errors.take())
                }
                StateProj::Answering { response } => {
                    return Poll::Ready(Ok(ready!(response.as_mut().poll(cx))));
                }
                StateProj::Calling {
                    future,
                    permit,
                    errors,
                } => {
                    let result = ready!(future.poll(cx));
                    let permit = permit.take();
                    match (result, errors.take()) {
                        (Ok(response), _) => {
                            let keeping = |body| Body::new(Keeping::new(body, permit));
                            return Poll::Ready(Ok(response.map(keeping)));
                        }
                        (Err(error), None) => return Poll::Ready(Err(error)),
                        (Err(error), Some(errors)) => State::Recovering {
                            recovered: Box::pin(errors.recover(error)),
                        },
                    }
                }
                StateProj::Recovering { recovered } => return recovered.as_mut().poll(cx),
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ExclusiveFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Deciding { .. } => "ExclusiveFuture::Deciding",
            State::Answering { .. } => "ExclusiveFuture::Answering",
            State::Calling { .. } => "ExclusiveFuture::Calling",
            State::Recovering { .. } => "ExclusiveFuture::Recovering",
        })
    }
}
