//! Handlers of axum, and jobs without a request.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tidegate::key::Everyone;
use tidegate::layer::Refused;
use tidegate::{Limits, limited};
use tower::ServiceExt;

use crate::once;

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

#[tokio::test]
async fn handlers_stay_handlers() {
    let app = Router::new()
        .route("/export/{user}", get(export))
        .route("/report", post(report))
        .with_state(once());
    let status = async |request: axum::http::request::Builder| {
        let request = request.body(Body::from("abc")).expect("a request");
        let response = app.clone().oneshot(request).await;
        response.expect("an answer").status()
    };
    let ask = async |path| status(Request::get(path)).await;
    assert_eq!(ask("/export/alice").await, StatusCode::OK);
    assert_eq!(ask("/export/alice").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask("/export/bob").await, StatusCode::OK);
    let send = async || status(Request::post("/report")).await;
    assert_eq!(send().await, StatusCode::OK);
    assert_eq!(send().await, StatusCode::TOO_MANY_REQUESTS);
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
