use std::sync::Arc;

use axum_core::response::{IntoResponse, Response};

use super::box_future::BoxFuture;
use super::failed::Failed;

/// Answers a request for which no decision could be made, or whose handler failed.
///
/// Asynchronous closures are callbacks, too; they return a [`Recovery`] or a response. An `Arc` of
/// a callback may serve many routes. An [`ErrorCallbackChain`](crate::ErrorCallbackChain) has a
/// callback for each type of error. A panic is answered with a 500.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Failed, RateLimitLayer, Recovery};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5)
///     .on_error(async |failed: Failed| {
///         eprintln!("unlimited for now: {failed}");
///         Recovery::Proceed
///     });
/// # let _ = layer;
/// ```
pub trait ErrorCallback: Send + Sync + 'static {
    /// What happens to the request.
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery>;
}

/// What happens to a request after a failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum Recovery {
    /// The handler runs as if the request had been allowed. For an error of the handler, which has
    /// run already, and for a request without a key, this is the same as [`Recovery::Propagate`]:
    /// otherwise a client could avoid its limit by omitting what its key is made of.
    Proceed,
    /// The client gets this response.
    Respond(Response),
    /// The callback does not handle the error. An error of the handler is returned unchanged. After
    /// an error of the store, the decision of a [`Fallback`](crate::store::Fallback) applies, or
    /// the rule's [`OnError`](crate::rule::OnError). A request without a key is answered with a 400
    /// or 500.
    Propagate,
}

impl<R: IntoResponse> From<R> for Recovery {
    fn from(response: R) -> Self {
        Self::Respond(response.into_response())
    }
}

impl<F, Fut> ErrorCallback for F
where
    F: Fn(Failed) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Into<Recovery>> + Send + 'static,
{
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery> {
        let recovery = self(failed);
        Box::pin(async move { recovery.await.into() })
    }
}

impl<T: ErrorCallback + ?Sized> ErrorCallback for Arc<T> {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery> {
        T::recover(self, failed)
    }
}
