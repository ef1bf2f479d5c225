//! The bodies of requests that a layer answers by itself: which of them are read on, and which are
//! read to their end before the answer.

use std::io::Write;
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
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

/// Sends the upload as this request, which is denied. Returns what the answer says of its
/// connection.
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

/// The end of the body is the end of the first frame.
const WHOLE: fn(usize) -> Poll<Option<usize>> = |polls| match polls {
    0 => Poll::Ready(Some(100)),
    _ => Poll::Ready(None),
};
const SILENT: fn(usize) -> Poll<Option<usize>> = |_| Poll::Pending;
const ENDLESS: fn(usize) -> Poll<Option<usize>> = |_| Poll::Ready(Some(FRAME));

fn of_length(bytes: usize) -> Builder {
    Request::builder().header("content-length", bytes)
}

/// The status of an answer, what it says of its connection, how often the first body was polled
/// 10 ms behind it; how many milliseconds the other answer waited, and whether its body is read on
/// 1,990 ms behind it.
async fn treated(
    case: &str,
    (layer, request): (RateLimitLayer, Builder),
    [short, slow]: [Upload; 2],
) -> String {
    let request = request.method("POST").body(()).expect("a request");
    let ask = async |upload: &Upload| {
        let request = request.clone().map(|()| Body::new(upload.clone()));
        let began = Instant::now();
        let answer = call(&app_of(layer.clone()), request).await;
        let connection = answer.headers().get(header::CONNECTION);
        let connection = connection.map_or("-", |it| it.to_str().expect("text"));
        let said = format!("{} {connection}", answer.status().as_u16());
        (said, began.elapsed().as_millis())
    };
    let (said, _) = ask(&short).await;
    sleep(kit::millis(10)).await;
    let (polls, is_left) = (short.polls(), !short.is_held());
    let (of_slow, waited) = ask(&slow).await;
    sleep(kit::millis(1_990)).await;
    let is_held = if slow.is_held() { "held" } else { "-" };
    sleep(kit::millis(20)).await;
    assert!(is_left && !slow.is_held(), "{case}: it is held");
    assert_eq!(of_slow, said, "{case}");
    // The clock of tokio's timers ticks in milliseconds.
    format!("{said} {polls} {} {is_held}", waited / 2 * 2)
}

