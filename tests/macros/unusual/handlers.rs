//! Handlers of axum with all kinds of extractors, and jobs without a request.

use axum::body::{Body, Bytes};
use axum::extract::{FromRef, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tidegate::key::Everyone;
use tidegate::layer::{CallError, Refused};
use tidegate::{Denied, Failed, Limits, limited};
use tower::ServiceExt;

use crate::once;

#[derive(Clone)]
struct App {
    limits: Limits,
}

impl FromRef<App> for Limits {
    fn from_ref(app: &App) -> Self {
        app.limits.clone()
    }
}

#[limited("export", key = user, limits = limits)]
async fn by_path(
    State(limits): State<Limits>,
    Path((user, format)): Path<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Result<Json<Value>, Refused> {
    let fields = headers.len();
    Ok(Json(
        json!({ "user": user, "format": format, "fields": fields, "body": body }),
    ))
}

#[limited(
    "report",
    key = app.0.limits.snapshot().rules.len(),
    limits = app.limits,
    degrade = async move |denied: Denied| (StatusCode::ACCEPTED, denied.rule.path().to_owned()).into_response(),
    on_error = async |failed: Failed| failed.to_string().into_response(),
)]
async fn by_state(method: Method, app: State<App>, body: Bytes) -> Response {
    format!("{method} {}", body.len()).into_response()
}

#[limited("export", key = user, limits = limits)]
async fn export(State(limits): State<Limits>, Path(user): Path<String>) -> impl IntoResponse {
    user
}

#[limited("report", key = Everyone, limits = limits)]
async fn report(State(limits): State<Limits>, request: Request) -> Result<String, Failure> {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 100).await;
    Ok(format!("{path} {}", body.map_err(|_| Failure::Body)?.len()))
}

#[derive(Debug)]
enum Failure {
    Refused(Refused),
    Body,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(refused) => refused.into_response(),
            Self::Body => StatusCode::BAD_REQUEST.into_response(),
        }
    }
}

async fn by_hand(
    State(limits): State<Limits>,
    request: Request,
) -> Result<String, CallError<StatusCode>> {
    let call = limits.call("export").key("by hand");
    let length = call
        .try_run(async || {
            let body = axum::body::to_bytes(request.into_body(), 100).await;
            body.map(|it| it.len()).map_err(|_| StatusCode::BAD_REQUEST)
        })
        .await?;
    Ok(length.to_string())
}

async fn ask(app: &Router, method: &str, path: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::from("[1]")).expect("a request");
    let response = app.clone().oneshot(request).await.expect("infallible");
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 10_000).await;
    let body = String::from_utf8(body.expect("a body").to_vec());
    (status, body.expect("text"))
}

#[tokio::test]
async fn extractors_and_responses() {
    let app = Router::new()
        .route("/export/{user}/{format}", post(by_path))
        .route("/report", get(by_state).post(by_state))
        .route("/by-hand", post(by_hand))
        .with_state(App { limits: once() });
    let other = Router::new()
        .route("/export/{user}", get(export))
        .route("/report", post(report))
        .with_state(once());
    for (method, path, expected) in [
        ("GET", "/export/alice", (200, Some("alice"))),
        ("GET", "/export/alice", (429, None)),
        ("GET", "/export/bob", (200, Some("bob"))),
        ("POST", "/report", (200, Some("/report 3"))),
        ("POST", "/report", (429, None)),
    ] {
        let (status, body) = ask(&other, method, path).await;
        assert_eq!(status, expected.0, "{path}: {body}");
        assert!(expected.1.is_none_or(|it| it == body), "{path}: {body}");
    }
    let (status, body) = ask(&app, "POST", "/export/alice/pdf").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"body\":[1]"), "{body}");
    let (status, body) = ask(&app, "POST", "/export/alice/txt").await;
    assert_eq!(status, 429, "the same user: {body}");
    assert!(body.contains("quota-exceeded"));
    assert_eq!(ask(&app, "POST", "/export/bob/txt").await.0, 200);
    assert_eq!(ask(&app, "GET", "/report").await, (200, "GET 3".into()));
    assert_eq!(ask(&app, "POST", "/by-hand").await, (200, "3".into()));
    assert_eq!(ask(&app, "POST", "/by-hand").await.0, 429);
}

#[tokio::test]
async fn a_job_is_spawned() {
    #[limited("report", key = Everyone, limits = limits)]
    async fn nightly(limits: Limits) -> Result<u32, Failure> {
        tokio::task::yield_now().await;
        Ok(7)
    }
    let limits = once();
    let first = tokio::spawn(nightly(limits.clone()))
        .await
        .expect("no panic");
    assert_eq!(first.ok(), Some(7));
    let second = tokio::spawn(nightly(limits)).await.expect("no panic");
    assert!(matches!(second, Err(Failure::Refused(_))));
}
