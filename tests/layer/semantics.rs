//! What the annotation promises, as a layer.

use axum::body::Bytes;
use axum::extract::Request as AxumRequest;
use axum::response::Response;
use axum::routing::post as on_post;
use axum::routing::{MethodRouter, get};
use tidegate::DegradeCallback;
use tidegate::callback::BoxFuture;

use crate::*;

fn layer(path: &str, max: u64, store: &Arc<dyn Store>) -> RateLimitLayer {
    RateLimitLayer::new(path, WINDOW, max).store(store.clone())
}

/// The rule `getId`.
fn rules(max: u64) -> Rules {
    Rules::from_iter([per_minute("getId", max)])
}

async fn handler(decision: Option<Decision>) -> String {
    match decision {
        Some(decision) => format!("{} left", decision.remaining()),
        None => "no decision".to_owned(),
    }
}

/// [`handler`] behind this layer, alone and in an app on `/`.
fn limited(layer: RateLimitLayer) -> MethodRouter {
    get(handler).layer(layer)
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", limited(layer))
}

async fn told(app: &Router, path: &str) -> String {
    text(send(app, path).await).await
}

/// Whether so many requests pass untouched.
async fn passes(app: &Router, times: usize) {
    for _ in 0..times {
        let response = send(app, "/").await;
        assert_eq!(response.status(), OK);
        assert!(is_untouched(&response));
        assert_eq!(text(response).await, "no decision");
    }
}

#[tokio::test]
async fn without_a_rule_a_request_passes_as_if_there_were_no_layer() {
    let other = Rules::from_iter([per_minute("other", 0)]);
    for rules in [other, Rules::default(), rules(0).enabled(false)] {
        passes(&app(Limits::new(rules).layer("getId")), 20).await;
    }
}

#[tokio::test]
async fn rules_can_be_replaced_while_requests_run() {
    let limits = Limits::new(Rules::default());
    let app = app(limits.layer("getId"));
    passes(&app, 3).await;
    // What was counted stays.
    for (max, left) in [(2, &["1 left", "0 left"][..]), (3, &["0 left"])] {
        limits.rules().replace(rules(max));
        for left in left {
            assert_eq!(told(&app, "/").await, *left);
        }
        assert_eq!(status(&app, "/").await, DENIED);
    }
    limits.rules().replace(rules(3).enabled(false));
    passes(&app, 3).await;
}

#[tokio::test]
async fn allowed_runs_the_handler_with_the_decision() {
    for store in &Stores::start().await.all {
        let app = app(layer("getId", 3, store));
        for left in [2, 1, 0] {
            let response = send(&app, "/").await;
            assert_eq!(response.status(), OK);
            let decision = Decision::from_extensions(response.extensions());
            let decision = decision.expect("a decision");
            assert_eq!((decision.remaining(), decision.is_allowed()), (left, true));
            assert_eq!(text(response).await, format!("{left} left"));
        }
    }
}

/// A body that panics when it is read.
fn is_read(_: &mut Context<'_>) -> Poll<Option<std::io::Result<Bytes>>> {
    panic!("the body was read")
}

/// The handler is not called, and not a byte of the body is read.
#[tokio::test]
async fn denied_is_the_degrade_callbacks_response() {
    for store in &Stores::start().await.all {
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
        let app: Router = Router::new().route("/export", on_post(handler).layer(layer));
        let body = Body::from_stream(futures_util::stream::poll_fn(is_read));
        let request = Request::post("/export?a=b").body(body).expect("valid");
        let response = call(&app, request).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert!(Decision::from_extensions(response.extensions()).is_some());
        assert_eq!(text(response).await, "/export?a=b");
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }
}

/// The annotation on a class, and on a method.
#[tokio::test]
async fn a_routers_layer_counts_its_routes_together_a_routes_layer_alone() {
    for store in &Stores::start().await.all {
        let alone = |path| limited(layer(path, 2, store));
        let app = Router::new()
            .route("/a", get(handler))
            .route("/b", get(handler))
            .layer(layer("class", 3, store))
            .route("/c", alone("methodC"))
            .route("/d", alone("methodD"));
        for (path, expected) in [
            ("/a", &[200, 200][..]),
            ("/b", &[200, 429]),
            ("/a", &[429]),
            ("/c", &[200, 200, 429]),
            ("/d", &[200, 200, 429]),
        ] {
            let statuses = statuses(&app, path, "", expected.len()).await;
            assert_eq!(statuses, expected, "{path}");
        }
    }
}

