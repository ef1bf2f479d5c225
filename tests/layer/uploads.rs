//! The bodies of requests that a layer answers by itself: which of them are read on.

use axum::body::Bytes;
use http::Version;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use crate::*;

/// A body that counts how often it is polled, until it is dropped.
#[derive(Clone)]
struct Upload {
    polls: Arc<AtomicUsize>,
    frame: fn(usize) -> Poll<Option<usize>>,
}

const FRAME: usize = 1 << 16;

/// Four frames.
const SHORT: fn(usize) -> Poll<Option<usize>> = |polls| Poll::Ready((polls < 4).then_some(FRAME));

impl Upload {
    fn of(frame: fn(usize) -> Poll<Option<usize>>) -> Self {
        let polls = Arc::default();
        Self { polls, frame }
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::SeqCst)
    }

    /// Whether something else still holds the body.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.polls) > 1
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = (self.frame)(self.polls.fetch_add(1, Ordering::SeqCst));
        frame.map(|it| it.map(|bytes| Ok(Frame::data(Bytes::from(vec![0; bytes])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn layer() -> RateLimitLayer {
    RateLimitLayer::new("denied", WINDOW, 0)
}

/// Sends the upload as this request, which is denied.
async fn deny(layer: RateLimitLayer, request: Builder, upload: &Upload) {
    let app = Router::new().fallback_service(layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    })));
    let body = Body::new(upload.clone());
    let answer = call(&app, request.method("POST").body(body).expect("a request")).await;
    assert_eq!(answer.status(), DENIED);
}

/// A client sends what nobody reads, unless it waits for a `100 Continue`.
#[tokio::test(start_paused = true)]
async fn which_bodies_are_read_on() {
    let post = Request::builder;
    let awaits = || post().header("expect", "100-Continue");
    let cases = [
        ("HTTP/1.1", layer(), post(), 5),
        ("HTTP/1.0", layer(), post().version(Version::HTTP_10), 5),
        ("HTTP/2", layer(), post().version(Version::HTTP_2), 5),
        ("100-continue", layer(), awaits(), 0),
        ("the setter", layer().close_denied_uploads(), post(), 0),
    ];
    for (case, layer, request, polls) in cases {
        let upload = Upload::of(SHORT);
        deny(layer, request, &upload).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(upload.polls(), polls, "{case}");
        assert!(!upload.is_held(), "{case}");
    }
    let defaults = Limits::new([Rule::new("denied", [Quota::per_minute(0)]).expect("a rule")]);
    let upload = Upload::of(SHORT);
    deny(
        defaults.close_denied_uploads().layer("denied"),
        post(),
        &upload,
    )
    .await;
    assert!(!upload.is_held(), "the setter of Limits");
}

/// For at most 2 s and 16 MiB.
#[tokio::test(start_paused = true)]
async fn how_far_they_are_read() {
    let limits = Limits::new([Rule::new("denied", [Quota::per_minute(0)]).expect("a rule")]);
    let silent = Upload::of(|_| Poll::Pending);
    let endless = Upload::of(|_| Poll::Ready(Some(FRAME)));
    for upload in [&silent, &endless] {
        deny(limits.layer("denied"), Request::builder(), upload).await;
    }
    tokio::time::sleep(Duration::from_millis(1_990)).await;
    assert!(silent.is_held() && endless.is_held());
    assert_eq!(endless.polls(), (16 << 20) / FRAME + 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!silent.is_held() && !endless.is_held());
    assert_eq!(limits.snapshot().rules[0].closed_uploads, 2);
}
