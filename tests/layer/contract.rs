//! What tower expects of a middleware.

use kit::Strict;
use tidegate::layer::RateLimit;
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::limit::{ConcurrencyLimit, ConcurrencyLimitLayer};
use tower::load_shed::LoadShedLayer;

use crate::*;

fn layer(store: &Arc<dyn Store>, max: u64) -> RateLimitLayer {
    RateLimitLayer::new("contract", WINDOW, max).store(store.clone())
}

/// Calls the same service again and again, as a connection does.
async fn statuses<S>(mut service: S, times: usize) -> Vec<u16>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Error: std::fmt::Debug,
{
    let mut statuses = Vec::new();
    for _ in 0..times {
        let ready = service.ready().await.expect("gets ready");
        let response = ready.call(get("/")).await.expect("answers");
        statuses.push(response.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn only_the_instance_that_is_ready_is_called() {
    for store in &Stores::start().await.all {
        let strict = Strict::default();
        let calls = strict.calls.clone();
        let service = layer(store, 3).layer(strict);
        assert_eq!(statuses(service, 6).await, [200, 200, 200, 429, 429, 429]);
        // No denied request reached the handler.
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }
}

#[tokio::test]
async fn inside_of_and_around_other_middleware() {
    for store in &Stores::start().await.all {
        let all = ServiceBuilder::new()
            .layer(BufferLayer::new(4))
            .layer(LoadShedLayer::new())
            .layer(ConcurrencyLimitLayer::new(2))
            .layer(layer(store, 3))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        assert_eq!(statuses(all, 5).await, [200, 200, 200, 429, 429]);
        let around_buffer = ServiceBuilder::new()
            .layer(layer(store, 5))
            .layer(LoadShedLayer::new())
            .layer(BufferLayer::new(1))
            .service(Strict::default());
        assert_eq!(statuses(around_buffer, 4).await, [200, 200, 429, 429]);
    }
}

/// A service that serves one request at a time, behind this layer, and another handle on it.
fn one_at_a_time(layer: RateLimitLayer) -> [RateLimit<ConcurrencyLimit<Strict>>; 2] {
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(ConcurrencyLimitLayer::new(1))
        .service(Strict::default());
    [service.clone(), service]
}

/// Whether the first of two handles has left the second one its turn.
async fn is_free(second: &mut RateLimit<ConcurrencyLimit<Strict>>) -> bool {
    timeout(PATIENT, second.ready()).await.is_ok()
}

/// A denied request must not keep what the ready instance has reserved.
#[tokio::test]
async fn a_denial_gives_the_readiness_back() {
    for store in &Stores::start().await.all {
        let [mut first, mut second] = one_at_a_time(layer(store, 0));
        let denied = first.ready().await.expect("ready").call(get("/")).await;
        assert_eq!(denied.expect("answers").status(), DENIED);
        assert!(is_free(&mut second).await);
    }
}

/// Nor may it while a degrade callback takes its time.
#[tokio::test]
async fn a_slow_degrade_callback_holds_nothing() {
    for store in &Stores::start().await.all {
        let (started, mut has_started) = tokio::sync::mpsc::channel(1);
        let never = move |_: tidegate::Denied| {
            let started = started.clone();
            async move {
                let _ = started.send(()).await;
                std::future::pending::<()>().await;
            }
        };
        let [mut first, mut second] = one_at_a_time(layer(store, 0).degrade(never));
        let ready = first.ready().await.expect("ready");
        let denied = tokio::spawn(ready.call(get("/")));
        has_started.recv().await.expect("the callback starts");
        assert!(is_free(&mut second).await);
        denied.abort();
    }
}

/// A future that is dropped while the store is asked gives it back as well.
#[tokio::test]
async fn a_dropped_future_gives_the_readiness_back() {
    for store in &Stores::start().await.all {
        let [mut first, mut second] = one_at_a_time(layer(store, 1_000));
        let mut asked = Box::pin(first.ready().await.expect("ready").call(get("/")));
        let _ = futures_util::poll!(&mut asked);
        drop(asked);
        assert!(is_free(&mut second).await);
    }
}

/// Also without a store of its own choice.
#[tokio::test]
async fn a_layers_own_store_is_shared_by_its_services() {
    let layer = RateLimitLayer::new("own", WINDOW, 3);
    for expected in [[200, 200], [200, 429]] {
        let service = layer.layer(Strict::default());
        assert_eq!(statuses(service, 2).await, expected);
    }
}

/// An error callback takes its time, too.
#[tokio::test]
async fn a_slow_error_callback_holds_nothing() {
    let (started, mut has_started) = tokio::sync::mpsc::channel(1);
    let (go_on, may_go_on) = tokio::sync::watch::channel(false);
    let slow = move |_: tidegate::Failed| {
        let (started, mut may_go_on) = (started.clone(), may_go_on.clone());
        async move {
            let _ = started.send(()).await;
            let _ = may_go_on.wait_for(|may| *may).await;
            tidegate::Recovery::Proceed
        }
    };
    let undecided = layer(&crate::no_store(), 1);
    let [mut first, mut second] = one_at_a_time(undecided.on_error(slow));
    let failed = tokio::spawn(first.ready().await.expect("ready").call(get("/")));
    has_started.recv().await.expect("the callback starts");
    assert!(is_free(&mut second).await);
    drop(second);
    go_on.send(true).expect("it waits");
    let response = failed.await.expect("no panic").expect("answers");
    assert_eq!(response.status(), OK);
}

/// The names can be written down, and what a server wants of them holds.
#[test]
fn types_are_nameable_clone_and_send() {
    fn is_good<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    fn is_send<T: Send>() {}
    is_good::<RateLimitLayer>();
    is_good::<RateLimit<Strict>>();
    is_send::<tidegate::layer::ResponseFuture<Strict, Body>>();
}
