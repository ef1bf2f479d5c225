//! Requests that wait for units.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::future::{join_all, select};
use http::{Request, Response, StatusCode};
use tidegate::decision::Verdict;
use tidegate::{Header, MemoryStore, RateLimitLayer, Store, Take};
use tokio::time::{Instant, sleep, timeout};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::contract::Strict;
use crate::{Stores, get, send, status, store_on};
use kit::app;
use kit::stub::always;
use kit::stub::far;

const SECOND: Duration = Duration::from_secs(1);
const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn layer(store: impl Store) -> RateLimitLayer {
    RateLimitLayer::new("paced", SECOND, 2).store(store)
}

fn paused() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new().tokio_clock())
}

fn tenant() -> Header {
    Header::new("x-tenant")
}

fn of(tenant: &str) -> Request<Body> {
    let request = Request::get("/").header("x-tenant", tenant);
    request.body(Body::empty()).expect("valid")
}

/// In tenths of a second, when each of this many requests at once is answered, and how.
async fn burst(app: &Router, number: usize) -> Vec<(u128, StatusCode)> {
    let began = Instant::now();
    let answers = (0..number).map(|_| async {
        let status = status(app, "/").await;
        (began.elapsed().as_millis() / 100, status)
    });
    let mut answers = join_all(answers).await;
    answers.sort_unstable();
    answers
}

