use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::StoreError;

/// The future of a store's answer.
///
/// It is ready immediately, as with memory, or pending. It borrows nothing, so that a service can keep it
/// beside the request that it is about.
#[must_use = "a question whose future is dropped may never be asked"]
pub struct StoreFuture<T>(Inner<T>);

enum Inner<T> {
    Ready(Option<Result<T, StoreError>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> StoreFuture<T> {
    /// An answer that is there immediately, without an allocation.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self(Inner::Ready(Some(answer)))
    }

    /// Answers when this future does.
    pub fn boxed(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self(Inner::Boxed(Box::pin(answer)))
    }

    /// The answer, if it is there; the future otherwise.
    ///
    /// # Errors
    ///
    /// The future itself, which has to be polled.
    pub fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            Inner::Ready(Some(answer)) => Ok(answer),
            pending => Err(Self(pending)),
        }
    }
}

impl<T> Unpin for StoreFuture<T> {}

impl<T> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Ready(answer) => Poll::Ready(answer.take().expect("polled after completion")),
            Inner::Boxed(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "StoreFuture::Ready",
            _ => "StoreFuture::Pending",
        })
    }
}
