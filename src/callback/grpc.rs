//! gRPC: which requests speak it, and answers in its form.

use axum_core::body::Body;
use axum_core::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::grpc_details::encoded;
use super::problem_document::shown_policies;
use crate::decision::Decision;
use crate::key::percent_decoded;
use crate::rule::Rule;

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Whether the request with this head is a gRPC request: a POST with the content type
/// `application/grpc`, `application/grpc-web` or `application/grpc-web-text`, alone or followed by
/// `+` or `;`, in upper or lower case.
///
/// For custom callbacks, which answer a gRPC request as they answer any other:
///
/// ```
/// use std::time::Duration;
/// use axum::response::IntoResponse;
/// use tidegate::callback::{Problem, is_grpc};
/// use tidegate::{DegradeCallback, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5)
///     .degrade_fn(async |denied| match is_grpc(&denied.head) {
///         true => Problem.degrade(denied).await,
///         false => "come back later".into_response(),
///     });
/// # let _ = layer;
/// ```
#[must_use]
pub fn is_grpc(head: &Parts) -> bool {
    content_type(&head.method, &head.headers).is_some()
}

/// The content type of a gRPC request, which its answer repeats. `None` for any other request.
pub(crate) fn content_type<'a>(method: &Method, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
    if method != Method::POST {
        return None;
    }
    let value = headers.get(CONTENT_TYPE)?;
    names_grpc(value.as_bytes()).then_some(value)
}

fn names_grpc(content_type: &[u8]) -> bool {
    const NAMES: &str = "application/grpc application/grpc-web application/grpc-web-text";
    NAMES.split(' ').any(|name| {
        let split = content_type.split_at_checked(name.len());
        split.is_some_and(|(start, rest)| {
            let has_ended = matches!(rest.first(), None | Some(b'+' | b';'));
            has_ended && start.eq_ignore_ascii_case(name.as_bytes())
        })
    })
}

/// The status codes that this crate answers with, as the field `grpc-status` contains them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code(&'static str);

impl Code {
    pub(super) const INVALID_ARGUMENT: Self = Self("3");
    pub(super) const RESOURCE_EXHAUSTED: Self = Self("8");
    pub(super) const INTERNAL: Self = Self("13");
    pub(super) const UNAVAILABLE: Self = Self("14");
}

/// An answer of trailers only: the status is in the head, and there is no body.
pub(super) fn trailers_only(content_type: &HeaderValue, code: Code, message: &[u8]) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, HeaderValue::from_static(code.0));
    let message = HeaderValue::from_bytes(message).expect("printable characters");
    headers.insert(GRPC_MESSAGE, message);
    response
}

/// Adds the details of a denial to the head of its answer, if that is a gRPC status 8 without any:
/// when to come again, as `Retry-After` says, and which quotas denied it.
pub(crate) fn add_details(rule: &Rule, decision: &Decision, headers: &mut HeaderMap) {
    let is_denial = headers
        .get(GRPC_STATUS)
        .is_some_and(|it| it == Code::RESOURCE_EXHAUSTED.0);
    if !is_denial || headers.contains_key(GRPC_DETAILS) {
        return;
    }
    let retry_after = headers.get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let message = headers
        .get(GRPC_MESSAGE)
        .map_or(&[][..], HeaderValue::as_bytes);
    let quotas = shown_policies(rule, decision).map(|policy| policy.name());
    if let Some(details) = encoded(&percent_decoded(message), retry_after, quotas) {
        let details = HeaderValue::try_from(details).expect("base64");
        headers.insert(GRPC_DETAILS, details);
    }
}

/// Adds a text to a message. Whatever is not printable ASCII is percent-encoded, and so is `%`.
pub(super) fn push_encoded(message: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => message.push(byte),
            byte => message.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_types_of_grpc() {
        for grpc in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;charset=utf-8",
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
            "Application/GRPC+Proto",
        ] {
            assert!(names_grpc(grpc.as_bytes()), "{grpc}");
        }
        for other in [
            "",
            "application/grp",
            "application/grpcfoo",
            "application/grpc-",
            "application/grpc-webby",
            "application/grpc-web-",
            "application/grpc-web-texts",
            "application/grpc ",
            " application/grpc",
            "application/json",
            "application/json; application/grpc",
        ] {
            assert!(!names_grpc(other.as_bytes()), "{other}");
        }
    }
}
