//! The bodies of requests that a layer answers by itself: which of them are read on, and which are
//! read to their end before the answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::net::TcpListener;
use tokio::time::sleep;

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

/// The end of the body is the end of the first frame.
const WHOLE: fn(usize) -> Poll<Option<usize>> = |polls| match polls {
    0 => Poll::Ready(Some(100)),
    _ => Poll::Ready(None),
};

fn of_length(bytes: usize) -> Builder {
    Request::builder().header("content-length", bytes)
}

/// The answer to a short upload over HTTP/1 waits for its end, for 100 ms. Others leave at once.
#[tokio::test(start_paused = true)]
async fn which_answers_wait() {
    let _places = PLACES.lock().await;
    const SILENT: fn(usize) -> Poll<Option<usize>> = |_| Poll::Pending;
    const LATE: u128 = 100;
    let http_2 = || of_length(100).version(Version::HTTP_2);
    let expects = || of_length(100).header("expect", "100-continue");
    let no_key = || layer().key(Header::new("x-key"));
    let callback = || layer().degrade_fn(|_: Denied| async { DENIED });
    let down = || RateLimitLayer::new("down", WINDOW, 1).store(no_store());
    let recovered = || no_key().on_error_fn(|_: Failed| async { DENIED });
    let cases = [
        ("one byte", layer(), of_length(1), SILENT, LATE),
        ("64 KiB", layer(), of_length(65_536), SILENT, LATE),
        ("more", layer(), of_length(65_537), SILENT, 0),
        ("no length", layer(), Request::builder(), SILENT, 0),
        (
            "no number",
            layer(),
            Request::builder().header("content-length", "x"),
            SILENT,
            0,
        ),
        ("HTTP/2", layer(), http_2(), SILENT, 0),
        ("100-continue", layer(), expects(), SILENT, 0),
        (
            "the setter",
            layer().close_denied_uploads(),
            of_length(100),
            SILENT,
            0,
        ),
        ("without a key", no_key(), of_length(100), SILENT, LATE),
        ("no decision", down(), of_length(100), SILENT, LATE),
        ("a callback", callback(), of_length(100), SILENT, LATE),
        (
            "an error callback",
            recovered(),
            of_length(100),
            SILENT,
            LATE,
        ),
        ("a body that is there", layer(), of_length(100), WHOLE, 0),
        (
            "one that never ends",
            layer(),
            of_length(100),
            |_| Poll::Ready(Some(FRAME)),
            LATE,
        ),
    ];
    for (case, layer, request, frame, wait) in cases {
        let upload = Upload::of(frame);
        let body = Body::new(upload.clone());
        let request = request.method("POST").body(body).expect("a request");
        let began = Instant::now();
        let answer = call(&app_of(layer), request).await;
        assert!(!answer.status().is_success(), "{case}");
        // The clock of tokio's timers ticks in milliseconds.
        let waited = began.elapsed().as_millis();
        assert!((wait..=wait + 1).contains(&waited), "{case}: {waited} ms");
        sleep(Duration::from_millis(1_990)).await;
        let reads_on = wait == LATE || ["more", "no length", "no number", "HTTP/2"].contains(&case);
        assert_eq!(upload.is_held(), reads_on, "{case}");
        sleep(Duration::from_millis(20)).await;
        assert!(!upload.is_held(), "{case}");
    }
}

/// Who leaves takes nothing along, and a body that fails is at its end.
#[tokio::test(start_paused = true)]
async fn a_short_upload_that_is_left_or_fails() {
    let _places = PLACES.lock().await;
    let failing = futures_util::stream::iter([Ok(Bytes::from("a")), Err("the client has left")]);
    let began = Instant::now();
    let request = of_length(100).body(Body::from_stream(failing));
    let answer = call(&app_of(layer()), request.expect("a request")).await;
    assert_eq!((answer.status(), began.elapsed()), (DENIED, Duration::ZERO));

    let upload = Upload::of(|_| Poll::Pending);
    let request = of_length(100).body(Body::new(upload.clone()));
    let app = app_of(layer());
    let left = call(&app, request.expect("a request"));
    let left = tokio::time::timeout(Duration::from_millis(50), left).await;
    assert!(left.is_err() && upload.is_held());
    sleep(Duration::from_millis(2_100)).await;
    assert!(!upload.is_held());
}

