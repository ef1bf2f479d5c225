//! Bodies that settle when they end, fail or are dropped: once, with what was counted until then.

use std::collections::VecDeque;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::FutureExt;
use http::{HeaderMap, Request};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tidegate::Limits;
use tidegate::store::{Charge, Charges, SettledBody};
use tower::ServiceExt;

use super::{Counted, charge, counted, flushed, per_hour, used};

/// What a frame of a test is.
#[derive(Debug, Clone, Copy)]
enum Part {
    Data(usize),
    Trailers,
    Fails,
    Pending,
}

use Part::{Data, Fails, Pending, Trailers};

#[derive(Debug)]
struct Parts(VecDeque<Part>);

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(part) = self.0.pop_front() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match part {
            Data(length) => Ok(Frame::data(Bytes::from(vec![b'a'; length]))),
            Trailers => Ok(Frame::trailers(HeaderMap::new())),
            Fails => Err(io::Error::other("the model is gone")),
            Pending => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }))
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(100, |data| data.len() as u64)
}

type Counting = SettledBody<Parts, fn(&Frame<Bytes>) -> u64>;

fn counting(charge: &Charge, parts: &[Part]) -> Counting {
    let parts = Parts(parts.iter().copied().collect());
    charge.settle_on_end(parts, length)
}

struct Scene {
    store: Arc<Counted>,
    limits: Limits,
}

impl Scene {
    fn new() -> Self {
        let store = Arc::new(Counted::default());
        let limits = Limits::new([per_hour("p", 1_000)]).store(Arc::clone(&store));
        Self { store, limits }
    }

    async fn used(&self, key: &str) -> u64 {
        flushed(&self.limits).await;
        used(&*self.store, &per_hour("p", 1), key).await
    }
}

