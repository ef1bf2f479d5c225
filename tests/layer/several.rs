//! Several layers around one handler: a store that fails costs a request one time-out, and the
//! fields show the tightest limit.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};

use crate::*;

const TIMEOUT: Duration = millis(50);

fn layer(path: &str, store: impl Store, on_error: OnError) -> RateLimitLayer {
    RateLimitLayer::from_rule(per_minute(path, 5).with_on_error(on_error)).store(store)
}

/// A handler behind three layers over this store.
fn three(store: &Arc<dyn Store>, on_error: OnError) -> Router {
    let layer = |path| layer(path, Arc::clone(store), on_error);
    app(layer("inner"))
        .layer(layer("middle"))
        .layer(layer("outer"))
}

fn bounded(far: &Stub) -> Resilient<Stub> {
    Resilient::bare(far.clone()).timeout(TIMEOUT)
}

/// Sends a request that is allowed, and returns how long that took.
async fn allowed(app: &Router) -> Duration {
    let answer = ask(app, "/", "").await;
    assert_eq!(answer.status, 200);
    answer.after
}

#[tokio::test(start_paused = true)]
async fn a_time_out_is_paid_once() {
    let far = far(HOUR);
    let whole = Share::of_processes(1);
    let fallback = || {
        let local = MemoryStore::new().tokio_clock();
        Resilient::bare(bounded(&far))
            .fallback(whole)
            .fallback_store(local)
    };
    let service = || Resilient::new(far.clone()).timeout(TIMEOUT);
    let stores: [(Arc<dyn Store>, OnError); 6] = [
        (Arc::new(bounded(&far)), OnError::Proceed),
        (Arc::new(fallback()), OnError::Fallback),
        (Arc::new(fallback()), OnError::Proceed),
        (
            Arc::new(Resilient::bare(fallback()).timeout(HOUR)),
            OnError::Fallback,
        ),
        (service().fallback(whole).build(), OnError::Fallback),
        (service().denial_cache(None).build(), OnError::Proceed),
    ];
    for (at, (store, on_error)) in stores.iter().enumerate() {
        let app = three(store, *on_error);
        for _ in 0..3 {
            let asked = far.takes().len();
            assert_eq!(allowed(&app).await, TIMEOUT, "store {at}");
            assert_eq!(far.takes().len() - asked, 1, "store {at}: one question");
        }
    }
}

/// Handles to one server that are not the same value.
#[tokio::test(start_paused = true)]
async fn stores_of_one_name_fail_together() {
    let far = far(HOUR);
    let layer = |path| layer(path, bounded(&far), OnError::Proceed);
    let both = app(layer("inner")).layer(layer("outer"));
    assert_eq!(allowed(&both).await, TIMEOUT);

    // Another store is asked.
    let memory = RateLimitLayer::new("memory", WINDOW, 5);
    let response = send(&app(memory).layer(layer("outer")), "/").await;
    assert_eq!(response.headers()["ratelimit"], "\"memory\";r=4;t=60");
}

/// Three slow answers are three decisions: there is no time-out for all of them together.
#[tokio::test(start_paused = true)]
async fn a_slow_store_is_asked_by_every_layer() {
    let far = far(millis(46));
    let store: Arc<dyn Store> = Arc::new(bounded(&far));
    let app = three(&store, OnError::Respond);
    for left in (0..5).rev() {
        let answer = ask(&app, "/", "").await;
        assert_eq!((answer.status, answer.after), (200, millis(3 * 46)));
        let fields: Vec<_> = answer.fields.get_all("ratelimit").iter().collect();
        assert_eq!(fields.len(), 3);
        for field in fields {
            let field = field.to_str().expect("text");
            assert!(field.contains(&format!(";r={left};")), "{field}");
        }
    }
    assert_eq!(far.takes().len(), 15);
}

/// What other middleware does meanwhile counts against nobody: after one time-out the store is
/// asked again.
#[tokio::test(start_paused = true)]
async fn the_store_is_left_alone_for_one_time_out_at_most() {
    let far = far(HOUR);
    let layer = |path| layer(path, bounded(&far), OnError::Proceed);
    let slow = from_fn(async |request: Request, next: Next| {
        sleep(TIMEOUT * 2).await;
        next.run(request).await
    });
    let app = app(layer("inner")).layer(slow).layer(layer("outer"));
    assert_eq!(allowed(&app).await, TIMEOUT * 4);
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
            let text = failed.to_string();
            assert!(text.contains("did not answer within 50ms"), "{text}");
            told.fetch_add(1, Ordering::Relaxed);
            async { Recovery::Proceed }
        });
        RateLimitLayer::new(path, WINDOW, 5)
            .store(bounded(&far))
            .on_error(callback)
    };
    let app = app(layer("inner")).layer(layer("outer"));
    assert_eq!(allowed(&app).await, TIMEOUT);
    assert_eq!(told.load(Ordering::Relaxed), 2);
}

/// The breaker counts a request of three layers once.
#[tokio::test(start_paused = true)]
async fn a_breaker_counts_one_failure() {
    let far = far(HOUR);
    let store = Resilient::new(far.clone()).timeout(TIMEOUT).failures(2);
    let app = three(&store.build(), OnError::Proceed);
    // It is closed after one failure, and open after two.
    for expected in [TIMEOUT, TIMEOUT, Duration::ZERO] {
        assert_eq!(allowed(&app).await, expected);
    }
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
    let both = app(layer("first")).layer(layer("second"));
    for (app, left) in [(app(layer("first")), 4), (both, 3)] {
        let expected = format!("\"first\";r={left};t=60");
        assert_eq!(send(&app, "/").await.headers()["ratelimit"], expected);
    }
}
