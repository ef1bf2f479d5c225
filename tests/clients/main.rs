//! The app that `tests/clients.sh` asks with real clients: a route for each form of a denial, and for
//! each recipe of docs/clients.md. A path is `/route/case`, and each case has a limit of its own. It
//! prints its address, and ends with its standard input.

mod recipes;

use std::collections::HashMap;
use std::io::{Read, stdin};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get};
use axum::{Json, Router};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tidegate::callback::Form;
use tidegate::key::KeyError;
use tidegate::rule::Policy;
use tidegate::{Denied, Headers, Key, MemoryStore, Quota, RateLimitLayer, Rule};
use tokio::net::TcpListener;

use recipes::{buckets, events, models, page, token};

#[tokio::main]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    tokio::select! {
        ended = axum::serve(listener, app()) => ended.expect("connections"),
        _ = tokio::task::spawn_blocking(|| stdin().read_to_end(&mut Vec::new())) => {}
    }
}

fn app() -> Router {
    let json = || answers("application/json", "{}");
    let proto = || answers("application/proto", "");
    let token_endpoint = || answers("application/json", r#"{"access_token":"1"}"#);
    let stream = || answers("text/event-stream", "retry: 10\ndata: 1\n\n");
    let github = |seconds| layer(seconds, 1).headers(Headers::GitHub);
    let none = Arc::new(MemoryStore::with_max_keys(0));
    let forbidden = async |_| StatusCode::FORBIDDEN;
    let unavailable = async |_| StatusCode::SERVICE_UNAVAILABLE;
    let routes = [
        ("plain", json().layer(layer(3_600, 1))),
        ("plain-2s", json().layer(layer(2, 1))),
        ("plain-30d", json().layer(layer(2_592_000, 1))),
        ("list", json().layer(list(["calls-2s", "calls-5s"]))),
        ("words", json().layer(list(["short", "long"]))),
        ("grpc-2s", any(grpc).layer(layer(2, 1))),
        ("grpc-1h", any(grpc).layer(layer(3_600, 1))),
        ("grpc-down", any(grpc).layer(layer(3_600, 1).store(none))),
        ("connect", proto().layer(layer(3_600, 1))),
        ("mcp", any(mcp).layer(layer(3_600, 2).form(Form::JsonRpc))),
        ("github", json().layer(github(16))),
        ("github-403", json().layer(github(2).degrade_fn(forbidden))),
        ("page", answers("text/html", include_str!("page.html"))),
        ("streams", stream().layer(layer(2, 1))),
        ("events", stream().layer(layer(2, 1).degrade_fn(events))),
        ("models", json().layer(layer(3_600, 1).degrade_fn(models))),
        ("models-2s", json().layer(layer(2, 1).degrade_fn(models))),
        ("errors", json().layer(layer(3_600, 1).degrade_fn(errors))),
        ("buckets", json().layer(layer(2, 1).degrade_fn(buckets))),
        ("links", json().layer(layer(3_600, 1).degrade_fn(page))),
        ("modules", answers("text/javascript", "").layer(layer(2, 1))),
        ("blank", answers("text/html", "")),
        (
            "token",
            token_endpoint().layer(layer(3_600, 1).degrade_fn(token)),
        ),
        ("token-plain", token_endpoint().layer(layer(3_600, 1))),
        ("samples", json().layer(layer(2, 1).degrade_fn(unavailable))),
    ];
    let app = Router::new().route("/seen/{case}", get(seen));
    routes.into_iter().fold(app, |app, (name, route)| {
        app.route(&format!("/{name}/{{*case}}"), route)
    })
}

/// In memory; each case has a key of its own, which is asked for once a request.
fn layer(seconds: u64, max: u64) -> RateLimitLayer {
    RateLimitLayer::new("calls", Duration::from_secs(seconds), max).key_by(case)
}

/// Two quotas of a rule, of which the second denies for longer.
fn list([first, second]: [&str; 2]) -> RateLimitLayer {
    let quota = |seconds| Quota::new(Duration::from_secs(seconds), 1).expect("a quota");
    let policies = [Policy::new(first, quota(2)), Policy::new(second, quota(5))];
    let rule = Rule::with_policies("calls", policies).expect("a rule");
    RateLimitLayer::from_rule(rule).key_by(case)
}

static SEEN: LazyLock<Mutex<HashMap<String, Vec<Instant>>>> = LazyLock::new(Mutex::default);

fn case(head: &Parts) -> Result<Key, KeyError> {
    let case = head.uri.path().split('/').nth(2);
    let case = case.ok_or_else(|| KeyError::malformed("no case"))?;
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.entry(case.into()).or_default().push(Instant::now());
    Ok(Key::from(case))
}

/// When the requests of a case came, in seconds since its first one.
async fn seen(Path(case): Path<String>) -> Json<Vec<f64>> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let at = seen.get(&case).map_or(&[][..], |it| it);
    Json(at.iter().map(|it| (*it - at[0]).as_secs_f64()).collect())
}

fn answers(content_type: &'static str, body: &'static str) -> MethodRouter {
    any(move |_: Bytes| async move { ([("content-type", content_type)], body) })
}

/// An empty message.
async fn grpc(_: Bytes) -> Response {
    let status = HeaderName::from_static("grpc-status");
    let trailers = HeaderMap::from_iter([(status, HeaderValue::from_static("0"))]);
    let body = Full::from(&[0; 5][..]).with_trailers(async { Some(Ok(trailers)) });
    ([("content-type", "application/grpc")], Body::new(body)).into_response()
}

/// A server of MCP.
async fn mcp(body: Bytes) -> Response {
    let call: Value = serde_json::from_slice(&body).unwrap_or_default();
    if call["method"] != "initialize" {
        return StatusCode::ACCEPTED.into_response();
    }
    let version = &call["params"]["protocolVersion"];
    let server = json!({ "name": "clients", "version": "0" });
    let result = json!({ "protocolVersion": version, "capabilities": {}, "serverInfo": server });
    Json(json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })).into_response()
}

async fn errors(_: Denied) -> Response {
    let error = json!({ "error": { "message": "too many requests" } });
    (StatusCode::TOO_MANY_REQUESTS, Json(error)).into_response()
}
