//! No decision, failing handlers, and panics in callbacks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use kit::Redis;
use tidegate::callback::{FailureKind, Problem};
use tidegate::key::KeyError;
use tidegate::rule::OnError;
use tidegate::store::StoreErrorKind;
use tidegate::{
    Decision, Denied, ErrorCallback, ErrorCallbackChain, FailOpen, Failed, Header, Key,
    MemoryStore, PeerIp, Quota, RateLimitLayer, Recovery, Rule, Store, StoreError,
};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::{WINDOW, no_store, send, status, store_on, text};
use kit::app_at;

fn undecided() -> RateLimitLayer {
    RateLimitLayer::new("p", WINDOW, 5).store(no_store())
}

/// Law 5: a failure is never a 429.
#[tokio::test]
async fn by_default_a_503() {
    let response = send(&app_at("/p", undecided()), "/p").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert!(
        response
            .headers()
            .keys()
            .all(|name| !name.as_str().contains("ratelimit"))
    );
    assert!(Decision::from_extensions(response.extensions()).is_none());
    insta::assert_snapshot!(text(response).await, @r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}"#);
}

#[tokio::test]
async fn a_real_outage_is_a_503_too_and_the_kind_is_told() {
    let mut server = Redis::start();
    let store: Arc<dyn Store> = Arc::new(store_on(&server).await);
    server.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let layer = RateLimitLayer::new("p", WINDOW, 5).store(store);
    assert_eq!(
        status(&app_at("/p", layer.clone()), "/p").await,
        StatusCode::SERVICE_UNAVAILABLE
    );

    let kinds = layer.on_error(async |failed: Failed| {
        let error: &StoreError = failed.downcast_ref().expect("the store failed");
        let cause: &redis::RedisError = failed.downcast_ref().expect("because of the client");
        assert!(cause.is_io_error());
        format!("{:?}", error.kind())
    });
    assert_eq!(
        text(send(&app_at("/p", kinds), "/p").await).await,
        "Unavailable"
    );
}

#[tokio::test]
async fn a_rule_can_let_through() {
    let rule = Rule::new("p", [Quota::per_minute(5)])
        .expect("valid")
        .with_on_error(OnError::Proceed);
    let layer = RateLimitLayer::from_rule(rule).store(no_store());
    assert_eq!(
        text(send(&app_at("/p", layer), "/p").await).await,
        "handled"
    );
}

#[tokio::test]
async fn fail_open_in_one_word() {
    assert_eq!(
        text(send(&app_at("/p", undecided().on_error(FailOpen)), "/p").await).await,
        "handled"
    );
    let denied = RateLimitLayer::new("p", WINDOW, 0).on_error(FailOpen);
    assert_eq!(
        status(&app_at("/p", denied), "/p").await,
        StatusCode::TOO_MANY_REQUESTS
    );
}

/// A header field that the client leaves out, and a peer address that the server does not know.
fn without_key() -> [(RateLimitLayer, u16); 2] {
    let tenant = Header::new("x-tenant");
    let layer = || RateLimitLayer::new("p", WINDOW, 5);
    [(layer().key(tenant), 400), (layer().key(PeerIp), 500)]
}

