//! What tower expects of a middleware.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tidegate::{RateLimitLayer, Store};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::{Stores, WINDOW, get};
use kit::stub::Stub;

/// Panics if it is called without having been polled ready. A clone starts unready.
#[derive(Debug, Default)]
pub(crate) struct Strict {
    ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            ready: false,
            calls: self.calls.clone(),
        }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        self.calls.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(Body::empty())))
    }
}

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
    let stores = Stores::start().await;
    for store in &stores.all {
        let strict = Strict::default();
        let calls = strict.calls.clone();
        let service = layer(store, 3).layer(strict);
        assert_eq!(statuses(service, 6).await, [200, 200, 200, 429, 429, 429]);
        assert_eq!(
            calls.load(Ordering::Relaxed),
            3,
            "a denied request reached the handler"
        );
    }
}

#[tokio::test]
async fn inside_of_and_around_other_middleware() {
    let stores = Stores::start().await;
    for store in &stores.all {
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

/// A denied request must not keep what the ready instance has reserved.
#[tokio::test]
async fn a_denial_gives_the_readiness_back() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let mut first = ServiceBuilder::new()
            .layer(layer(store, 0))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        let mut second = first.clone();
        let denied = first
            .ready()
            .await
            .expect("ready")
            .call(get("/"))
            .await
            .expect("answers");
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        let ready = tokio::time::timeout(Duration::from_secs(20), second.ready()).await;
        assert!(ready.is_ok(), "the first service still holds the permit");
    }
}

/// Nor may it while a degrade callback takes its time.
#[tokio::test]
async fn a_slow_degrade_callback_holds_nothing() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let (started, mut has_started) = tokio::sync::mpsc::channel(1);
        let never = move |_: tidegate::Denied| {
            let started = started.clone();
            async move {
                let _ = started.send(()).await;
                std::future::pending::<()>().await;
            }
        };
        let mut first = ServiceBuilder::new()
            .layer(layer(store, 0).degrade(never))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        let mut second = first.clone();
        let ready = first.ready().await.expect("ready");
        let denied = tokio::spawn(ready.call(get("/")));
        has_started.recv().await.expect("the callback starts");
        let ready = tokio::time::timeout(Duration::from_secs(20), second.ready()).await;
        assert!(ready.is_ok(), "the denied request still holds the permit");
        denied.abort();
    }
}

/// One request is one question to the store.
#[tokio::test]
async fn the_store_is_asked_once() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let counting = Stub::around(Arc::clone(store)).take_fn(move |store, take| {
            counted.fetch_add(1, Ordering::Relaxed);
            store.take(take)
        });
        let store: Arc<dyn Store> = Arc::new(counting);
        let service = layer(&store, 2).layer(Strict::default());
        assert_eq!(statuses(service, 3).await, [200, 200, 429]);
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}

/// A future that is dropped while the store is asked gives it back as well.
#[tokio::test]
async fn a_dropped_future_gives_the_readiness_back() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let mut first = ServiceBuilder::new()
            .layer(layer(store, 1_000))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        let mut second = first.clone();
        let mut asked = Box::pin(first.ready().await.expect("ready").call(get("/")));
        let _ = futures_util::poll!(&mut asked);
        drop(asked);
        let ready = tokio::time::timeout(Duration::from_secs(20), second.ready()).await;
        assert!(ready.is_ok(), "the dropped future still holds the permit");
    }
}

/// The limit is one, however many services and clones a layer makes.
#[tokio::test]
async fn clones_share_the_limit() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let layer = layer(store, 4);
        let first = layer.layer(Strict::default());
        let second = layer.clone().layer(Strict::default());
        let mut allowed = 0;
        for service in [first.clone(), second.clone(), first, second] {
            let statuses = statuses(service, 2).await;
            allowed += statuses.iter().filter(|status| **status == 200).count();
        }
        assert_eq!(allowed, 4);
    }
}

/// Also without a store of its own choice.
#[tokio::test]
async fn a_layers_own_store_is_shared_by_its_services() {
    let layer = RateLimitLayer::new("own", WINDOW, 3);
    assert_eq!(
        statuses(layer.layer(Strict::default()), 2).await,
        [200, 200]
    );
    assert_eq!(
        statuses(layer.layer(Strict::default()), 2).await,
        [200, 429]
    );
}

/// It is made when it is needed: that takes a while, and most layers get another store.
#[test]
fn a_layers_own_store_is_made_when_something_is_wrapped() {
    let layer = RateLimitLayer::new("own", WINDOW, 3);
    assert!(format!("{layer:?}").contains("store: None"));
    let clone = layer.clone();
    let service = layer.layer(Strict::default());
    assert!(format!("{service:?}").contains("store: Some(MemoryStore"));
    assert!(format!("{clone:?}").contains("store: Some(MemoryStore"));
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
    let mut first = ServiceBuilder::new()
        .layer(layer(&crate::no_store(), 1).on_error(slow))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(Strict::default());
    let mut second = first.clone();
    let failed = tokio::spawn(first.ready().await.expect("ready").call(get("/")));
    has_started.recv().await.expect("the callback starts");
    let ready = tokio::time::timeout(Duration::from_secs(20), second.ready()).await;
    assert!(ready.is_ok(), "the failed request still holds the permit");
    drop(second);
    go_on.send(true).expect("it waits");
    let response = failed.await.expect("no panic").expect("answers");
    assert_eq!(response.status(), StatusCode::OK);
}

/// The names can be written down, and what a server wants of them holds.
#[test]
fn types_are_nameable_clone_and_send() {
    fn is_good<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    fn is_send<T: Send>() {}
    is_good::<RateLimitLayer>();
    is_good::<tidegate::layer::RateLimit<Strict>>();
    is_send::<tidegate::layer::ResponseFuture<Strict, Body>>();
}
