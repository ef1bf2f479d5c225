//! Answers in the [Connect protocol](https://connectrpc.com/docs/protocol): its clients read the code
//! of an error from a body of JSON. Without one they make `unavailable` of a 429, which retry
//! policies repeat.

use axum_core::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::form::{AnswerReason, of_type};
use super::problem_document::push_json;

/// The content type of the answer to a request with this head, if it is a stream: in JSON where
/// the form of its messages is not known.
pub(super) fn stream(method: &Method, headers: &HeaderMap) -> Option<HeaderValue> {
    const STREAMS: &[u8] = b"application/connect+";
    let name = content_type(headers).filter(|_| method == Method::POST)?;
    let (name, form) = name.split_at_checked(STREAMS.len())?;
    let known = match form.eq_ignore_ascii_case(b"proto") {
        true => "application/connect+proto",
        false => "application/connect+json",
    };
    let is_stream = name.eq_ignore_ascii_case(STREAMS);
    is_stream.then(|| HeaderValue::from_static(known))
}

/// The content type without its parameters.
fn content_type(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(CONTENT_TYPE)?.as_bytes();
    Some(value.split(|byte| *byte == b';').next()?.trim_ascii())
}

/// A stream of one message, which ends it with the error. Its status is that of a success.
pub(super) fn end_of_stream(reason: &AnswerReason<'_>, content_type: &HeaderValue) -> Response {
    const END: u8 = 2;
    let message = format!("{{\"error\":{}}}", error(reason));
    let length = u32::try_from(message.len()).expect("a short text");
    let frame = [&[END], &length.to_be_bytes()[..], message.as_bytes()].concat();
    let mut response = Response::new(frame.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    response
}

/// Whether a request with this head is a call of one message and one answer.
pub(super) fn is_unary(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    if method == Method::GET {
        let query = uri.query().unwrap_or_default();
        return query.split('&').any(|it| it == "connect=v1");
    }
    let version = headers.get("connect-protocol-version");
    method == Method::POST && version.is_some_and(|it| it == "1") && {
        let name = content_type(headers);
        let is = |known: &str| name.is_some_and(|it| it.eq_ignore_ascii_case(known.as_bytes()));
        is("application/json") || is("application/proto")
    }
}

pub(super) fn answer(reason: &AnswerReason<'_>) -> Response {
    of_type("application/json", reason.status(), error(reason))
}

fn error(reason: &AnswerReason<'_>) -> String {
    let (_, code) = reason.code();
    let mut error = format!("{{\"code\":\"{code}\",\"message\":\"");
    push_json(&mut error, &reason.message());
    error.push_str("\"}");
    error
}