/// Law 5: a missing key is neither a denial nor an admission.
#[tokio::test]
async fn a_missing_key_is_a_400_or_500() {
    for (layer, expected) in without_key() {
        for layer in [layer.clone(), layer.on_error(Problem)] {
            let response = send(&app_at("/p", layer), "/p").await;
            assert_eq!(response.status().as_u16(), expected);
            let content_type = &response.headers()["content-type"];
            assert_eq!(content_type, "application/problem+json");
            let text = text(response).await;
            assert!(text.contains(&format!("\"status\":{expected}")), "{text}");
            // Whoever tries the app is told what is missing, and what mends it: tests have debug
            // assertions. Without them a client is told nothing of what the key is made of.
            let missing = text.contains("the request has no x-tenant header field");
            assert_eq!(missing, expected == 400, "{text}");
            let says = text.contains("into_make_service_with_connect_info::<SocketAddr>()");
            assert_eq!(says, expected == 500, "{text}");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
}

/// Whatever an extractor of one's own says, the document is JSON, and the gRPC message a field.
#[tokio::test]
async fn what_went_wrong_is_escaped() {
    let reason = "line 1\nline \"2\" \\ \u{7} ä %41 \u{2028}";
    let key = move |_: &http::request::Parts| Err::<Key, _>(KeyError::server(reason));
    let app = app_at("/p", RateLimitLayer::new("p", WINDOW, 2).key(key));
    let text = text(send(&app, "/p").await).await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["detail"], "line 1 line \"2\" \\   ä %41 \u{2028}");

    let request = Request::post("/p").header("content-type", "application/grpc");
    let response = app
        .oneshot(request.body(Body::empty()).expect("valid"))
        .await;
    let response = response.expect("never fails");
    let expected = "internal server error: line 1%0Aline \"2\" \\ %07 %C3%A4 %2541 %E2%80%A8";
    assert_eq!(response.headers()["grpc-message"], expected);
}

/// What lets requests through when the store fails does not when the key is missing: a client would
/// get past its limit by leaving it out.
#[tokio::test]
async fn a_missing_key_is_never_an_admission() {
    for (layer, expected) in without_key() {
        let open = app_at("/p", layer.clone().on_error(FailOpen));
        let proceed = app_at("/p", layer.on_error(async |_: Failed| Recovery::Proceed));
        for app in [open, proceed] {
            assert_eq!(status(&app, "/p").await.as_u16(), expected);
        }
    }
    let tenant = Header::new("x-tenant");
    let rule = Rule::new("p", [Quota::per_minute(5)]).expect("valid");
    let rule = rule.with_key(tenant).with_on_error(OnError::Proceed);
    let app = app_at("/p", RateLimitLayer::from_rule(rule));
    assert_eq!(status(&app, "/p").await.as_u16(), 400);
}

#[tokio::test]
async fn callbacks_answer_for_a_missing_key() {
    for (layer, expected) in without_key() {
        let chain = ErrorCallbackChain::new().on::<KeyError>(async |failed: Failed| {
            let FailureKind::Key(kind) = failed.kind() else {
                panic!("{failed:?}");
            };
            (StatusCode::IM_A_TEAPOT, format!("{kind:?}: {failed}"))
        });
        let response = send(&app_at("/p", layer.on_error(chain)), "/p").await;
        assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
        let text = text(response).await;
        let expected = match expected {
            400 => "Absent: no key for \"p\": the request has no x-tenant header field",
            _ => "Server: no key for \"p\": ",
        };
        assert!(text.starts_with(expected), "{text}");
    }
}

async fn answer(chain: ErrorCallbackChain) -> String {
    text(send(&app_at("/p", undecided().on_error(chain)), "/p").await).await
}

#[tokio::test]
async fn the_chain_goes_by_priority_and_type() {
    let say = |what: &'static str| move |_: Failed| async move { what };
    let new = ErrorCallbackChain::new;
    // The lower number first, whatever the order.
    assert_eq!(
        answer(new().any(say("one")).any_with_priority(0, say("zero"))).await,
        "zero"
    );
    // The same number: the first that was added.
    assert_eq!(
        answer(new().any(say("first")).any(say("second"))).await,
        "first"
    );
    // The first whose type matches.
    let by_type = new()
        .on_with_priority::<KeyError>(-5, say("key"))
        .on_with_priority::<std::io::Error>(-4, say("io"))
        .on_with_priority::<StoreError>(7, say("store"))
        .any_with_priority(8, say("any"));
    assert_eq!(answer(by_type).await, "store");
    // None matches: the error goes on, here to the default.
    assert!(
        answer(new().on::<KeyError>(say("key")))
            .await
            .contains("temporary-reduced-capacity")
    );
    assert!(answer(new()).await.contains("temporary-reduced-capacity"));
    // Chains are callbacks, too.
    assert_eq!(answer(new().any(new().any(say("inner")))).await, "inner");
}

#[tokio::test]
async fn proceed_runs_the_handler_without_a_decision() {
    let chain = ErrorCallbackChain::new().any(async |_: Failed| Recovery::Proceed);
    assert_eq!(answer(chain).await, "handled");
}

/// A handler's error.
#[derive(Debug, PartialEq)]
struct Broken(u32);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken {}", self.0)
    }
}

impl std::error::Error for Broken {}

async fn call_broken(callback: Option<impl ErrorCallback>) -> Result<Response<Body>, Broken> {
    let broken = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(Broken(7)) });
    let layer = RateLimitLayer::new("p", WINDOW, 5);
    let layer = match callback {
        Some(callback) => layer.on_error(callback),
        None => layer,
    };
    layer.layer(broken).oneshot(crate::get("/p")).await
}

#[tokio::test]
async fn an_error_of_the_inner_service_goes_through_the_chain() {
    let nobody = None::<Problem>;
    assert_eq!(call_broken(nobody).await.expect_err("goes on"), Broken(7));
    assert_eq!(
        call_broken(Some(Problem)).await.expect_err("goes on"),
        Broken(7)
    );
    assert_eq!(
        call_broken(Some(FailOpen)).await.expect_err("goes on"),
        Broken(7)
    );
    let others = ErrorCallbackChain::new().on::<StoreError>(FailOpen);
    assert_eq!(
        call_broken(Some(others)).await.expect_err("goes on"),
        Broken(7)
    );

    let chain = ErrorCallbackChain::new().on::<Broken>(async |failed: Failed| {
        assert!(failed.is_inner());
        assert_eq!(failed.head.uri, "/p");
        let broken = failed.downcast_ref::<Broken>().expect("the type matched");
        format!("was {broken}")
    });
    let response = call_broken(Some(chain)).await.expect("answered");
    // It was allowed, and charged: the response says so.
    assert!(response.headers().contains_key("ratelimit"));
    assert_eq!(text(response).await, "was broken 7");
}

