use std::future::ready;

use axum_core::response::Response;

use super::{
    BoxFuture, DegradeCallback, Denied, ErrorCallback, Failed, Recovery, quota_exceeded,
    reduced_capacity,
};

/// Answers with a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): the default
/// of both callbacks.
///
/// A denial is a 429 that names the quotas that are used up; a failed decision is a 503. An error of
/// the handler goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Problem;

impl DegradeCallback for Problem {
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
        let response = quota_exceeded(&denied.rule, &denied.decision, denied.cost);
        Box::pin(ready(response))
    }
}

impl ErrorCallback for Problem {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery> {
        Box::pin(ready(match failed.is_inner() {
            true => Recovery::Propagate,
            false => Recovery::Respond(reduced_capacity()),
        }))
    }
}

/// Lets a request for which no decision could be made go on to the handler, unlimited.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{FailOpen, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).on_error(FailOpen);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FailOpen;

impl ErrorCallback for FailOpen {
    fn recover(&self, _: Failed) -> BoxFuture<'_, Recovery> {
        Box::pin(ready(Recovery::Proceed))
    }
}
