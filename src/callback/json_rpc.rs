//! Answers of JSON-RPC 2.0. Python's client of MCP shows code, message and data of an error without
//! an `id`, and nothing of any other body.

use axum_core::response::Response;
use http::StatusCode;

use super::form::{AnswerReason, of_type};
use super::problem_document::{push_json, push_names, shows_never};

pub(super) fn answer(reason: &AnswerReason<'_>, retry_after: Option<u64>) -> Response {
    let code = match reason {
        AnswerReason::Mistake(StatusCode::BAD_REQUEST, _) => -32_600,
        AnswerReason::Mistake(..) => -32_603,
        _ => -32_000,
    };
    let mut body =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":{code},\"message\":\"");
    push_json(&mut body, &reason.message());
    body.push('"');
    if let AnswerReason::Denied(rule, decision) = reason {
        body.push_str(",\"data\":{\"quotas\":[");
        push_names(&mut body, rule, decision);
        body.push(']');
        if let Some(seconds) = retry_after {
            body.push_str(&format!(",\"retry_after_s\":{seconds}"));
        }
        if shows_never(rule, decision) {
            body.push_str(",\"never\":true");
        }
        body.push('}');
    }
    body.push_str("}}");
    of_type("application/json", reason.status(), body)
}
