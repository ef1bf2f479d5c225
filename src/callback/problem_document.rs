//! Problem documents (RFC 9457) of the types that the draft of the `RateLimit` fields registers.

use std::any::Any;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};

use axum_core::body::Body;
use axum_core::response::Response;
use futures_util::FutureExt;
use http::{HeaderValue, StatusCode, header};

use super::degrade_callback::{BoxFuture, DegradeCallback, Denied};
use super::error_callback::{ErrorCallback, Failed, FailureKind, Recovery};
use crate::decision::Decision;
use crate::error::KeyErrorKind;
use crate::rule::Rule;
use crate::trace;

/// A 429 with the names of the quotas that denied the take.
pub(crate) fn quota_exceeded(rule: &Rule, decision: &Decision) -> Response {
    const START: &str = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
        \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
        \"status\":429,\"violated-policies\":[";
    const END: &str = "]}";

    let names = decision.denied_by(rule.policies());
    let names = names.map(|policy| policy.name().len() + "\"\",".len());
    // Exactly as long as needed: such a string becomes a body without being copied.
    let length = START.len() + names.sum::<usize>().saturating_sub(1) + END.len();
    let mut body = String::with_capacity(length);
    body.push_str(START);
    for (at, policy) in decision.denied_by(rule.policies()).enumerate() {
        body.push_str(if at == 0 { "\"" } else { ",\"" });
        // A policy's name has no quotes, backslashes or control characters.
        body.push_str(policy.name());
        body.push('"');
    }
    body.push_str(END);
    document(StatusCode::TOO_MANY_REQUESTS, body)
}

/// A 503, for a request without a decision.
pub(crate) fn reduced_capacity() -> Response {
    let body = "{\"type\":\"https://iana.org/assignments/http-problem-types\
        #temporary-reduced-capacity\",\
        \"title\":\"Request cannot be satisfied due to temporary server capacity constraints\",\
        \"status\":503}";
    document(StatusCode::SERVICE_UNAVAILABLE, body)
}

/// A 400 or 500 for a request without a key, depending on whose mistake that is. It does not tell
/// the client what the key is made of.
pub(crate) fn key_refused(kind: KeyErrorKind) -> Response {
    match kind {
        KeyErrorKind::Client => {
            let body = "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400}";
            document(StatusCode::BAD_REQUEST, body)
        }
        KeyErrorKind::Server => internal_error(),
    }
}

/// A 500 that does not tell the client what went wrong. The log does.
pub(super) fn internal_error() -> Response {
    let body = "{\"type\":\"about:blank\",\"title\":\"Internal Server Error\",\"status\":500}";
    document(StatusCode::INTERNAL_SERVER_ERROR, body)
}

fn document(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

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

// Panics of user code are caught, logged and answered with a 500.

/// A panic that was caught and logged.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs user code, and catches and logs its panic. The code borrows nothing of this crate mutably,
/// so a panic leaves nothing half changed.
pub(crate) fn caught<T>(who: &str, path: &str, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| logged(who, path, &*panic))
}

/// Awaits user code, and catches and logs its panic, both when it is called and when it is polled.
pub(crate) async fn guarded<T, Fut: Future<Output = T>>(
    who: &str,
    path: &str,
    run: impl FnOnce() -> Fut,
) -> Result<T, Panicked> {
    let guarded = AssertUnwindSafe(async { run().await }).catch_unwind();
    guarded.await.map_err(|panic| logged(who, path, &*panic))
}

fn logged(who: &str, path: &str, panic: &(dyn Any + Send)) -> Panicked {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("no message");
    trace::event!(error: path, who, message, "a panic was answered with a 500");
    Panicked
}

impl From<Panicked> for Response {
    fn from(_: Panicked) -> Self {
        internal_error()
    }
}
