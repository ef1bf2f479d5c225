//! The bodies of requests that a layer answers by itself: which of them are read on.

use axum::body::Bytes;
use http::{Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use crate::*;

/// A process reads only so many uploads on: one test at a time counts on a place.
static PLACES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

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

fn app_of(layer: RateLimitLayer) -> Router {
    Router::new().fallback_service(layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    })))
}

/// Sends the upload as this request, which is denied. Returns what the answer says of the connection.
async fn deny(layer: RateLimitLayer, request: Builder, upload: &Upload) -> Option<String> {
    let body = Body::new(upload.clone());
    let answer = call(
        &app_of(layer),
        request.method("POST").body(body).expect("a request"),
    )
    .await;
    assert_eq!(answer.status(), DENIED);
    let connection = answer.headers().get(header::CONNECTION);
    connection.map(|it| it.to_str().expect("text").to_owned())
}

/// A client sends what nobody reads, unless it waits for a `100 Continue`.
#[tokio::test(start_paused = true)]
async fn which_bodies_are_read_on() {
    let _places = PLACES.lock().await;
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

/// Where the rest of a body may stay unread, the answer says that its connection closes: a proxy would
/// give it to the next request.
#[tokio::test(start_paused = true)]
async fn which_answers_close_their_connection() {
    let _places = PLACES.lock().await;
    const MOST: usize = 16 << 20;
    let post = Request::builder;
    let of_length = |bytes: usize| post().header("content-length", bytes);
    let http_2 = || post().version(Version::HTTP_2);
    let own = |_: Denied| async { ([("connection", "x-own")], DENIED) };
    let late = |_: Denied| async { DENIED };
    let close = Some("close");
    let cases = [
        ("of no known length", layer(), post(), None),
        ("16 MiB", layer(), of_length(MOST), None),
        ("more", layer(), of_length(MOST + 1), close),
        (
            "more than a number",
            layer(),
            post().header("content-length", "99999999999999999999"),
            close,
        ),
        (
            "HTTP/1.0",
            layer(),
            of_length(MOST + 1).version(Version::HTTP_10),
            close,
        ),
        (
            "HTTP/2",
            layer().close_denied_uploads(),
            http_2().header("content-length", MOST + 1),
            None,
        ),
        (
            "100-continue",
            layer(),
            post().header("expect", "100-continue"),
            close,
        ),
        ("the setter", layer().close_denied_uploads(), post(), close),
        (
            "a callback's own",
            layer().degrade_fn(own),
            of_length(MOST + 1),
            Some("x-own"),
        ),
        (
            "a callback",
            layer().degrade_fn(late),
            of_length(MOST + 1),
            close,
        ),
        (
            "without a key",
            layer().key(Header::new("x-key")).degrade_fn(late),
            of_length(MOST + 1),
            close,
        ),
    ];
    for (case, layer, request, expected) in cases {
        let upload = Upload::of(SHORT);
        let body = Body::new(upload.clone());
        let app = app_of(layer);
        let answer = call(&app, request.method("POST").body(body).expect("a request")).await;
        let connection = answer.headers().get(header::CONNECTION);
        let connection = connection.map(|it| it.to_str().expect("text"));
        assert_eq!(connection, expected, "{case}");
    }
    let app = app_of(layer().close_denied_uploads());
    let empty = Request::post("/").body(Body::empty()).expect("a request");
    let answer = call(&app, empty).await;
    assert!(!answer.headers().contains_key(header::CONNECTION));
}

/// A process reads 1,024 uploads on. Further ones close their connections, and say so.
#[tokio::test(start_paused = true)]
async fn more_than_are_read_on_say_so() {
    let _places = PLACES.lock().await;
    let silent: Vec<_> = (0..1_025).map(|_| Upload::of(|_| Poll::Pending)).collect();
    let mut closed = 0;
    for upload in &silent {
        let connection = deny(layer(), Request::builder(), upload).await;
        closed += usize::from(connection.as_deref() == Some("close"));
    }
    assert_eq!(closed, 1);
    // The places are given back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(silent.iter().all(|upload| !upload.is_held()));
}

/// For at most 2 s, and what is longer than 16 MiB at a pace.
#[tokio::test(start_paused = true)]
async fn how_far_they_are_read() {
    let _places = PLACES.lock().await;
    let limits = Limits::new([Rule::new("denied", [Quota::per_minute(0)]).expect("a rule")]);
    let deny = async |frame: fn(usize) -> Poll<Option<usize>>| {
        let upload = Upload::of(frame);
        deny(limits.layer("denied"), Request::builder(), &upload).await;
        upload
    };
    let silent = deny(|_| Poll::Pending).await;
    let endless = deny(|_| Poll::Ready(Some(FRAME))).await;
    tokio::time::sleep(Duration::from_millis(1_990)).await;
    assert!(silent.is_held() && endless.is_held());
    let bytes = endless.polls() * FRAME;
    assert!((200 << 20..=290 << 20).contains(&bytes), "{bytes} bytes");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!silent.is_held() && !endless.is_held());
    assert_eq!(limits.snapshot().rules[0].closed_uploads, 2);
    // However long it is, a body that ends in time is read to its end.
    const LONG: usize = (40 << 20) / FRAME;
    let long = deny(|polls| Poll::Ready((polls < LONG).then_some(FRAME))).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!long.is_held());
    assert_eq!(long.polls(), LONG + 1);
    assert_eq!(limits.snapshot().rules[0].closed_uploads, 2);
}