/// Ends of all kinds, after each of which the units that were counted are charged, and the store
/// was asked once.
#[tokio::test]
async fn every_end() {
    let scene = Scene::new();
    // The frames, how many are read (all: also the end), and what is used then of 10 reserved.
    let cases: [(&str, &[Part], usize, u64); 10] = [
        ("to the end", &[Data(7), Pending, Data(9)], 9, 16),
        ("with trailers", &[Data(7), Trailers], 9, 107),
        ("less than reserved", &[Data(3)], 9, 3),
        ("a failure", &[Data(7), Data(8), Fails], 9, 15),
        ("a failure at once", &[Fails], 9, 10),
        ("left in the middle", &[Data(20), Data(8), Data(9)], 2, 28),
        ("left before the end was seen", &[Data(20)], 1, 20),
        ("never polled", &[Data(20)], 0, 10),
        ("empty", &[], 9, 10),
        ("empty frames", &[Data(0), Data(0)], 9, 10),
    ];
    for (case, parts, reads, expected) in cases {
        let before = scene.store.asked();
        let one = charge(&scene.limits, "p", case, 10).await;
        let mut body = counting(&one, parts);
        for _ in 0..reads {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        drop(body);
        assert_eq!(scene.used(case).await, expected, "{case}");
        let after = scene.store.asked();
        let asked = after.0 + after.1 - before.0 - before.1;
        assert_eq!(asked, usize::from(expected != 10), "{case}");
        assert_eq!(
            one.settle(900).await.expect("an answer").charged,
            match expected {
                10 => 890,
                _ => 0,
            },
            "{case}: nothing was settled where nothing was counted"
        );
    }
    assert_eq!(counted(&scene.limits, "p").2, 0);
}

/// It settles at its end, not only when it is dropped, and once if it is read on.
#[tokio::test]
async fn the_end_is_before_the_drop() {
    let scene = Scene::new();
    let one = charge(&scene.limits, "p", "x", 10).await;
    let mut body = counting(&one, &[Data(12)]);
    while body.frame().await.is_some() {}
    assert_eq!(scene.used("x").await, 12, "it has ended");
    for _ in 0..3 {
        assert!(body.frame().await.is_none());
    }
    drop(body);
    assert_eq!(scene.used("x").await, 12);
    assert_eq!(scene.store.asked(), (1, 0));

    // A failure is an end, too.
    let one = charge(&scene.limits, "p", "y", 10).await;
    let mut body = counting(&one, &[Data(12), Fails, Data(500)]);
    while body.frame().await.is_some_and(|it| it.is_ok()) {}
    assert_eq!(scene.used("y").await, 12, "it has failed");
    drop(body);
    assert_eq!(scene.used("y").await, 12);
}

/// The closure panics at a frame: those before it are charged, and the charge is not lost.
#[tokio::test]
async fn a_closure_that_panics() {
    let scene = Scene::new();
    let one = charge(&scene.limits, "p", "x", 10).await;
    let parts = Parts([Data(12), Data(3), Data(40)].into());
    let mut body = one.settle_on_end(parts, |frame: &Frame<Bytes>| {
        let length = length(frame);
        assert_ne!(length, 3, "a closure of a test");
        length
    });
    assert!(body.frame().await.is_some());
    let panicked = AssertUnwindSafe(body.frame()).catch_unwind().await;
    assert!(panicked.is_err());
    drop(body);
    assert_eq!(scene.used("x").await, 12);
    // Whoever says too much owes what it may.
    let one = charge(&scene.limits, "p", "y", 10).await;
    let parts = Parts([Data(1), Data(1)].into());
    let body = one.settle_on_end(parts, |_: &Frame<Bytes>| u64::MAX);
    body.collect().await.expect("no failure");
    assert_eq!(scene.used("y").await, 2_000);
}

/// What the body says of its length and its end stays, without charges it is as it was, and a body
/// that nobody asks for its end because it says that it has ended is settled.
#[tokio::test]
async fn the_body_stays_what_it_is() {
    let scene = Scene::new();
    let full = || Full::new(Bytes::from_static(b"twelve bytes"));
    let one = charge(&scene.limits, "p", "x", 10).await;
    let mut body = one.settle_on_end(full(), length);
    assert_eq!(body.size_hint().exact(), Some(12));
    assert!(!body.is_end_stream());
    let frame = body.frame().await.expect("a frame").expect("no failure");
    assert_eq!(frame.into_data().expect("data"), "twelve bytes");
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    drop(body);
    assert_eq!(scene.used("x").await, 12);

    let none = Charges::from_iter([]).settle_on_end(full(), length);
    let size: SizeHint = none.size_hint();
    assert_eq!(size.exact(), Some(12));
    let all = none.collect().await.expect("no failure").to_bytes();
    assert_eq!(all, "twelve bytes");
}

/// Behind a layer: the response streams after the handler has ended, and a client that leaves pays
/// for what it was sent.
#[tokio::test]
async fn a_response_that_streams() {
    let scene = Scene::new();
    let handler = async |charges: Charges| {
        let parts = Parts([Data(30), Pending, Data(30), Data(500)].into());
        Body::new(charges.of("p").settle_on_end(parts, length))
    };
    let layer = scene.limits.layer("p").cost(|_| 10);
    let app = Router::new().route("/", get(handler).layer(layer));
    let send = async || {
        let request = Request::get("/").body(Body::empty()).expect("valid");
        let response = app
            .clone()
            .oneshot(request)
            .await
            .expect("axum does not fail");
        response.into_body()
    };
    let mut body = send().await;
    assert_eq!(scene.used("x").await, 10, "it has not begun");
    body.frame().await.expect("a frame").expect("no failure");
    body.frame().await.expect("a frame").expect("no failure");
    drop(body);
    assert_eq!(scene.used("x").await, 60, "the client has left");
    drop(send().await);
    assert_eq!(scene.used("x").await, 70, "leaving early is not free");
    send().await.collect().await.expect("no failure");
    assert_eq!(scene.used("x").await, 630);
    assert_eq!(counted(&scene.limits, "p"), (50 + 550, 0, 0));
}

/// Beside a rule that gives back by outcome: the head decides first. What it keeps is settled by
/// the body, and what it has given back is not charged again.
#[tokio::test]
async fn beside_an_outcome() {
    let store = Arc::new(Counted::default());
    let rule = per_hour("p", 1_000).with_refund_on(["5xx"]).expect("valid");
    let limits = Limits::new([rule]).store(Arc::clone(&store));
    let scene = Scene { store, limits };
    for (status, expected) in [(200_u16, 40), (503, 40)] {
        let handler = move |charges: Charges| async move {
            let parts = Parts([Data(30), Data(10)].into());
            let body = Body::new(charges.of("p").settle_on_end(parts, length));
            let response = http::Response::builder().status(status);
            response.body(body).expect("a valid response")
        };
        let layer = scene.limits.layer("p").cost(|_| 10);
        let app = Router::new().route("/", get(handler).layer(layer));
        let request = Request::get("/").body(Body::empty()).expect("valid");
        let response = app.oneshot(request).await.expect("axum does not fail");
        response.into_body().collect().await.expect("no failure");
        assert_eq!(scene.used("x").await, expected, "{status}");
    }
}
