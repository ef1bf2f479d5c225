//! Services that fail, and responses of all kinds.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::{FutureExt, StreamExt, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::*;

/// Behind a layer, on a clone of it.
async fn one(limits: &Limits, answer: fn(Request) -> Response) -> Response {
    let service = service_fn(move |request| async move { Ok::<_, Infallible>(answer(request)) });
    let service = limits.layer("p").layer(service);
    let response = service.oneshot(Request::new(Body::empty())).await;
    response.expect("it does not fail").into_response()
}

/// Bodies that are empty, that are read, dropped, dropped in the middle, and that fail.
#[tokio::test]
async fn responses_of_all_kinds() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(1), store);
        let answers: [fn(Request) -> Response; 5] = [
            |_| StatusCode::NO_CONTENT.into_response(),
            |_| "text".into_response(),
            |_| StatusCode::SWITCHING_PROTOCOLS.into_response(),
            |_| {
                let parts = [
                    Ok(Bytes::from("part")),
                    Err(std::io::Error::other("broken")),
                ];
                Body::from_stream(stream::iter(parts)).into_response()
            },
            |_| {
                let parts = stream::iter([Ok::<_, Infallible>(Bytes::from("part"))]);
                Body::from_stream(parts.chain(stream::pending())).into_response()
            },
        ];
        for answer in answers {
            drop(one(&limits, answer).await);
            until_free(&limits, "k", 1).await;
            let mut body = one(&limits, answer).await.into_body();
            // Until its end, or until nothing comes any more.
            while let Some(Some(Ok(_))) = body.frame().now_or_never() {}
            drop(body);
            until_free(&limits, "k", 1).await;
        }
        // A body that ends is enough: its response may live longer.
        let mut body = one(&limits, |_| "text".into_response()).await.into_body();
        assert_eq!(left(&limits, "k").await, 0, "it streams");
        while body.frame().await.is_some() {}
        until_free(&limits, "k", 1).await;
        drop(body);
    }
    until_held(&server, 0).await;
}

/// How a service goes wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Fails,
    Panics,
    PanicsLater,
    NeverAnswers,
    NeverReady,
    NotReadyAnyMore,
}

impl Service<Request> for Wrong {
    type Response = Response;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match self {
            Self::NeverReady => Poll::Pending,
            Self::NotReadyAnyMore => Poll::Ready(Err(std::io::Error::other("closed"))),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _: Request) -> Self::Future {
        let wrong = *self;
        assert!(!matches!(wrong, Self::Panics), "it panics");
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(!matches!(wrong, Self::PanicsLater), "it panics");
            match wrong {
                Self::NeverAnswers => std::future::pending().await,
                _ => Err(std::io::Error::other("failed")),
            }
        })
    }
}

#[tokio::test]
async fn services_that_fail() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(1), store);
        for wrong in [
            Wrong::Fails,
            Wrong::Panics,
            Wrong::PanicsLater,
            Wrong::NeverAnswers,
            Wrong::NeverReady,
            Wrong::NotReadyAnyMore,
        ] {
            for wait in [Duration::ZERO, PATIENT] {
                let service = limits.layer("p").wait(wait).layer(wrong);
                let task = tokio::spawn(service.oneshot(Request::new(Body::empty())));
                sleep(millis(30)).await;
                task.abort();
                println!("{wrong:?}: {:?}", task.await.map(|it| it.is_ok()));
                until_free(&limits, "k", 1).await;
            }
        }
    }
    until_held(&server, 0).await;
}

/// A denied request holds nothing, however long its callback takes, and whatever becomes of it.
#[tokio::test]
async fn callbacks_that_take_long() {
    let server = Redis::start();
    for store in stores(&server).await {
        for (rule, max) in [(at_a_time(1), 1), (with_quota(1, 2), 2)] {
            let called = Arc::new(tokio::sync::Notify::new());
            let calls = Arc::clone(&called);
            let limits = limits(rule, Arc::clone(&store)).degrade_fn(move |_| {
                calls.notify_one();
                async {
                    sleep(4 * PATIENT).await;
                    StatusCode::TOO_MANY_REQUESTS
                }
            });
            limits.reset("p", "k").await.expect("an answer");
            let first = check(&limits, "k").await.expect("free");
            let app = Router::new().route("/", any(async || "1").layer(limits.layer("p")));
            let denied = tokio::spawn(app.oneshot(Request::new(Body::empty())));
            called.notified().await;
            drop(first);
            limits.reset("p", "k").await.expect("an answer");
            let began = Instant::now();
            let peek = async || limits.peek("p", "k").await.expect("an answer");
            while peek()
                .await
                .expect("a rule")
                .quotas()
                .last()
                .expect("permits")
                .remaining()
                < max
            {
                assert!(began.elapsed() < PATIENT);
                sleep(millis(5)).await;
            }
            assert!(!denied.is_finished(), "it still answers");
            denied.abort();
            drop(denied.await);
        }
    }
    until_held(&server, 0).await;
}

/// A handler that runs on behind an upgraded connection holds the permit of a check.
#[tokio::test]
async fn a_socket_holds_the_permit_of_a_check() {
    let server = Redis::start();
    for store in stores(&server).await {
        let limits = limits(at_a_time(2), store);
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let admitted = limits.check("p", "k").into_future();
        let socket = tokio::spawn(async move {
            let _permit = admitted.await.expect("free").permit;
            let _ = ended.await;
        });
        let began = Instant::now();
        while left(&limits, "k").await != 1 {
            assert!(began.elapsed() < PATIENT);
            sleep(millis(5)).await;
        }
        drop(one(&limits, |_| StatusCode::SWITCHING_PROTOCOLS.into_response()).await);
        while left(&limits, "k").await != 1 {
            assert!(began.elapsed() < PATIENT);
            sleep(millis(5)).await;
        }
        drop(end);
        socket.await.expect("no panic");
        until_free(&limits, "k", 2).await;
    }
    until_held(&server, 0).await;
}