/// A client sends what nobody reads, unless it waits for a `100 Continue`: it is read on, for at
/// most 2 s. Where the rest of a body may stay unread, the answer says that its connection closes:
/// a proxy would give it to the next request. The answer to a short upload over HTTP/1 waits for
/// its end, for 100 ms. Others leave at once.
#[tokio::test(start_paused = true)]
async fn how_uploads_are_treated() {
    let _places = PLACES.lock().await;
    const MOST: usize = 16 << 20;
    let new = Request::builder;
    let of_text = |length: &str| new().header("content-length", length);
    let too_long = || of_text("99999999999999999999");
    let [http_1_0, http_2] = [Version::HTTP_10, Version::HTTP_2]
        .map(|version| move |request: Builder| request.version(version));
    let (short, more) = (|| of_length(100), || of_length(MOST + 1));
    let awaits = || new().header("expect", "100-Continue");
    let expects = || short().header("expect", "100-continue");
    let no_key = || layer().key(Header::new("x-key"));
    let late = |_: Denied| async { DENIED };
    let own = |_: Denied| async { ([("connection", "x-own")], DENIED) };
    let (called, its_own) = (|| layer().degrade_fn(late), || layer().degrade_fn(own));
    let keyless = || no_key().degrade_fn(late);
    let closing = || layer().close_denied_uploads();
    let down = || RateLimitLayer::new("down", WINDOW, 1).store(no_store());
    let recovered = || no_key().on_error_fn(|_: Failed| async { DENIED });
    for (case, layer, request) in [
        ("no length: 429 - 5 0 held", layer(), new()),
        ("no number: 429 close 5 0 held", layer(), of_text("x")),
        ("HTTP/1.0: 429 - 5 0 held", layer(), http_1_0(new())),
        ("HTTP/2: 429 - 5 0 held", layer(), http_2(new())),
        ("HTTP/2, short: 429 - 5 0 held", layer(), http_2(short())),
        ("100-continue: 429 close 0 0 -", layer(), awaits()),
        ("100-continue, short: 429 close 0 0 -", layer(), expects()),
        ("the setter: 429 close 0 0 -", closing(), new()),
        ("the setter, short: 429 close 0 0 -", closing(), short()),
        ("one byte: 429 - 5 100 held", layer(), of_length(1)),
        ("64 KiB: 429 - 5 100 held", layer(), of_length(65_536)),
        ("longer: 429 - 5 0 held", layer(), of_length(65_537)),
        ("16 MiB: 429 - 5 0 held", layer(), of_length(MOST)),
        ("more: 429 close 5 0 held", layer(), more()),
        ("too long: 429 close 5 0 held", layer(), too_long()),
        ("1.0, more: 429 close 5 0 held", layer(), http_1_0(more())),
        ("setter, 2, more: 429 - 0 0 -", closing(), http_2(more())),
        ("its own: 429 x-own 5 0 held", its_own(), more()),
        ("callback, more: 429 close 5 0 held", called(), more()),
        ("no key, more: 400 close 5 0 held", keyless(), more()),
        ("no key: 400 - 5 100 held", no_key(), short()),
        ("no decision: 503 - 5 100 held", down(), short()),
        ("a callback: 429 - 5 100 held", called(), short()),
        ("on error: 429 - 5 100 held", recovered(), short()),
    ] {
        let (case, expected) = case.split_once(": ").expect("what becomes of it");
        let bodies = [SHORT, SILENT].map(Upload::of);
        let treated = treated(case, (layer, request), bodies).await;
        assert_eq!(treated, expected, "{case}");
    }
    // A body that is there, and one that never ends.
    for (expected, slow) in [("429 - 2 0 -", WHOLE), ("429 - 2 100 held", ENDLESS)] {
        let bodies = [WHOLE, slow].map(Upload::of);
        let treated = treated(expected, (layer(), short()), bodies).await;
        assert_eq!(treated, expected);
    }
    let app = app_of(closing());
    let empty = Request::post("/").body(Body::empty()).expect("a request");
    let answer = call(&app, empty).await;
    assert!(!answer.headers().contains_key(header::CONNECTION));
    let defaults = Limits::new([Rule::new("denied", [Quota::per_minute(0)]).expect("a rule")]);
    let upload = Upload::of(SHORT);
    let of_limits = defaults.close_denied_uploads().layer("denied");
    deny(of_limits, new(), &upload).await;
    assert!(!upload.is_held(), "the setter of Limits");
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

/// A process reads 1,024 uploads on. Further ones close their connections, and say so; the answers
/// to short ones do not wait then. A body that is there needs no place.
#[tokio::test(start_paused = true)]
async fn more_than_are_read_on_say_so() {
    let _places = PLACES.lock().await;
    let timed = async |upload: &Upload, length: Option<usize>| {
        let began = Instant::now();
        let request = length.map_or_else(Request::builder, of_length);
        let connection = deny(layer(), request, upload).await;
        assert!(matches!(connection.as_deref(), None | Some("close")));
        (connection.is_some(), began.elapsed() < kit::millis(100))
    };
    for (what, number, length, closed, waited) in [
        ("of no length", 1_025, None, 1, 0),
        ("short", 1_100, Some(100), 76, 1_024),
    ] {
        let uploads: Vec<_> = (0..number).map(|_| Upload::of(SILENT)).collect();
        let answers = uploads.iter().map(|upload| timed(upload, length));
        let answers = join_all(answers).await;
        let number = |of| answers.iter().filter(|it| **it == of).count();
        let seen = (number((true, true)), number((false, false)));
        assert_eq!(seen, (closed, waited), "{what}");
        assert_eq!(number((true, false)), 0, "{what}");
        let there = of_length(100).body(Body::from(vec![0; 100]));
        let answer = call(&app_of(layer()), there.expect("a request")).await;
        assert!(!answer.headers().contains_key(header::CONNECTION), "{what}");
        // The places are given back.
        sleep(Duration::from_secs(3)).await;
        assert!(uploads.iter().all(|upload| !upload.is_held()), "{what}");
    }
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
    let down = || RateLimitLayer::new("down", WINDOW, 1).store(no_store());
    let outer = || RateLimitLayer::new("outer", WINDOW, 1_000);
    let app = Router::new()
        .route("/429", limited(layer()))
        .route("/400", limited(layer().key(Header::new("x-key"))))
        .route("/503", limited(down()))
        .route("/429/inner", limited(layer()).layer(outer()));
    crate::serve(app).await
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
    let head = kit::http::answer_on(connection).expect("an answer");
    let status = format!("http/1.1 {}", &path[1..4]);
    assert!(head.starts_with(&status), "{head}");
    assert!(!head.contains("connection: close"), "{head}");
    (sent, [last, began.elapsed()])
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
