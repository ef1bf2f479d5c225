//! What a check refuses is answered as a layer of the same limits answers.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::get as on_get;
use http::{Response, StatusCode};
use tidegate::{Key, Limits, Quota, Recovery, Rule, Rules};
use tower::ServiceExt;

use crate::{WINDOW, no_store, text};

const TEAPOT: StatusCode = StatusCode::IM_A_TEAPOT;

type Change = fn(Limits) -> Limits;

fn limits(change: Change, max: u64) -> Limits {
    let rule = Rule::new("p", [Quota::new(WINDOW, max).expect("valid")]).expect("valid");
    change(Limits::new(Rules::from_iter([rule])))
}

fn request(is_grpc: bool) -> http::Request<Body> {
    let request = http::Request::post("/");
    let request = match is_grpc {
        true => request.header("content-type", "application/grpc"),
        false => request,
    };
    request.body(Body::empty()).expect("valid")
}

/// Status, fields and body of the response.
async fn seen(response: Response<Body>) -> String {
    let fields = response.headers().iter();
    let mut seen: Vec<_> = fields
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    seen.sort();
    format!("{} {seen:?} {}", response.status(), text(response).await)
}

#[tokio::test]
async fn a_check_answers_as_a_layer() {
    let changes: [Change; 5] = [
        |limits| limits,
        |limits| limits.degrade_fn(async |denied| format!("denied: {}", denied.head.method)),
        |limits| limits.degrade_fn(async |_| -> Response<Body> { panic!("a mistake") }),
        |limits| limits.on_error_fn(async |failed| format!("failed: {}", failed.head.uri)),
        |limits| limits.on_error_fn(async |_| Recovery::Propagate),
    ];
    for (case, change) in changes.into_iter().enumerate() {
        for (is_grpc, has_store) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut limits = limits(change, if has_store { 0 } else { 5 });
            if !has_store {
                limits = limits.store(no_store());
            }
            let layered = on_get(|| async { TEAPOT }).post(|| async { TEAPOT });
            let layered = Router::new().route("/", layered.layer(limits.layer("p")));
            let checking = limits.clone();
            let handler = move |request: Request| async move {
                let (head, _) = request.into_parts();
                match checking.check("p", Key::default()).await {
                    Ok(_) => TEAPOT.into_response(),
                    Err(refused) => refused.answer(head).await,
                }
            };
            let checked = Router::new().route("/", on_get(handler.clone()).post(handler));
            let [layered, checked] = [layered, checked].map(|app| app.oneshot(request(is_grpc)));
            let layered = seen(layered.await.expect("axum does not fail")).await;
            let checked = seen(checked.await.expect("axum does not fail")).await;
            assert_eq!(checked, layered, "{case}, {is_grpc}, {has_store}");
            assert!(!checked.contains("418"));
        }
    }
}

/// It cannot be admitted any more.
#[tokio::test]
async fn a_callback_that_proceeds_gets_the_default() {
    let limits = limits(|limits| limits.on_error_fn(async |_| Recovery::Proceed), 5);
    let limits = limits.store(no_store());
    let refused = limits
        .check("p", Key::default())
        .await
        .expect_err("no decision");
    let (head, _) = request(false).into_parts();
    assert_eq!(
        refused.answer(head).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
}
