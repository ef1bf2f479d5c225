use std::future::ready;

use axum_core::response::Response;

use super::box_future::BoxFuture;
use super::degrade_callback::{DegradeCallback, Denied};
use super::error_callback::{ErrorCallback, Recovery};
use super::failed::{Failed, FailureKind};
use super::problem_document::{key_refused, quota_exceeded, reduced_capacity};

/// Answers with a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)). The
/// default of both callbacks.
///
/// | the request | the response |
/// |---|---|
/// | was denied | 429, with the names of the quotas that are used up |
/// | got no decision of the store | 503 |
/// | has no key | 400 or 500, depending on the [kind](crate::key::KeyErrorKind) of the error |
/// | was allowed, and its handler failed | none: the handler's error is returned |
#[derive(Debug, Clone, Copy, Default)]
pub struct Problem;

impl DegradeCallback for Problem {
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
        let response = quota_exceeded(&denied.rule, &denied.decision);
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
