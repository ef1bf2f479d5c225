use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::decision::Decisions;
use crate::error::StoreError;

/// The future of a store's answers: ready at once, or boxed.
#[must_use = "nothing is decided before it is polled"]
pub struct Taking<'a>(Inner<'a>);

type Answer = Result<Decisions, StoreError>;

enum Inner<'a> {
    Ready(Ready<Answer>),
    Later(Pin<Box<dyn Future<Output = Answer> + Send + 'a>>),
}

impl<'a> Taking<'a> {
    /// Answers at once, without an allocation.
    pub fn ready(answer: Result<Decisions, StoreError>) -> Self {
        Self(Inner::Ready(ready(answer)))
    }

    /// Answers when this future does. It must do nothing before it is first polled, as async blocks
    /// do.
    pub fn later(answer: impl Future<Output = Result<Decisions, StoreError>> + Send + 'a) -> Self {
        Self(Inner::Later(Box::pin(answer)))
    }
}

impl Future for Taking<'_> {
    type Output = Result<Decisions, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Ready(answer) => Pin::new(answer).poll(cx),
            Inner::Later(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Taking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "Taking::Ready",
            Inner::Later(_) => "Taking::Later",
        })
    }
}
