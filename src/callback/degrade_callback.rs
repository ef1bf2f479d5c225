use std::pin::Pin;
use std::sync::Arc;

use axum_core::response::{IntoResponse, Response};
use http::request::Parts;

use crate::decision::Decision;
use crate::key::Key;
use crate::rule::Rule;
use crate::take::Take;

/// Answers a request that was denied, instead of the handler.
///
/// Asynchronous closures are callbacks, too; the types of one are inferred by
/// [`degrade_fn`](crate::RateLimitLayer::degrade_fn). An `Arc` of a callback may serve many routes.
/// The layer adds the `RateLimit` fields and `Retry-After` to the response, whatever its status is,
/// and `Cache-Control: no-store`, so that no cache gives it to another client. What the callback has
/// set of the latter two stays. A panic is answered with a 500.
///
/// ```
/// use std::time::Duration;
/// use tidegate::RateLimitLayer;
///
/// let layer = RateLimitLayer::new("export", Duration::from_secs(60), 1)
///     .degrade_fn(async |denied| {
///         let wait = denied.decision.retry_after().unwrap_or_default();
///         format!("the report is being made, come back in {wait:?}")
///     });
/// # let _ = layer;
/// ```
///
/// An `async` closure cannot use what it has captured. A closure clones that, and returns an `async
/// move` block:
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{DegradeCallback, Denied};
///
/// fn instead(report: Arc<str>) -> impl DegradeCallback {
///     move |denied: Denied| {
///         let report = Arc::clone(&report);
///         async move { format!("{report} (denied by {:?})", denied.rule.path()) }
///     }
/// }
/// # let _ = instead;
/// ```
pub trait DegradeCallback: Send + Sync + 'static {
    /// The response to a denied request.
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response>;
}

/// A request that was denied. Its body is never read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Denied {
    /// The rule that denied it.
    pub rule: Arc<Rule>,
    /// The key of the request.
    pub key: Key,
    /// The units that the request would have consumed.
    pub cost: u64,
    /// The denial: what remains of each quota, and when to come back.
    pub decision: Decision,
    /// The request without its body.
    pub head: Parts,
}

impl Denied {
    pub(crate) fn new(take: Take, decision: Decision, head: Parts) -> Self {
        Self {
            rule: Arc::clone(take.rule()),
            cost: take.cost(),
            key: take.into_key(),
            decision,
            head,
        }
    }
}

impl<F, Fut> DegradeCallback for F
where
    F: Fn(Denied) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResponse> + Send + 'static,
{
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
        let answer = self(denied);
        Box::pin(async move { answer.await.into_response() })
    }
}

impl<T: DegradeCallback + ?Sized> DegradeCallback for Arc<T> {
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
        T::degrade(self, denied)
    }
}

/// A boxed future, as callbacks return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
