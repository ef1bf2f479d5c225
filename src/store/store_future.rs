use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

#[cfg(feature = "redis")]
use crate::connection::AnswerFuture;
use crate::error::StoreError;

#[cfg(not(feature = "redis"))]
type AnswerFuture<T> = std::future::Pending<Result<T, StoreError>>;

pin_project! {
    /// The future of a store's answer.
    ///
    /// It is ready immediately, as with memory, or pending. It borrows nothing, so that a service
    /// can keep it beside the request that it is about.
    #[must_use = "a question whose future is dropped may never be asked"]
    pub struct StoreFuture<T> {
        #[pin]
        state: State<T>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<T> {
        Ready { answer: Option<Result<T, StoreError>> },
        Boxed { answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>> },
        // The common case of a Redis store needs no box.
        Redis {
            #[pin]
            answer: AnswerFuture<T>,
        },
    }
}

impl<T> StoreFuture<T> {
    /// An answer that is there immediately, without an allocation.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        let answer = Some(answer);
        Self {
            state: State::Ready { answer },
        }
    }

    /// Answers when this future does.
    pub fn boxed(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let answer = Box::pin(answer);
        Self {
            state: State::Boxed { answer },
        }
    }

    /// The answer to one question that travels to Redis.
    #[cfg(feature = "redis")]
    pub(super) fn redis(answer: AnswerFuture<T>) -> Self {
        Self {
            state: State::Redis { answer },
        }
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    ///
    /// The future itself, if the answer has to be waited for.
    #[allow(
        clippy::result_large_err,
        reason = "it is no error, and a box would cost an allocation"
    )]
    pub fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.state {
            State::Ready {
                answer: Some(answer),
            } => Ok(answer),
            state => Err(Self { state }),
        }
    }
}

impl<T> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Ready { answer } => {
                Poll::Ready(answer.take().expect("polled after completion"))
            }
            StateProj::Boxed { answer } => answer.as_mut().poll(cx),
            StateProj::Redis { answer } => answer.poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Ready { .. } => "StoreFuture::Ready",
            _ => "StoreFuture::Pending",
        })
    }
}