/// An exempt request is none of our business, and neither is its error.
#[tokio::test]
async fn an_error_of_an_exempt_request_goes_on() {
    let broken = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(Broken(7)) });
    let layer = RateLimitLayer::new("p", WINDOW, 5)
        .exempt(|_| true)
        .on_error(async |_: Failed| "answered");
    let error = layer.layer(broken).oneshot(crate::get("/p")).await;
    assert_eq!(error.expect_err("goes on"), Broken(7));
}

/// Errors in boxes, as `tower`'s own middleware has them.
#[tokio::test(start_paused = true)]
async fn boxed_errors_are_found_by_what_is_in_the_box() {
    let hanging = service_fn(|_: Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<Response<Body>, BoxError>(Response::new(Body::empty()))
    });
    let hanging = TimeoutLayer::new(Duration::from_secs(1)).layer(hanging);
    let layer = RateLimitLayer::new("p", WINDOW, 5);
    let elapsed = |failed: Failed| async move {
        assert_eq!(failed.to_string(), "\"p\" failed: request timed out");
        StatusCode::GATEWAY_TIMEOUT
    };
    let chain = ErrorCallbackChain::new().on::<tower::timeout::error::Elapsed>(elapsed);
    let service = layer.clone().on_error(chain).layer(hanging.clone());
    let response = service.oneshot(crate::get("/p")).await.expect("answered");
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);

    let chain = ErrorCallbackChain::new().on::<Broken>(FailOpen);
    let service = layer.on_error(chain).layer(hanging);
    let error = service
        .oneshot(crate::get("/p"))
        .await
        .expect_err("goes on");
    assert!(error.is::<tower::timeout::error::Elapsed>());
}

/// After a panic everything else goes on: nothing is poisoned.
async fn panics(layer: RateLimitLayer, expected: &[u16]) {
    let layer = layer.store(Arc::new(MemoryStore::new()));
    let app = app_at("/p", layer);
    for expected in expected {
        let response = send(&app, "/p").await;
        assert_eq!(response.status().as_u16(), *expected);
        if *expected == 500 {
            assert_eq!(
                response.headers()["content-type"],
                "application/problem+json"
            );
            assert!(
                !text(response).await.contains("oops"),
                "the client must not see it"
            );
        }
    }
}

#[tokio::test]
async fn a_panic_is_a_500_and_poisons_nothing() {
    let layer = || RateLimitLayer::new("p", WINDOW, 2);
    panics(
        layer().key(|_: &http::request::Parts| -> Result<Key, KeyError> { panic!("oops") }),
        &[500, 500],
    )
    .await;
    panics(layer().cost(|_| panic!("oops")), &[500, 500]).await;
    panics(layer().exempt(|_| panic!("oops")), &[500, 500]).await;

    let sometimes = std::sync::atomic::AtomicBool::new(true);
    let extractor = move |_: &http::request::Parts| {
        let panics = sometimes.fetch_not(std::sync::atomic::Ordering::Relaxed);
        assert!(!panics, "oops");
        Ok(Key::default())
    };
    panics(layer().key(extractor), &[500, 200, 500, 200, 500, 429]).await;

    let when_called = |_: Denied| -> std::future::Ready<()> { panic!("oops") };
    panics(layer().degrade(when_called), &[200, 200, 500, 500]).await;
    let when_polled = async |_: Denied| -> () { panic!("oops") };
    panics(layer().degrade(when_polled), &[200, 200, 500, 500]).await;
}

#[tokio::test]
async fn a_panic_of_an_error_callback_is_a_500() {
    let callback = async |_: Failed| -> Recovery { panic!("oops") };
    assert_eq!(
        status(&app_at("/p", undecided().on_error(callback)), "/p")
            .await
            .as_u16(),
        500
    );
    let response = call_broken(Some(callback)).await.expect("answered");
    assert_eq!(response.status().as_u16(), 500);
}

#[tokio::test]
async fn kinds_of_failure_are_told_apart() {
    let layer = undecided().on_error(async |failed: Failed| {
        let error: &StoreError = failed.downcast_ref().expect("the store failed");
        assert_eq!(error.kind(), StoreErrorKind::Full);
        assert!(!failed.is_inner() && failed.rule.path() == "p");
        StatusCode::IM_A_TEAPOT
    });
    assert_eq!(
        status(&app_at("/p", layer), "/p").await,
        StatusCode::IM_A_TEAPOT
    );
}

/// A service of another kind than axum's, with the error type kept.
#[tokio::test]
async fn the_error_type_is_the_inner_services() {
    fn is_service<S>(service: S) -> S
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Broken>,
    {
        service
    }
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, Broken>(Response::new(Body::empty())) });
    let service = is_service(RateLimitLayer::new("p", WINDOW, 1).layer(ok));
    assert!(service.oneshot(crate::get("/p")).await.is_ok());
}
