//! What a check refuses is answered as a layer of the same limits answers.

use axum::extract::Request;

use crate::*;

const TEAPOT: StatusCode = StatusCode::IM_A_TEAPOT;

type Change = fn(Limits) -> Limits;

fn limits(max: u64, store: Arc<dyn Store>) -> Limits {
    Limits::new([kit::per_minute("p", max)]).store(store)
}

#[tokio::test(start_paused = true)]
async fn a_check_answers_as_a_layer() {
    let changes: [Change; 5] = [
        |limits| limits,
        |limits| limits.degrade_fn(async |denied| format!("denied: {}", denied.head.method)),
        |limits| limits.degrade_fn(async |_| -> Response<Body> { panic!("a mistake") }),
        |limits| limits.on_error_fn(async |failed| format!("failed: {}", failed.head.uri)),
        |limits| limits.on_error_fn(async |_| Recovery::Propagate),
    ];
    for (case, change) in changes.into_iter().enumerate() {
        for refusing in [|| limits(0, paused()), || limits(5, no_store())] {
            let limits = change(refusing());
            let layered = any(async || TEAPOT).layer(limits.layer("p"));
            let checked = any(move |request: Request| async move {
                let (head, _) = request.into_parts();
                match limits.check("p", Key::default()).await {
                    Ok(_) => TEAPOT.into_response(),
                    Err(refused) => refused.answer(head).await,
                }
            });
            let app = Router::new()
                .route("/layered", layered)
                .route("/checked", checked);
            for fields in ["", "content-type: application/grpc"] {
                let mut seen = Vec::new();
                for path in ["/layered", "/checked"] {
                    let response = call(&app, post(path, fields)).await;
                    seen.push(crate::shown(response, &[]).await.replace(path, "/"));
                }
                assert_eq!(seen[0], seen[1], "{case}, {fields}");
                assert!(!seen[0].contains("418"));
            }
        }
    }
}

/// It cannot be admitted any more.
#[tokio::test]
async fn a_callback_that_proceeds_gets_the_default() {
    let limits = limits(5, no_store()).on_error_fn(async |_| Recovery::Proceed);
    let refused = limits.check("p", Key::default()).await;
    let (head, _) = post("/", "").into_parts();
    let answer = refused.expect_err("no decision").answer(head).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
}
