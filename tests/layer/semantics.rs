//! What the annotation promises, as a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request as AxumRequest;
use axum::routing::{get, post};
use http::{Method, Request, StatusCode};
use tidegate::{
    Decision, DegradeCallback, Denied, Header, Key, Limits, MemoryStore, RateLimitLayer, Rule,
    Rules, Store,
};
use tower::ServiceExt;

use crate::{Stores, WINDOW, send, status, text};
use kit::per_minute;

fn layer(path: &str, max: u64, store: &Arc<dyn Store>) -> RateLimitLayer {
    RateLimitLayer::new(path, WINDOW, max).store(store.clone())
}

fn rules(rules: impl IntoIterator<Item = Rule>) -> Rules {
    rules.into_iter().collect()
}

/// Whether so many requests pass untouched: no fields, no decision.
async fn passes(app: &Router, times: usize) {
    for _ in 0..times {
        let response = send(app, "/id").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(
            response
                .headers()
                .keys()
                .all(|name| !name.as_str().contains("ratelimit"))
        );
        assert!(Decision::from_extensions(response.extensions()).is_none());
        assert_eq!(text(response).await, "no decision");
    }
}

async fn handler(decision: Option<Decision>) -> String {
    match decision {
        Some(decision) => format!("{} left", decision.remaining()),
        None => "no decision".to_owned(),
    }
}

#[tokio::test]
async fn without_a_rule_a_request_passes_as_if_there_were_no_layer() {
    let app = |limits: &Limits| {
        let handler = get(handler).layer(limits.layer("getId"));
        Router::new().route("/id", handler)
    };
    passes(&app(&Limits::new(rules([per_minute("other", 0)]))), 20).await;
    passes(&app(&Limits::new(Rules::default())), 20).await;
    passes(
        &app(&Limits::new(rules([per_minute("getId", 0)]).enabled(false))),
        20,
    )
    .await;
}

#[tokio::test]
async fn rules_can_be_replaced_while_requests_run() {
    let limits = Limits::new(Rules::default());
    let app = Router::new().route("/id", get(handler).layer(limits.layer("getId")));
    passes(&app, 3).await;
    limits.rules().replace(rules([per_minute("getId", 2)]));
    assert_eq!(text(send(&app, "/id").await).await, "1 left");
    assert_eq!(text(send(&app, "/id").await).await, "0 left");
    assert_eq!(status(&app, "/id").await, StatusCode::TOO_MANY_REQUESTS);
    // What was counted stays.
    limits.rules().replace(rules([per_minute("getId", 3)]));
    assert_eq!(text(send(&app, "/id").await).await, "0 left");
    assert_eq!(status(&app, "/id").await, StatusCode::TOO_MANY_REQUESTS);
    limits
        .rules()
        .replace(rules([per_minute("getId", 3)]).enabled(false));
    passes(&app, 3).await;
}

#[tokio::test]
async fn allowed_runs_the_handler_with_the_decision() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let app = Router::new().route("/id", get(handler).layer(layer("getId", 3, store)));
        for left in [2, 1, 0] {
            let response = send(&app, "/id").await;
            assert_eq!(response.status(), StatusCode::OK);
            let decision = Decision::from_extensions(response.extensions())
                .expect("a decision")
                .clone();
            assert_eq!(decision.remaining(), left);
            assert!(decision.is_allowed());
            assert_eq!(text(response).await, format!("{left} left"));
        }
    }
}

/// The handler is not called, and not a byte of the body is read.
#[tokio::test]
async fn denied_is_the_degrade_callbacks_response() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let handler = move |_: Bytes| async move {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let layer = layer("export", 0, store).degrade(async |denied: Denied| {
            assert_eq!(denied.rule.path(), "export");
            assert_eq!((denied.cost, denied.key.as_str()), (1, ""));
            assert!(!denied.decision.is_allowed());
            (StatusCode::ACCEPTED, denied.head.uri.to_string())
        });
        let app: Router = Router::new().route("/export", post(handler).layer(layer));
        let body = futures_util::stream::poll_fn(
            |_| -> std::task::Poll<Option<Result<Bytes, std::io::Error>>> {
                panic!("the body was read")
            },
        );
        let request = Request::post("/export?a=b").body(Body::from_stream(body));
        let response = app
            .oneshot(request.expect("valid"))
            .await
            .expect("axum does not fail");
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert!(Decision::from_extensions(response.extensions()).is_some());
        assert_eq!(text(response).await, "/export?a=b");
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }
}

/// The annotation on a class, and on a method.
#[tokio::test]
async fn a_routers_layer_counts_its_routes_together_a_routes_layer_alone() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let alone = |path| get(handler).layer(layer(path, 2, store));
        let app = Router::new()
            .route("/a", get(handler))
            .route("/b", get(handler))
            .layer(layer("class", 3, store))
            .route("/c", alone("methodC"))
            .route("/d", alone("methodD"));
        let mut allowed = 0;
        for path in ["/a", "/b", "/a", "/b", "/a"] {
            allowed += usize::from(status(&app, path).await.is_success());
        }
        assert_eq!(allowed, 3);
        for path in ["/c", "/d"] {
            let statuses = [
                status(&app, path).await,
                status(&app, path).await,
                status(&app, path).await,
            ];
            assert_eq!(statuses.map(|status| status.as_u16()), [200, 200, 429]);
        }
    }
}