/// Both with a store that answers at once and with one that has to be waited for.
#[tokio::test(start_paused = true)]
async fn requests_wait_as_long_as_it_can_help() {
    for store in [paused() as Arc<dyn Store>, Arc::new(far(SECOND / 100))] {
        let app = app(layer(store).wait(5 * SECOND / 2));
        let expected = [
            (0, OK),
            (0, OK),
            (10, OK),
            (10, OK),
            // Those left would be served after three seconds.
            (20, OK),
            (20, OK),
            (20, DENIED),
            (20, DENIED),
        ];
        assert_eq!(burst(&app, 8).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_in_vain_is_denied_at_once() {
    let app = app(layer(paused()).wait(SECOND * 9 / 10));
    let answers = burst(&app, 5).await;
    assert!(answers.iter().all(|(at, _)| *at == 0), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_is_forever() {
    let app = app(layer(paused()).wait(Duration::MAX));
    let answers = burst(&app, 20).await;
    assert_eq!(answers.last(), Some(&(90, OK)));
    // Also where no instant is that late.
    for retry_after in [Duration::ZERO, Duration::MAX] {
        let denies = || always(Verdict::Denied { retry_after });
        let forever = self::app(layer(denies()).wait(Duration::MAX));
        assert!(timeout(60 * SECOND, status(&forever, "/")).await.is_err());
        let bounded = self::app(layer(denies()).wait(SECOND));
        let answer = timeout(2 * SECOND, status(&bounded, "/")).await;
        assert_eq!(answer.expect("the deadline is over"), DENIED);
    }
}

/// One question when the request arrives, and one after its retry-after, marked as a repeat.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_asks_when_it_can_help() {
    let store = far(SECOND / 100);
    let app = app(layer(store.clone()).wait(5 * SECOND));
    for _ in 0..3 {
        assert_eq!(status(&app, "/").await, OK);
    }
    let repeats: Vec<_> = store.takes().iter().map(Take::is_repeat).collect();
    assert_eq!(repeats, [false, false, false, true]);
}

/// Law: what is free is granted. No queue stands in front of a newcomer.
#[tokio::test(start_paused = true)]
async fn free_units_go_to_whoever_asks() {
    let costly = |head: &http::request::Parts| if head.headers.is_empty() { 1 } else { 2 };
    let app = app(layer(paused()).cost(costly).wait(60 * SECOND));
    assert_eq!(status(&app, "/").await, OK);
    let waits = tokio::spawn(app.clone().oneshot(of("costs two")));
    sleep(SECOND / 10).await;
    let began = Instant::now();
    assert_eq!(status(&app, "/").await, OK);
    assert_eq!(began.elapsed(), Duration::ZERO);
    let answer = waits.await.expect("no panic").expect("axum does not fail");
    assert_eq!(answer.status(), OK);
}

/// Units may become free before the retry-after.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_found_within_a_second() {
    let store = paused();
    let layer = RateLimitLayer::new("paced", 60 * SECOND, 1).store(Arc::clone(&store));
    let app = app(layer.wait(Duration::MAX));
    let first = send(&app, "/").await;
    let decision = tidegate::Decision::from_extensions(first.extensions());
    let receipt = decision
        .and_then(tidegate::Decision::receipt)
        .expect("charged");
    let waits = tokio::spawn({
        let app = app.clone();
        async move { status(&app, "/").await }
    });
    sleep(SECOND / 10).await;
    let quota = tidegate::Quota::new(60 * SECOND, 1).expect("valid");
    let rule = tidegate::Rule::new("paced", [quota]).expect("valid");
    let take = Take::new(Arc::new(rule), tidegate::Key::default());
    assert_eq!(store.refund(&take, &receipt).await.expect("an answer"), 1);
    let answer = timeout(2 * SECOND, waits).await.expect("in time");
    assert_eq!(answer.expect("no panic"), OK);
}

/// Law: after a burst the quota is used again, however far away the store is.
#[tokio::test(start_paused = true)]
async fn waiting_requests_use_the_quota() {
    const MAX: u64 = 400;
    let layer = RateLimitLayer::new("paced", SECOND, MAX).store(far(SECOND / 100));
    let app = app(layer.wait(2 * SECOND));
    let began = Instant::now();
    let mut requests = Vec::new();
    // A burst, and then half as many again as the quota has units.
    for at in 0..4_000_u64 {
        let millis = at.saturating_sub(1_000) * 1_000 / (MAX * 3 / 2);
        let app = app.clone();
        requests.push(tokio::spawn(async move {
            sleep(Duration::from_millis(millis)).await;
            (status(&app, "/").await, began.elapsed())
        }));
    }
    let mut admitted = Vec::new();
    for request in requests {
        let (status, after) = request.await.expect("no panic");
        if status == OK {
            admitted.push(after);
        }
    }
    for second in 1..5 {
        let begin = second * SECOND;
        let within = admitted
            .iter()
            .filter(|after| (begin..begin + SECOND).contains(*after));
        let number = within.count() as u64;
        assert!(number >= MAX * 9 / 10, "{number} in second {second}");
    }
}

/// One key takes at most a quarter of the waiting requests.
#[tokio::test(start_paused = true)]
async fn waiting_requests_are_bounded() {
    for (max, of_key, of_all) in [(12, 3, 12), (3, 1, 3), (1, 1, 1), (0, 0, 0)] {
        let app = app(layer(paused())
            .key(tenant())
            .max_waiting(max)
            .wait(60 * SECOND));
        let began = Instant::now();
        let number = AtomicUsize::new(0);
        let ask = async |tenant: &str| {
            let answer = app.clone().oneshot(of(tenant)).await;
            let status = answer.expect("axum does not fail").status();
            if status == OK && began.elapsed() > SECOND / 2 {
                number.fetch_add(1, Ordering::Relaxed);
            }
            assert!(
                status == OK || began.elapsed() < SECOND / 2,
                "denied after a wait"
            );
        };
        join_all((0..20).map(|_| ask("a"))).await;
        assert_eq!(number.swap(0, Ordering::Relaxed), of_key);
        sleep(10 * SECOND).await;
        let tenants: Vec<_> = (0..10).map(|number| number.to_string()).collect();
        let began_again = began.elapsed();
        let asks = tenants
            .iter()
            .flat_map(|tenant| (0..20).map(move |_| tenant));
        let answers = asks.map(|tenant| async {
            let answer = app.clone().oneshot(of(tenant)).await;
            let is_ok = answer.expect("axum does not fail").status() == OK;
            is_ok && began.elapsed() - began_again > SECOND / 2
        });
        let waited = join_all(answers).await;
        assert_eq!(waited.iter().filter(|waited| **waited).count(), of_all);
    }
}

/// A client that goes away takes nothing and leaves its place to others.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_takes_nothing() {
    let app = app(layer(paused()).max_waiting(8).wait(60 * SECOND));
    assert_eq!(burst(&app, 2).await, [(0, OK), (0, OK)]);
    for _ in 0..50 {
        let request = app.clone().oneshot(get("/"));
        select(Box::pin(request), Box::pin(sleep(SECOND / 300))).await;
    }
    sleep(SECOND).await;
    assert_eq!(burst(&app, 4).await, [(0, OK), (0, OK), (10, OK), (10, OK)]);
}

/// While it waits, a request leaves the inner service to others.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_ready_instance() {
    for store in [paused() as Arc<dyn Store>, Arc::new(far(SECOND / 100))] {
        let mut service = ServiceBuilder::new()
            .layer(layer(store).key(tenant()).wait(60 * SECOND))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        let mut waiting = Vec::new();
        for at in 0..4 {
            let ready = timeout(SECOND / 10, service.ready())
                .await
                .expect("not held");
            let answer = ready.expect("no error").call(of("busy"));
            waiting.push(tokio::spawn(answer));
            sleep(SECOND / 50).await;
            assert_eq!(waiting[at].is_finished(), at < 2);
        }
        let other = timeout(SECOND / 10, service.clone().oneshot(of("other"))).await;
        assert_eq!(other.expect("not held").expect("no error").status(), OK);
        for answer in waiting {
            assert_eq!(
                answer.await.expect("no panic").expect("no error").status(),
                OK
            );
        }
    }
}

/// The service is made ready again for a request that has waited; its errors reach the caller.
#[tokio::test(start_paused = true)]
async fn an_inner_service_that_fails_to_get_ready_is_an_error_of_its_own() {
    /// Only the first `healthy` clones get ready.
    struct Fails(Arc<AtomicUsize>);

    impl Clone for Fails {
        fn clone(&self) -> Self {
            Self(Arc::clone(&self.0))
        }
    }

    impl Service<Request<Body>> for Fails {
        type Response = Response<Body>;
        type Error = std::io::Error;
        type Future = std::future::Ready<Result<Response<Body>, std::io::Error>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), std::io::Error>> {
            let healthy = self.0.load(Ordering::Relaxed);
            self.0.store(healthy.saturating_sub(1), Ordering::Relaxed);
            std::task::Poll::Ready(match healthy {
                0 => Err(std::io::Error::other("broken")),
                _ => Ok(()),
            })
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::ready(Ok(Response::new(Body::empty())))
        }
    }

    let layer = RateLimitLayer::new("paced", SECOND, 1).store(paused());
    let healthy = Arc::new(AtomicUsize::new(2));
    let service = layer.wait(60 * SECOND).layer(Fails(Arc::clone(&healthy)));
    assert!(service.clone().oneshot(get("/")).await.is_ok());
    let error = service.oneshot(get("/")).await.expect_err("not ready");
    assert_eq!(error.to_string(), "broken");
}

