//! Several layers around one handler: a store that fails costs a request one time-out, and the
//! fields show the tightest limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use http::StatusCode;
use tidegate::callback::AlsoWithFallback;
use tidegate::rule::{OnError, Share};
use tidegate::{
    FailOpen, Failed, MemoryStore, Quota, RateLimitLayer, Recovery, Resilient, Rule, Store,
};
use tokio::time::{Instant, sleep};

use crate::{WINDOW, send};
use kit::stub::Stub;
use kit::stub::far;

const TIMEOUT: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_secs(3_600);

fn with_policy(path: &str, on_error: OnError) -> Rule {
    let quota = Quota::new(WINDOW, 5).expect("valid");
    Rule::new(path, [quota])
        .expect("valid")
        .with_on_error(on_error)
}

/// A handler behind three layers over this store.
fn three(store: &Arc<dyn Store>, on_error: OnError) -> Router {
    let layer =
        |path| RateLimitLayer::from_rule(with_policy(path, on_error)).store(Arc::clone(store));
    let handler = get(async || "1").layer(layer("inner"));
    Router::new()
        .route("/", handler)
        .layer(layer("middle"))
        .layer(layer("outer"))
}

fn bounded(far: &Stub) -> Resilient<Stub> {
    Resilient::bare(far.clone()).timeout(TIMEOUT)
}

#[tokio::test(start_paused = true)]
async fn a_time_out_is_paid_once() {
    let far = far(HOUR);
    let quarter = Share::of_processes(1);
    let local = || MemoryStore::new().tokio_clock();
    let stores: [(Arc<dyn Store>, OnError); 6] = [
        (Arc::new(bounded(&far)), OnError::Proceed),
        (
            Arc::new(
                Resilient::bare(bounded(&far))
                    .fallback(quarter)
                    .fallback_store(local()),
            ),
            OnError::Fallback,
        ),
        (
            Arc::new(
                Resilient::bare(bounded(&far))
                    .fallback(quarter)
                    .fallback_store(local()),
            ),
            OnError::Proceed,
        ),
        (
            Arc::new(
                Resilient::bare(
                    Resilient::bare(bounded(&far))
                        .fallback(quarter)
                        .fallback_store(local()),
                )
                .timeout(HOUR),
            ),
            OnError::Fallback,
        ),
        (
            Resilient::new(far.clone())
                .timeout(TIMEOUT)
                .fallback(quarter)
                .build(),
            OnError::Fallback,
        ),
        (
            Resilient::new(far.clone())
                .timeout(TIMEOUT)
                .denial_cache(None)
                .build(),
            OnError::Proceed,
        ),
    ];
    for (at, (store, on_error)) in stores.iter().enumerate() {
        let app = three(store, *on_error);
        for _ in 0..3 {
            let (began, asked) = (Instant::now(), far.takes().len());
            assert_eq!(send(&app, "/").await.status(), StatusCode::OK, "store {at}");
            assert_eq!(began.elapsed(), TIMEOUT, "store {at}");
            assert_eq!(far.takes().len() - asked, 1, "store {at}: one question");
        }
    }
}

/// Handles to one server that are not the same value.
#[tokio::test(start_paused = true)]
async fn stores_of_one_name_fail_together() {
    let far = far(HOUR);
    let layer = |path| {
        let store = bounded(&far);
        RateLimitLayer::from_rule(with_policy(path, OnError::Proceed)).store(store)
    };
    let handler = get(async || "1").layer(layer("inner"));
    let app = Router::new().route("/", handler).layer(layer("outer"));
    let began = Instant::now();
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    assert_eq!(began.elapsed(), TIMEOUT);

    // Another store is asked.
    let memory = RateLimitLayer::new("memory", WINDOW, 5);
    let handler = get(async || "1").layer(memory);
    let app = Router::new().route("/", handler).layer(layer("outer"));
    let response = send(&app, "/").await;
    assert_eq!(response.headers()["ratelimit"], "\"memory\";r=4;t=60");
}