/// Layers of one path and one store count together, wherever they are.
#[tokio::test]
async fn the_same_path_is_one_count() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let first = Router::new().route("/x", get(handler).layer(layer("shared", 2, store)));
        let second = Router::new().route("/y", get(handler).layer(layer("shared", 2, store)));
        assert_eq!(status(&first, "/x").await, StatusCode::OK);
        assert_eq!(status(&second, "/y").await, StatusCode::OK);
        assert_eq!(status(&first, "/x").await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status(&second, "/y").await, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn keys_are_counted_apart() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let tenant = Header::new("x-tenant");
        let layer = layer("tenants", 1, store).key(tenant);
        let app = Router::new().route("/t", get(handler).layer(layer));
        let ask = async |tenant: Option<&str>| {
            let mut request = Request::get("/t");
            if let Some(tenant) = tenant {
                request = request.header("x-tenant", tenant);
            }
            let request = request.body(Body::empty()).expect("valid");
            app.clone()
                .oneshot(request)
                .await
                .expect("axum does not fail")
                .status()
                .as_u16()
        };
        for tenant in ["a", "b", ""] {
            let twice = (ask(Some(tenant)).await, ask(Some(tenant)).await);
            assert_eq!(twice, (200, 429), "{tenant:?}");
        }
        assert_eq!(ask(None).await, 400);
    }
}

/// A layer's own key and cost come before the rule's.
#[tokio::test]
async fn the_layers_word_comes_before_the_rules() {
    let rule = per_minute("r", 10)
        .with_cost(5)
        .with_key(|_: &http::request::Parts| Ok(Key::from("rule")));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let of_rule = RateLimitLayer::from_rule(rule.clone()).store(store.clone());
    let own = RateLimitLayer::from_rule(rule)
        .store(store)
        .key(|_: &http::request::Parts| Ok(Key::from("layer")))
        .cost(|head| if head.method == Method::GET { 1 } else { 10 });
    let app = Router::new()
        .route("/rule", get(handler).layer(of_rule))
        .route("/own", get(handler).post(handler).layer(own));
    assert_eq!(text(send(&app, "/rule").await).await, "5 left");
    assert_eq!(text(send(&app, "/own").await).await, "9 left");
    let post = Request::post("/own").body(Body::empty()).expect("valid");
    let denied = app.clone().oneshot(post).await.expect("axum does not fail");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(send(&app, "/own").await).await, "8 left");
}

#[tokio::test]
async fn exempt_requests_pass() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layer = layer("api", 0, &store).exempt(|head| head.method == Method::OPTIONS);
    let app = Router::new().route("/id", get(handler).options(handler).layer(layer));
    let preflight = Request::options("/id").body(Body::empty()).expect("valid");
    let response = app
        .clone()
        .oneshot(preflight)
        .await
        .expect("axum does not fail");
    assert_eq!(text(response).await, "no decision");
    assert_eq!(status(&app, "/id").await, StatusCode::TOO_MANY_REQUESTS);
}

/// One callback for many routes, as a trait object.
#[tokio::test]
async fn callbacks_can_be_shared() {
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl DegradeCallback for Counting {
        fn degrade(
            &self,
            denied: Denied,
        ) -> tidegate::callback::BoxFuture<'_, axum::response::Response> {
            Box::pin(async move {
                let number = self.0.fetch_add(1, Ordering::Relaxed);
                axum::response::Response::new(Body::from(format!(
                    "{number} {}",
                    denied.rule.path()
                )))
            })
        }
    }

    let shared: Arc<dyn DegradeCallback> = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let route = |path| get(handler).layer(layer(path, 0, &store).degrade(shared.clone()));
    let app = Router::new()
        .route("/a", route("a"))
        .route("/b", route("b"));
    assert_eq!(text(send(&app, "/a").await).await, "0 a");
    assert_eq!(text(send(&app, "/b").await).await, "1 b");
}

/// A window of the memory store passes on tokio's clock, as an application's own tests may want it.
#[tokio::test(start_paused = true)]
async fn time_passes() {
    let store = Arc::new(MemoryStore::new().tokio_clock());
    let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).store(store);
    let app = Router::new().route("/id", get(handler).layer(layer));
    for _ in 0..2 {
        for expected in [200, 200, 200, 200, 200, 429, 429] {
            assert_eq!(status(&app, "/id").await.as_u16(), expected);
        }
        tokio::time::advance(Duration::from_secs(10)).await;
    }
}

/// Every method, the query and the body reach the handler unchanged.
#[tokio::test]
async fn requests_arrive_whole() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let echo = |request: AxumRequest| async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1_000)
                .await
                .expect("a small body");
            format!("{} {} {:?}", head.method, head.uri, body)
        };
        let app = Router::new().route("/e", post(echo).layer(layer("e", 9, store)));
        let request = Request::post("/e?x=1")
            .body(Body::from("hello"))
            .expect("valid");
        let response = app.oneshot(request).await.expect("axum does not fail");
        assert_eq!(text(response).await, "POST /e?x=1 b\"hello\"");
    }
}

#[test]
#[should_panic(expected = "the path is empty")]
fn an_empty_path_panics() {
    let _ = RateLimitLayer::new("", WINDOW, 1);
}

#[test]
#[should_panic(expected = "the window is zero")]
fn a_zero_window_panics() {
    let _ = RateLimitLayer::new("p", Duration::ZERO, 1);
}