/// On Redis and in memory, with the fields of the decision that let it through.
#[tokio::test]
async fn it_works_on_real_stores() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let waiting = RateLimitLayer::new("paced", SECOND / 5, 2)
            .store(Arc::clone(store))
            .wait(60 * SECOND);
        let app = app(waiting);
        let began = Instant::now();
        let answers = join_all((0..8).map(|_| send(&app, "/"))).await;
        for answer in answers {
            assert_eq!(answer.status(), OK);
            assert!(answer.headers().contains_key("ratelimit"));
        }
        assert!(began.elapsed() >= 3 * SECOND / 5);
    }
}

/// A server that goes away while requests wait is a failure, and no denial.
#[tokio::test]
async fn a_store_that_fails_meanwhile_is_a_503() {
    let mut server = kit::Redis::start();
    let layer = RateLimitLayer::new("paced", SECOND, 1).store(store_on(&server).await);
    let app = app(layer.wait(60 * SECOND));
    assert_eq!(status(&app, "/").await, OK);
    let waits = tokio::spawn({
        let app = app.clone();
        async move { status(&app, "/").await }
    });
    sleep(SECOND / 10).await;
    server.kill();
    let answer = waits.await.expect("no panic");
    assert_eq!(answer, StatusCode::SERVICE_UNAVAILABLE);
}