/// Layers of one path and one store count together, wherever they are.
#[tokio::test]
async fn the_same_path_is_one_count() {
    for store in &Stores::start().await.all {
        let [first, second] = [(); 2].map(|()| app(layer("shared", 2, store)));
        for expected in [OK, DENIED] {
            assert_eq!(status(&first, "/").await, expected);
            assert_eq!(status(&second, "/").await, expected);
        }
    }
}

#[tokio::test]
async fn keys_are_counted_apart() {
    for store in &Stores::start().await.all {
        let app = app(layer("tenants", 1, store).key(Header::new("x-tenant")));
        for fields in ["x-tenant: a", "x-tenant: b", "x-tenant: "] {
            assert_eq!(statuses(&app, "/", fields, 2).await, [200, 429], "{fields}");
        }
        assert_eq!(statuses(&app, "/", "", 1).await, [400]);
    }
}

/// A layer's own key and cost come before the rule's.
#[tokio::test]
async fn the_layers_word_comes_before_the_rules() {
    let rule = per_minute("r", 10)
        .with_cost(5)
        .with_key(|_: &http::request::Parts| Ok(Key::from("rule")));
    let of_rule = RateLimitLayer::from_rule(rule).store(MemoryStore::new());
    let own = of_rule
        .clone()
        .key(|_: &http::request::Parts| Ok(Key::from("layer")))
        .cost(|head| if head.method == Method::GET { 1 } else { 10 });
    let app = Router::new()
        .route("/rule", limited(of_rule))
        .route("/own", get(handler).post(handler).layer(own));
    assert_eq!(told(&app, "/rule").await, "5 left");
    assert_eq!(told(&app, "/own").await, "9 left");
    assert_eq!(call(&app, post("/own", "")).await.status(), DENIED);
    assert_eq!(told(&app, "/own").await, "8 left");
}

#[tokio::test]
async fn exempt_requests_pass() {
    let layer = RateLimitLayer::new("api", WINDOW, 0);
    let layer = layer.exempt(|head| head.method == Method::POST);
    let app = Router::new().route("/", get(handler).post(handler).layer(layer));
    assert_eq!(text(call(&app, post("/", "")).await).await, "no decision");
    assert_eq!(status(&app, "/").await, DENIED);
}

/// One callback for many routes, as a trait object.
#[tokio::test]
async fn callbacks_can_be_shared() {
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl DegradeCallback for Counting {
        fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
            Box::pin(async move {
                let number = self.0.fetch_add(1, Ordering::Relaxed);
                Response::new(Body::from(format!("{number} {}", denied.rule.path())))
            })
        }
    }

    let shared: Arc<dyn DegradeCallback> = Arc::new(Counting::default());
    for (number, path) in ["a", "b"].into_iter().enumerate() {
        let layer = RateLimitLayer::new(path, WINDOW, 0).degrade(shared.clone());
        assert_eq!(told(&app(layer), "/").await, format!("{number} {path}"));
    }
}

/// A window of the memory store passes on tokio's clock, as an application's own tests may want it.
#[tokio::test(start_paused = true)]
async fn time_passes() {
    let app = app(RateLimitLayer::new("getId", 10 * SECOND, 5).store(paused()));
    for _ in 0..2 {
        let expected = [200, 200, 200, 200, 200, 429, 429];
        assert_eq!(statuses(&app, "/", "", 7).await, expected);
        tokio::time::advance(10 * SECOND).await;
    }
}

/// Every method, the query and the body reach the handler unchanged.
#[tokio::test]
async fn requests_arrive_whole() {
    for store in &Stores::start().await.all {
        let echo = |request: AxumRequest| async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1_000).await;
            format!(
                "{} {} {:?}",
                head.method,
                head.uri,
                body.expect("a small body")
            )
        };
        let app = Router::new().route("/e", on_post(echo).layer(layer("e", 9, store)));
        let request = Request::post("/e?x=1").body(Body::from("hello"));
        let response = call(&app, request.expect("valid")).await;
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