/// Three slow answers are three decisions: there is no time-out for all of them together.
#[tokio::test(start_paused = true)]
async fn a_slow_store_is_asked_by_every_layer() {
    let far = far(Duration::from_millis(46));
    let app = three(
        &(Arc::new(bounded(&far)) as Arc<dyn Store>),
        OnError::Respond,
    );
    for left in (0..5).rev() {
        let began = Instant::now();
        let response = send(&app, "/").await;
        assert_eq!(response.status(), StatusCode::OK);
        let fields: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
        assert_eq!(fields.len(), 3);
        for field in fields {
            let field = field.to_str().expect("text");
            assert!(field.contains(&format!(";r={left};")), "{field}");
        }
        assert_eq!(began.elapsed(), Duration::from_millis(3 * 46));
    }
    assert_eq!(far.takes().len(), 15);
}

/// What other middleware does meanwhile counts against nobody: after one time-out the store is
/// asked again.
#[tokio::test(start_paused = true)]
async fn the_store_is_left_alone_for_one_time_out_at_most() {
    let far = far(HOUR);
    let layer =
        |path| RateLimitLayer::from_rule(with_policy(path, OnError::Proceed)).store(bounded(&far));
    let slow = from_fn(async |request: Request, next: Next| {
        sleep(TIMEOUT * 2).await;
        next.run(request).await
    });
    let handler = get(async || "1").layer(layer("inner"));
    let app = Router::new()
        .route("/", handler)
        .layer(slow)
        .layer(layer("outer"));
    let began = Instant::now();
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    assert_eq!(began.elapsed(), TIMEOUT * 4);
    assert_eq!(far.takes().len(), 2);
}

/// The error callbacks of all layers are told, each once.
#[tokio::test(start_paused = true)]
async fn every_layer_gets_the_error() {
    let far = far(HOUR);
    let told = Arc::new(AtomicUsize::new(0));
    let layer = |path| {
        let told = Arc::clone(&told);
        let callback = AlsoWithFallback(move |failed: Failed| {
            assert!(
                failed.to_string().contains("did not answer within 50ms"),
                "{failed}"
            );
            told.fetch_add(1, Ordering::Relaxed);
            async { Recovery::Proceed }
        });
        RateLimitLayer::new(path, WINDOW, 5)
            .store(bounded(&far))
            .on_error(callback)
    };
    let handler = get(async || "1").layer(layer("inner"));
    let app = Router::new().route("/", handler).layer(layer("outer"));
    let began = Instant::now();
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    assert_eq!(began.elapsed(), TIMEOUT);
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

/// The breaker counts a request of three layers once.
#[tokio::test(start_paused = true)]
async fn a_breaker_counts_one_failure() {
    let far = far(HOUR);
    let store = Resilient::new(far.clone())
        .timeout(TIMEOUT)
        .failures(2)
        .build();
    let app = three(&store, OnError::Proceed);
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    let began = Instant::now();
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    assert_eq!(began.elapsed(), TIMEOUT, "it was closed after one failure");
    let began = Instant::now();
    assert_eq!(send(&app, "/").await.status(), StatusCode::OK);
    assert_eq!(began.elapsed(), Duration::ZERO, "it is open after two");
}

/// Errors that cost no time, and are about one key or one process, do not keep later layers from
/// asking.
#[tokio::test]
async fn other_errors_concern_one_layer() {
    let full: Arc<dyn Store> = Arc::new(MemoryStore::with_max_keys(1));
    let layer = |path| {
        RateLimitLayer::new(path, WINDOW, 5)
            .store(Arc::clone(&full))
            .on_error(FailOpen)
    };
    let handler = get(async || "1").layer(layer("first"));
    let first = Router::new().route("/", handler);
    assert_eq!(
        send(&first, "/").await.headers()["ratelimit"],
        "\"first\";r=4;t=60"
    );
    let handler = get(async || "1").layer(layer("first"));
    let both = Router::new().route("/", handler).layer(layer("second"));
    assert_eq!(
        send(&both, "/").await.headers()["ratelimit"],
        "\"first\";r=3;t=60"
    );
}
