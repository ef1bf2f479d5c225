//! gRPC: which requests speak it, and answers in its form.

use std::time::Duration;

use axum_core::body::Body;
use axum_core::response::Response;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::Instant;

use super::form::AnswerReason;
use super::grpc_details::encoded;
use super::problem_document::shown_policies;
use crate::decision::Decision;
use crate::key::percent_decoded;
use crate::rule::{GRPC_STATUS, Rule};

const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

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

/// The content type of the answer to a gRPC request: that of the request, if clients are known to
/// send it, or else the one without a suffix. `None` for any other request.
pub(crate) fn content_type(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let value = headers.get(CONTENT_TYPE)?;
    known(value.as_bytes()).filter(|_| method == Method::POST)
}

fn known(content_type: &[u8]) -> Option<&'static str> {
    const KNOWN: &str = "application/grpc application/grpc+proto application/grpc+json \
        application/grpc-web application/grpc-web+proto application/grpc-web+json \
        application/grpc-web-text application/grpc-web-text+proto application/grpc-web-text+json";
    let name = content_type.split(|it| *it == b';').next()?;
    let base = name.split(|it| *it == b'+').next()?;
    let is = |it: &str, name: &[u8]| name.eq_ignore_ascii_case(it.as_bytes());
    // From behind: those with a suffix come first.
    KNOWN.rsplit(' ').find(|it| is(it, name) || is(it, base))
}

/// A gRPC request, as its answer has to know it.
#[derive(Clone)]
pub(crate) struct GrpcCall {
    /// The content type of the answer.
    content_type: &'static str,
    /// When the client gives up.
    gives_up: Instant,
}

impl GrpcCall {
    /// The call with this head, which arrived then; `None` if it is no gRPC request.
    pub(crate) fn detect(
        method: &Method,
        headers: &HeaderMap,
        arrived: impl FnOnce() -> Instant,
    ) -> Option<Self> {
        let content_type = content_type(method, headers)?;
        let timeout = headers.get(GRPC_TIMEOUT);
        let timeout = timeout.and_then(|it| timeout_of(it.to_str().ok()?));
        // Whatever is longer than a pushback can be is alike.
        let timeout = timeout.unwrap_or(USUAL_TIMEOUT).min(MAX_PUSHBACK * 2);
        Some(Self {
            content_type,
            gives_up: arrived() + timeout,
        })
    }

    /// A call about whose request nothing is known.
    pub(crate) fn unknown() -> Self {
        Self {
            content_type: "application/grpc",
            gives_up: Instant::now() + USUAL_TIMEOUT,
        }
    }
}

/// A client that does not say how long it waits may give up after this long.
const USUAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timers of Node.js overflow above: grpc-js would call again at once.
const MAX_PUSHBACK: Duration = Duration::from_millis(i32::MAX as u64);

/// The value of `grpc-timeout`: at most eight digits and a unit.
fn timeout_of(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_number)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Tells a client that has a retry policy for the status of this answer when to call again, unless
/// the answer says so: after this wait, if that is before the client gives up. Otherwise a denied
/// call is not made again, to a partner neither: the client would wait in vain, and not see the
/// status. Clients know no
/// other field: without it they call again within a second.
pub(crate) fn add_pushback(
    wait: Option<Duration>,
    call: Option<&GrpcCall>,
    is_behind: bool,
    to: &mut HeaderMap,
) {
    /// For the way to the client and back.
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let is_denial = match to.get(GRPC_STATUS) {
        Some(code) if code == RESOURCE_EXHAUSTED => true,
        Some(code) if code == UNAVAILABLE => is_behind,
        _ => return,
    };
    let left = call.map_or(USUAL_TIMEOUT, |it| {
        it.gives_up.duration_since(Instant::now())
    });
    let wait = wait.filter(|wait| *wait <= MAX_PUSHBACK && *wait + ROUND_TRIP <= left);
    let pushback = match wait {
        Some(wait) => HeaderValue::from(wait.as_micros().div_ceil(1_000).max(1) as u64),
        None if is_denial => HeaderValue::from_static("-1"),
        None => return,
    };
    to.entry(GRPC_PUSHBACK).or_insert(pushback);
}

/// The status codes that answers are recognised by, as the field `grpc-status` contains them.
pub(super) const RESOURCE_EXHAUSTED: &str = "8";
pub(super) const UNAVAILABLE: &str = "14";

/// An answer of trailers only: the status is in the head, and there is no body.
pub(super) fn answer(reason: &AnswerReason<'_>, call: &GrpcCall) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(call.content_type));
    let (code, _) = reason.code();
    headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
    let message = HeaderValue::try_from(percent_encoded(&reason.message()));
    headers.insert(GRPC_MESSAGE, message.expect("printable characters"));
    response
}

/// Adds the details of a denial to the head of its answer, if that is a gRPC status 8 without any:
/// in how many whole seconds to come again, and which quotas denied it.
pub(crate) fn add_details(
    rule: &Rule,
    decision: &Decision,
    retry_after: Option<u64>,
    headers: &mut HeaderMap,
) {
    let status = headers.get(GRPC_STATUS);
    let is_denial = status.is_some_and(|it| it == RESOURCE_EXHAUSTED);
    if !is_denial || headers.contains_key(GRPC_DETAILS) {
        return;
    }
    let message = headers.get(GRPC_MESSAGE);
    let message = message.map_or(&[][..], HeaderValue::as_bytes);
    let quotas = shown_policies(rule, decision).map(|policy| policy.name());
    if let Some(details) = encoded(&percent_decoded(message), retry_after, quotas) {
        let details = HeaderValue::try_from(details).expect("base64");
        headers.insert(GRPC_DETAILS, details);
    }
}

/// Whatever is not printable ASCII is percent-encoded, and so is `%`.
fn percent_encoded(text: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => message.push(byte),
            byte => message.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_types_of_grpc() {
        for (grpc, answered) in [
            ("application/grpc", "application/grpc"),
            ("application/grpc+proto", "application/grpc+proto"),
            ("application/grpc+x", "application/grpc"),
            ("application/grpc+", "application/grpc"),
            ("application/grpc+proto+x", "application/grpc"),
            ("application/grpc;charset=utf-8", "application/grpc"),
            ("application/grpc+json;a+b", "application/grpc+json"),
            ("application/grpc-web", "application/grpc-web"),
            ("application/grpc-web+proto", "application/grpc-web+proto"),
            ("application/grpc-web-text", "application/grpc-web-text"),
            (
                "application/grpc-web-text+thrift",
                "application/grpc-web-text",
            ),
            ("Application/GRPC+Proto", "application/grpc+proto"),
        ] {
            assert_eq!(known(grpc.as_bytes()), Some(answered), "{grpc}");
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
            assert_eq!(known(other.as_bytes()), None, "{other}");
        }
    }
}
