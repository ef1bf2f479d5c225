//! Functions that a rule limits: what runs, what answers in its place, and what it costs.

use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use axum::response::Response;
use axum::routing::get;

use crate::*;

fn limits(max: u64) -> Limits {
    Limits::new([per_minute("export", max)])
}

/// Their store never decides.
fn broken(rule: Rule) -> Limits {
    Limits::new([rule]).store(Stub::down())
}

/// A function that never runs.
async fn never<T>() -> T {
    panic!("it ran")
}

/// What calls do, and what comes of it.
#[test]
fn scenes() {
    kit::call_steps::play_calls("tests/layer/calls.txt");
}

/// A degrade callback gets what was denied; what is not decided stays a refusal.
#[tokio::test(start_paused = true)]
async fn one_callback_alone() {
    let call = |limits: &Limits| limits.call("export").key("alice");
    let limits = limits(1);
    assert_eq!(call(&limits).run(async || 7).await.expect("room"), 7);
    let refused = call(&limits).run(never::<u8>).await.expect_err("used up");
    let denied = refused.into_denied().expect("it was denied");
    assert_eq!(denied.decision.remaining(), 0);
    let broken = broken(per_minute("export", 1));
    let refused = call(&broken).run(never::<u8>).await;
    let refused = refused.expect_err("no decision").into_denied();
    assert!(refused.expect_err("not denied").error().is_some());
}

/// In a handler `?` answers with the refusal, or with the function's own error.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_response() {
    struct Own;
    impl IntoResponse for Own {
        fn into_response(self) -> Response {
            StatusCode::IM_A_TEAPOT.into_response()
        }
    }
    let limits = limits(1);
    let handler = get(async move || {
        let call = limits.call("export").key("alice");
        let done: Result<&str, CallError<Own>> = call.try_run(async || Err(Own)).await;
        done
    });
    let app = Router::new().route("/", handler);
    assert_eq!(status(&app, "/").await, StatusCode::IM_A_TEAPOT);
    let denied = send(&app, "/").await;
    assert_eq!(denied.status(), DENIED);
    assert_eq!(denied.headers()["retry-after"], "60");
    assert!(text(denied).await.contains("quota-exceeded"));

    struct Mine(Refused);
    impl From<Refused> for Mine {
        fn from(refused: Refused) -> Self {
            Self(refused)
        }
    }
    let denied = Limits::new([per_minute("export", 0)]);
    let call = denied.call("export");
    let failed = call.try_run(never::<Result<(), Mine>>).await;
    let failed = failed.map_err(CallError::flatten);
    assert!(failed.is_err_and(|it| it.0.decision().is_some()));
}

/// The future is `Send` where the function is, and needs to be neither `'static` nor boxed.
#[tokio::test(start_paused = true)]
async fn its_future_is_what_the_function_is() {
    let (limits, ran) = (limits(9), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&ran);
    let task = tokio::spawn(async move {
        let call = limits.call("export").key("alice");
        let chain = ErrorCallbackChain::default();
        let count = async || {
            sleep(millis(1)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        };
        if let Err(refused) = call.run_with(&chain, count).await {
            refused.answer_by(async |_| (), async |_| ()).await;
        }
        let bob = limits.call("export").key("bob");
        bob.run(async || ()).await.expect("room");
        drop(Rc::new(7));
    });
    task.await.expect("no panic");
    assert_eq!(ran.load(Ordering::Relaxed), 1);

    let local = Rc::new(7);
    let kept = Rc::clone(&local);
    let function = async move || {
        tokio::task::yield_now().await;
        *kept
    };
    let ran = Limits::new([]).call("export").run(function).await;
    assert_eq!(ran.expect("no rule"), *local);
}

/// Without limits the process limits nothing; the last ones that are installed apply.
#[tokio::test(start_paused = true)]
async fn limits_of_the_process() {
    let _installed = crate::INSTALLED.lock().await;
    let call = async || Limits::installed().call("installed").run(async || ()).await;
    assert!(call().await.is_ok());
    Limits::new([per_minute("installed", 0)]).install();
    assert!(call().await.is_err());
    let replaced = Limits::new([per_minute("installed", 1)]).install();
    assert!(replaced.is_some());
    assert!(call().await.is_ok());
    assert!(call().await.is_err(), "they keep their counts");
}

/// What tonic makes a status of.
#[tokio::test(start_paused = true)]
async fn a_refusal_has_the_fields_of_a_grpc_answer() {
    let refused = limits(0).call("export").run(never::<()>).await;
    let fields = refused.expect_err("used up").into_grpc_fields();
    assert_eq!(fields["grpc-status"], "8");
    assert_eq!(fields["grpc-message"], "quota exceeded: export");
    assert!(!fields.contains_key("content-type"));
    let failed = broken(per_minute("export", 1));
    let failed = failed.call("export").run(never::<()>).await;
    let fields = failed.expect_err("no decision").into_grpc_fields();
    assert_eq!(fields["grpc-status"], "14");
}