/// Without a timer an answer leaves at once, as without a runtime.
#[test]
fn without_a_timer_no_answer_waits() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let upload = Upload::of(|_| Poll::Pending);
    let denied = async {
        let _places = PLACES.lock().await;
        deny(layer(), of_length(100), &upload).await
    };
    runtime.expect("a runtime").block_on(denied);
    assert!(!upload.is_held());
    let denied = deny(layer(), of_length(100), &upload).now_or_never();
    assert_eq!(denied.flatten().as_deref(), Some("close"));
}

/// A body that is there needs no place. One that has to be waited for takes one, and the answers to
/// those that find none leave at once.
#[tokio::test(start_paused = true)]
async fn short_uploads_above_the_places_do_not_wait() {
    let _places = PLACES.lock().await;
    let silent: Vec<_> = (0..1_100).map(|_| Upload::of(|_| Poll::Pending)).collect();
    let timed = async |upload: &Upload| {
        let began = Instant::now();
        let connection = deny(layer(), of_length(100), upload).await;
        (
            connection.is_some(),
            began.elapsed() < Duration::from_millis(100),
        )
    };
    let answers = join_all(silent.iter().map(timed)).await;
    let closed = answers.iter().filter(|it| **it == (true, true)).count();
    let waited = answers.iter().filter(|it| **it == (false, false)).count();
    assert_eq!((closed, waited), (76, 1_024));
    let there = of_length(100).body(Body::from(vec![0; 100]));
    let answer = call(&app_of(layer()), there.expect("a request")).await;
    assert!(!answer.headers().contains_key(header::CONNECTION));
    sleep(Duration::from_secs(3)).await;
    assert!(silent.iter().all(|upload| !upload.is_held()));
}

/// The file closes connections as the code does, from the next request on.
#[tokio::test(start_paused = true)]
async fn the_file_closes_denied_uploads() {
    let _places = PLACES.lock().await;
    let text = |says| format!("{says}\n[rules.denied]\nmax-count = 0\nwindow = \"1m\"");
    let close = async |layer: RateLimitLayer| {
        let upload = Upload::of(|_| Poll::Pending);
        let connection = deny(layer, of_length(100), &upload).await;
        assert_eq!(upload.is_held(), connection.is_none());
        connection.is_some()
    };
    for (says, closes) in [
        ("", false),
        ("close-denied-uploads = false", false),
        ("close-denied-uploads = true", true),
    ] {
        let limits = of_toml(&text(says));
        let rule = limits
            .rules()
            .load()
            .get("denied")
            .cloned()
            .expect("a rule");
        let of_rule = RateLimitLayer::from_rule(Rule::clone(&rule));
        assert_eq!(close(of_rule).await, closes, "{says}");
        let layer = limits.layer("denied");
        assert_eq!(close(layer.clone()).await, closes, "{says}");
        assert!(close(limits.clone().close_denied_uploads().layer("denied")).await);
        let closing = text("close-denied-uploads = true");
        let rules = Rules::from_toml(&closing).expect("a valid text");
        limits.rules().replace(rules);
        assert!(close(layer).await, "after a reload");
    }
    let wrong = Rules::from_toml(&text("close-denied-uploads = 1")).expect_err("no number");
    let wrong = wrong.to_string();
    assert!(
        wrong.contains("close-denied-uploads: found 1, expected true or false"),
        "{wrong}"
    );
}

