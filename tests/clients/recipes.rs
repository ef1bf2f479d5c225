//! Callbacks as docs/clients.md and docs/cookbook.md have them: `tests/layer/recipes.rs` compares.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderValue, StatusCode};
use tidegate::callback::Problem;
use tidegate::{DegradeCallback, Denied};

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) async fn events(denied: Denied) -> Response {
    let wait = denied.decision.retry_after().unwrap_or(MINUTE).min(MINUTE);
    let accepts = denied.head.headers.get("accept");
    if accepts.is_none_or(|it| it != "text/event-stream") {
        return Problem.degrade(denied).await;
    }
    let retry = format!("retry: {}\n\n", wait.as_millis() + 1);
    ([("content-type", "text/event-stream")], retry).into_response()
}

pub(crate) async fn models(denied: Denied) -> Response {
    let (kind, retry) = match denied.decision.retry_after() {
        Some(wait) if wait <= MINUTE => ("requests", "true"),
        _ => ("insufficient_quota", "false"),
    };
    let error = format!(
        r#"{{"error":{{"message":"rate limited","type":"{kind}","param":null,
        "code":"rate_limit_exceeded"}}}}"#
    );
    let json = ("content-type", "application/json");
    let fields = [json, ("x-should-retry", retry)];
    (StatusCode::TOO_MANY_REQUESTS, fields, error).into_response()
}

pub(crate) async fn buckets(denied: Denied) -> Response {
    let wait = denied.decision.retry_after().unwrap_or(MINUTE);
    let field = ("x-amz-retry-after", (wait.as_millis() + 1).to_string());
    let error = "<Error><Code>SlowDown</Code></Error>";
    (StatusCode::SERVICE_UNAVAILABLE, [field], error).into_response()
}

#[rustfmt::skip]
pub(crate) async fn page(denied: Denied) -> Response {
    let text = |name| denied.head.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or("");
    let is_person = text("sec-fetch-mode") == "navigate" || text("accept").contains("text/html");
    let path = denied.head.uri.path().replace('&', "&amp;").replace('<', "&lt;");
    let mut answer = Problem.degrade(denied).await;
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept, sec-fetch-mode"));
    if is_person {
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        *answer.body_mut() = format!("<!doctype html><p>Too many requests for {path}").into();
    }
    answer
}

pub(crate) async fn token(_: Denied) -> Response {
    let error = r#"{"error":"slow_down","error_description":"too many requests"}"#;
    let json = [("content-type", "application/json")];
    (StatusCode::TOO_MANY_REQUESTS, json, error).into_response()
}
