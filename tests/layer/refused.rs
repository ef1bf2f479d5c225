//! What a check refuses is answered as a layer of the same limits answers.

use axum::extract::Request;
use tidegate::callback::{Form, Problem};

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

/// A client has no part in a partner's quotas: to it a service behind is busy. To the layer around
/// it is a denial, which costs nothing.
#[tokio::test(start_paused = true)]
async fn a_call_to_a_partner_has_no_turn() {
    const PROBLEM: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,"detail":"A service behind is busy","retry-after":60}"##;
    const CONNECT: &str = r#"{"code":"unavailable","message":"a service behind is busy"}"#;
    const JSON_RPC: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"a service behind is busy"}}"#;
    let teapot: Change = |limits| limits.degrade_fn(async |_| TEAPOT);
    let as_problem: Change = |limits| limits.degrade(Problem);
    for (change, fields, status, body) in [
        (None, "", 503, PROBLEM),
        (Some(as_problem), "", 503, PROBLEM),
        (Some(teapot), "", 418, ""),
        (None, "content-type: application/grpc", 200, ""),
        (
            None,
            "content-type: application/grpc, grpc-timeout: 90S",
            200,
            "",
        ),
        (None, "form: connect", 503, CONNECT),
        (None, "form: json-rpc", 503, JSON_RPC),
    ] {
        let github = kit::per_minute("github", 1).with_outgoing();
        let api = refunding("api", 9, &["denied"]).with_lockout(
            tidegate::rule::Lockout::after(1)
                .hold([WINDOW])
                .on(["5xx", "grpc-14"]),
        );
        let limits = Limits::new([github.expect("valid"), api.expect("valid")]);
        let limits = limits.store(paused()).key_by(|_| Ok("alice".into()));
        let limits = limits.form(match fields {
            "form: connect" => Form::Connect,
            "form: json-rpc" => Form::JsonRpc,
            _ => Form::Problem,
        });
        let limits = change.map_or(limits.clone(), |change| change(limits));
        let github = limits.outgoing("github");
        drop(github.ready("us").await.expect("a turn"));
        let handler = any(async move |request: Request| {
            let (head, _) = request.into_parts();
            let refused = github.ready("us").await.expect_err("no turn");
            match head.uri.path() {
                "/plain" => refused.into_response(),
                _ => refused.answer(head).await,
            }
        });
        let layered = handler.clone().layer(limits.layer("api"));
        let app = Router::new()
            .route("/plain", handler.clone())
            .route("/bare", handler)
            .route("/layered", layered);
        for path in ["/bare", "/layered", "/plain"] {
            let is_plain = path == "/plain";
            if is_plain && (fields.contains("grpc") || status == 418) {
                continue;
            }
            let response = call(&app, post(path, fields)).await;
            assert_eq!(response.status(), status, "{path} {fields}");
            let field = |name: &str| Some(response.headers().get(name)?.to_str().expect("text"));
            assert_eq!(field("retry-after"), Some("60"), "{path} {fields}");
            let shown = [field("ratelimit"), field("ratelimit-policy")]
                .map(Option::unwrap_or_default)
                .join(" ");
            assert!(!shown.contains("github"), "{path}: {shown}");
            assert_eq!(shown.contains("api"), path == "/layered", "{shown}");
            if fields.contains("grpc") {
                assert_eq!(field("grpc-status"), Some("14"));
                assert_eq!(field("grpc-status-details-bin"), None);
                let fits = fields.contains("90S");
                let pushback = if fits { "60000" } else { "-1" };
                assert_eq!(field("grpc-retry-pushback-ms"), Some(pushback));
                assert_eq!(field("grpc-message"), Some("a service behind is busy"));
            }
            assert_eq!(text(response).await, body, "{path} {fields}");
        }
        let left = limits.peek("api", "alice").await.expect("an answer");
        assert_eq!(left.map(|it| it.remaining()), Some(9), "{fields}");
        let refused = limits.outgoing("github").ready("us").await;
        let status = refused.expect_err("no turn").into_grpc_fields();
        assert_eq!(status["grpc-status"], "14");
    }
}
