//! What the annotation promises, as a layer.

use axum::body::Bytes;
use axum::routing::post as on_post;
use axum::routing::{MethodRouter, get};

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

/// A handler can say how much is used, whatever has decided: each algorithm, permits, a plan, a
/// denial, an operator, a fallback.
#[tokio::test]
async fn what_is_used_of_each_quota() {
    let used = |decision: Option<&Decision>| {
        let decision = decision.expect("a decision");
        let quotas = decision.quotas().iter();
        let all = quotas.map(|it| {
            assert_eq!(it.used() + it.remaining(), it.max());
            (it.used(), it.max())
        });
        all.collect::<Vec<_>>()
    };
    let stores = Stores::start().await;
    let down = Stub::down().capabilities_fn(|inner| inner.capabilities());
    let down = Resilient::new(down).fallback(Share::of_processes(1));
    let down: Arc<dyn Store> = Arc::new(down.build());
    for store in stores.all.iter().chain([&down]) {
        for algorithm in Algorithm::ALL {
            let quotas = [Quota::per_hour(10), Quota::per_day(40)];
            let plan = Quotas::new([Quota::per_hour(20)]).expect("valid");
            let rule = Rule::new(algorithm.name(), quotas).expect("valid");
            let rule = rule.with_algorithm(algorithm).with_plan("pro", plan);
            let rule = rule.expect("valid").with_max_concurrent(3);
            let limits = limits_of(&rule.expect("valid"), store);
            let check = |cost| limits.check(algorithm.name(), "alice").cost(cost);
            let held = check(8).await.expect("room");
            assert_eq!(used(held.decision.as_ref()), [(8, 10), (8, 40), (1, 3)]);
            let denied = check(5).await.expect_err("two are left");
            assert_eq!(used(denied.decision()), [(8, 10), (8, 40), (1, 3)]);
            let upgraded = check(4).plan("pro").await.expect("room");
            assert_eq!(used(upgraded.decision.as_ref()), [(12, 20), (2, 3)]);
            let alone = Rule::new("alone", [Quota::per_hour(7)]).expect("valid");
            let alone = limits_of(&alone.with_algorithm(algorithm), store);
            alone
                .check("alone", algorithm.name())
                .cost(5)
                .await
                .expect("room");
            let left = alone.peek("alone", algorithm.name()).await;
            let left = left.expect("an answer");
            assert_eq!(used(left.as_ref()), [(5, 7)]);
            let blocked = limits
                .block(algorithm.name(), "alice", WINDOW, "a test")
                .await;
            blocked.expect("it is kept");
            let denied = check(1).await.expect_err("blocked");
            assert_eq!(used(denied.decision()), [(10, 10), (40, 40), (3, 3)]);
        }
        stores.flush();
    }
}
