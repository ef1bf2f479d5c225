use std::future::ready;

use axum_core::response::Response;

use super::{
    BoxFuture, DegradeCallback, Denied, ErrorCallback, Failed, FailureKind, Recovery, key_refused,
    quota_exceeded, reduced_capacity,
};

/// Answers with a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): the default
/// of both callbacks.
///
/// A denial is a 429 that names the quotas that are used up; a failed store is a 503; a request
/// without a key is a 400 or 500, by the [kind](crate::key::KeyErrorKind) of the error. An error of the
/// handler goes on.
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
        Box::pin(ready(match failed.kind() {
            FailureKind::Inner => Recovery::Propagate,
            FailureKind::Key(kind) => Recovery::Respond(key_refused(kind)),
            FailureKind::Store(_) => Recovery::Respond(reduced_capacity()),
        }))
    }
}

/// Lets a request go on to the handler, unlimited, if the store could not decide.
///
/// A request without a key does not go on: it is answered with a 400 or 500.
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
