//! Answers in the [Connect protocol](https://connectrpc.com/docs/protocol): its clients read the code
//! of an error from a body of JSON. Without one they make `unavailable` of a 429, which retry
//! policies repeat.

use axum_core::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Uri};

use super::form::{Refusing, json};
use super::problem_document::push_json;

/// Whether a request with this head is a call of one message and one answer.
pub(super) fn is_unary(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    if method == Method::GET {
        let query = uri.query().unwrap_or_default();
        return query.split('&').any(|it| it == "connect=v1");
    }
    let version = headers.get("connect-protocol-version");
    method == Method::POST && version.is_some_and(|it| it == "1") && {
        let content_type = headers.get(CONTENT_TYPE).map(|it| it.as_bytes());
        let name = content_type.and_then(|it| it.split(|byte| *byte == b';').next());
        let name = name.map(<[u8]>::trim_ascii);
        let is = |known: &str| name.is_some_and(|it| it.eq_ignore_ascii_case(known.as_bytes()));
        is("application/json") || is("application/proto")
    }
}

pub(super) fn answer(refusing: &Refusing<'_>) -> Response {
    let (_, code) = refusing.code();
    let mut body = format!("{{\"code\":\"{code}\",\"message\":\"");
    push_json(&mut body, &refusing.message());
    body.push_str("\"}");
    json(refusing.status(), body)
}
