use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::decision::Decisions;
use crate::error::StoreError;

/// The future of a store's answer: ready at once, or boxed.
#[must_use = "nothing happens before it is polled"]
pub struct Answering<'a, T>(Inner<'a, T>);

/// The future of a store's decisions.
pub type Taking<'a> = Answering<'a, Decisions>;

/// The future of the units that a store gave back.
pub type Refunding<'a> = Answering<'a, u64>;

enum Inner<'a, T> {
    Ready(Ready<Result<T, StoreError>>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>),
}

impl<'a, T> Answering<'a, T> {
    /// Answers at once, without an allocation.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self(Inner::Ready(ready(answer)))
    }

    /// Answers when this future does. It must do nothing before it is first polled, as async blocks
    /// do.
    pub fn later(answer: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Self {
        Self(Inner::Later(Box::pin(answer)))
    }

    /// The answer that is there already, or the future that has to be waited for.
    pub(super) fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            Inner::Ready(answer) => Ok(answer.into_inner()),
            later @ Inner::Later(_) => Err(Self(later)),
        }
    }
}

impl<T> Future for Answering<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Ready(answer) => Pin::new(answer).poll(cx),
            Inner::Later(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for Answering<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "Answering::Ready",
            Inner::Later(_) => "Answering::Later",
        })
    }
}