/// Serves what denies, has no key, or no decision, and what is denied behind another layer.
async fn serve() -> SocketAddr {
    let read = async |body: Bytes| body.len().to_string();
    let limited = |layer| axum::routing::post(read).layer(layer);
    let outer = || RateLimitLayer::new("outer", WINDOW, 1_000);
    let app = Router::new()
        .route("/429", limited(layer()))
        .route("/400", limited(layer().key(Header::new("x-key"))))
        .route(
            "/503",
            limited(RateLimitLayer::new("down", WINDOW, 1).store(no_store())),
        )
        .route("/429/inner", limited(layer()).layer(outer()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends the head of a request with a body of this length, and then pieces of it, each 10 ms after
/// the one before. Returns how many were sent before an answer came, and how long after the head
/// the last one was sent and the answer came.
fn in_pieces(
    connection: &mut TcpStream,
    path: &str,
    length: usize,
    pieces: &[usize],
) -> (usize, [Duration; 2]) {
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    connection.write_all(head.as_bytes()).expect("is sent");
    let (began, mut sent) = (std::time::Instant::now(), 0);
    let mut last = Duration::ZERO;
    connection.set_nonblocking(true).expect("is set");
    for piece in pieces {
        std::thread::sleep(Duration::from_millis(10));
        if connection.peek(&mut [0]).is_ok() {
            break;
        }
        connection.write_all(&vec![b'x'; *piece]).expect("has room");
        (last, sent) = (began.elapsed(), sent + 1);
    }
    connection.set_nonblocking(false).expect("is set");
    let head = head_of(connection);
    assert!(
        head.starts_with(&format!("HTTP/1.1 {}", &path[1..4])),
        "{head}"
    );
    assert!(!head.contains("connection: close"), "{head}");
    (sent, [last, began.elapsed()])
}

/// The head of an answer, whose body is read, too.
fn head_of(connection: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).expect("an answer");
        answer.extend(byte);
    }
    let head = String::from_utf8(answer).expect("text");
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|it| it.split_once("\r\n")?.0.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    connection.read_exact(&mut body).expect("a body");
    head
}

/// The answer is behind the last byte of a short body that comes in pieces, and the connection has
/// room for the next request. A body that stalls is answered after 100 ms, what is longer at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_is_answered_behind_its_last_byte() {
    let _places = PLACES.lock().await;
    let to = serve().await;
    let test = move || {
        let mut connection = TcpStream::connect(to).expect("connects");
        let quarter = 65_536 / 4;
        for pieces in [
            &[1][..],
            &[1, 99],
            &[40, 30, 30],
            &[quarter; 4],
            &[65_535, 1],
        ] {
            let length = pieces.iter().sum();
            for path in ["/429", "/400", "/503", "/429/inner"] {
                // Where the machine was busy for long enough, the answer is right to be early.
                let mut tries = (0..20).map(|_| in_pieces(&mut connection, path, length, pieces));
                let is_behind = tries.any(|(sent, times)| {
                    assert!(
                        sent == pieces.len() || times[1] > Duration::from_millis(99),
                        "{path}"
                    );
                    sent == pieces.len()
                });
                assert!(is_behind, "{length} bytes to {path}");
            }
        }
        for (length, pieces, waits) in [
            (100, &[][..], true),
            (65_536, &[65_535][..], true),
            (65_537, &[], false),
            (65_537, &[1], false),
        ] {
            let mut connection = TcpStream::connect(to).expect("connects");
            let (sent, [_, after]) = in_pieces(&mut connection, "/429", length, pieces);
            assert_eq!(sent, if waits { pieces.len() } else { 0 }, "{length} bytes");
            assert_eq!(
                after > Duration::from_millis(98),
                waits,
                "{length} bytes: {after:?}"
            );
            assert!(
                after < Duration::from_millis(800),
                "{length} bytes: {after:?}"
            );
        }
    };
    tokio::task::spawn_blocking(test).await.expect("no panic");
}
