//! Problem documents (RFC 9457) of the types that the draft of the `RateLimit` fields registers.

use axum_core::body::Body;
use axum_core::response::Response;
use http::{HeaderValue, StatusCode, header};

use crate::decision::Decision;
use crate::error::KeyErrorKind;
use crate::rule::Rule;

/// A 429 with the names of the quotas that denied the take.
pub(crate) fn quota_exceeded(rule: &Rule, decision: &Decision) -> Response {
    const START: &str = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
        \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
        \"status\":429,\"violated-policies\":[";
    const END: &str = "]}";

    let mut body = START.to_owned();
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
