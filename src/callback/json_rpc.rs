//! Answers of JSON-RPC 2.0. Python's client of MCP shows code, message and data of an error without
//! an `id`, and nothing of any other body.

use axum_core::response::Response;
use http::StatusCode;

use super::form::{Refusing, json};
use super::problem_document::{is_told_never, push_json, push_names};

pub(super) fn answer(refusing: &Refusing<'_>) -> Response {
    let code = match refusing {
        Refusing::Mistake(StatusCode::BAD_REQUEST, _) => -32_600,
        Refusing::Mistake(..) => -32_603,
        Refusing::Denied(..) | Refusing::NoDecision => -32_000,
    };
    let mut body =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":{code},\"message\":\"");
    push_json(&mut body, &refusing.message());
    body.push('"');
    if let Refusing::Denied(rule, decision, retry_after) = refusing {
        body.push_str(",\"data\":{\"quotas\":[");
        push_names(&mut body, rule, decision);
        body.push(']');
        if let Some(seconds) = retry_after {
            body.push_str(&format!(",\"retry_after_s\":{seconds}"));
        }
        if is_told_never(rule, decision) {
            body.push_str(",\"never\":true");
        }
        body.push('}');
    }
    body.push_str("}}");
    json(refusing.status(), body)
}
