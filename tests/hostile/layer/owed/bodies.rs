//! Bodies that settle when they end, fail or are dropped: once, with what was counted until then.

use std::io;
use std::net::SocketAddr;

use futures_util::{Stream, StreamExt, stream};
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kit::http::serve;
use tidegate::store::SettledBody;

use super::*;

/// What a frame of a test is.
#[derive(Debug, Clone, Copy)]
enum Part {
    Data(usize),
    Trailers,
    Fails,
    Pending,
    Stays,
}

use Part::{Data, Fails, Pending, Stays, Trailers};

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(100, |data| data.len() as u64)
}

type Frames = StreamBody<Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>>;

fn body(parts: &[Part]) -> Frames {
    let frame = async |part| {
        Some(match part {
            Data(length) => Ok(Frame::data(Bytes::from(vec![b'a'; length]))),
            Trailers => Ok(Frame::trailers(HeaderMap::new())),
            Fails => Err(io::Error::other("the model is gone")),
            Stays => std::future::pending().await,
            Pending => {
                yield_now().await;
                return None;
            }
        })
    };
    let parts = stream::iter(parts.to_vec());
    StreamBody::new(Box::pin(parts.filter_map(frame)))
}

fn counting(charge: &Charge, parts: &[Part]) -> SettledBody<Frames, fn(&Frame<Bytes>) -> u64> {
    charge.settle_on_end(body(parts), length)
}

fn scene() -> Scene {
    Scene::new(per_hour("p", 1_000))
}

/// Ends of all kinds, after each of which the units that were counted are charged, of a body that
/// was left before its end no less than reserved, and the store was asked once.
#[tokio::test]
async fn every_end() {
    let scene = scene();
    // The frames, how many are read (all: also the end), and what is used then of 10 reserved.
    let cases: [(&str, &[Part], usize, u64); 15] = [
        ("to the end", &[Data(7), Pending, Data(9)], 9, 16),
        ("with trailers", &[Data(7), Trailers], 9, 107),
        ("less than reserved", &[Data(3)], 9, 3),
        ("a failure", &[Data(7), Data(8), Fails], 9, 15),
        ("a failure at once", &[Fails], 9, 10),
        ("a failure, of less", &[Data(3), Fails], 9, 3),
        ("left in the middle", &[Data(20), Data(8), Data(9)], 2, 28),
        ("left early", &[Data(2), Data(3), Data(9)], 2, 10),
        ("left at a pause", &[Data(2), Pending, Data(9)], 1, 10),
        ("left at the end of less", &[Data(2)], 1, 10),
        ("left behind trailers", &[Trailers, Data(9)], 1, 100),
        ("left before the end was seen", &[Data(20)], 1, 20),
        ("never polled", &[Data(20)], 0, 10),
        ("empty", &[], 9, 10),
        ("empty frames", &[Data(0), Data(0)], 9, 10),
    ];
    for (case, parts, reads, expected) in cases {
        let before = scene.asked();
        let one = scene.charge(case).await;
        let mut body = counting(&one, parts);
        for _ in 0..reads {
            if !matches!(body.frame().await, Some(Ok(_))) {
                let used = scene.used(case).await;
                assert_eq!(used, expected, "{case}: before the drop");
                break;
            }
        }
        drop(body);
        assert_eq!(scene.used(case).await, expected, "{case}");
        let after = scene.asked();
        let asked = after.0 + after.1 - before.0 - before.1;
        assert_eq!(asked, usize::from(expected != 10), "{case}");
        // Nothing was settled where nothing was counted.
        let (_, charged, _) = settle(&one, 900).await;
        let was_settled = expected != 10 || case.starts_with("left");
        assert_eq!(charged, if was_settled { 0 } else { 890 }, "{case}");
    }
    assert_eq!(counted(&scene.limits, "p").2, 0);
}

/// The closure panics at a frame: those before it are charged, and the charge is not lost.
#[tokio::test]
async fn a_closure_that_panics() {
    let scene = scene();
    let one = scene.charge("x").await;
    let parts = body(&[Data(12), Data(3), Data(40)]);
    let mut settled = one.settle_on_end(parts, |frame: &Frame<Bytes>| {
        let length = length(frame);
        assert_ne!(length, 3, "a closure of a test");
        length
    });
    assert!(settled.frame().await.is_some());
    let panicked = AssertUnwindSafe(settled.frame()).catch_unwind().await;
    assert!(panicked.is_err());
    drop(settled);
    assert_eq!(scene.used("x").await, 12);
    // Whoever says too much owes what it may.
    let one = scene.charge("y").await;
    let settled = one.settle_on_end(body(&[Data(1), Data(1)]), |_: &Frame<Bytes>| u64::MAX);
    settled.collect().await.expect("no failure");
    assert_eq!(scene.used("y").await, 2_000);
}

/// What the body says of its length and its end stays, without charges it is as it was, and a body
/// that nobody asks for its end because it says that it has ended is settled.
#[tokio::test]
async fn the_body_stays_what_it_is() {
    let scene = scene();
    let full = || Full::new(Bytes::from_static(b"twelve bytes"));
    let one = scene.charge("x").await;
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
    assert_eq!(none.size_hint().exact(), Some(12));
    let all = none.collect().await.expect("no failure").to_bytes();
    assert_eq!(all, "twelve bytes");
}

/// Behind a layer: the response streams after the handler has ended, and a client that leaves pays
/// for what it was sent.
#[tokio::test]
async fn a_response_that_streams() {
    let scene = scene();
    let handler = async |charges: Charges| {
        let parts = body(&[Data(30), Pending, Data(30), Data(500)]);
        Body::new(charges.of("p").settle_on_end(parts, length))
    };
    let layer = scene.limits.layer("p").cost(|_| 10);
    let app = Router::new().route("/", get(handler).layer(layer));
    let send = async || kit::http::send(&app, "/").await.into_body();
    let mut body = send().await;
    assert_eq!(scene.used("k").await, 10, "it has not begun");
    for _ in 0..2 {
        body.frame().await.expect("a frame").expect("no failure");
    }
    drop(body);
    assert_eq!(scene.used("k").await, 60, "the client has left");
    drop(send().await);
    assert_eq!(scene.used("k").await, 70, "leaving early is not free");
    send().await.collect().await.expect("no failure");
    assert_eq!(scene.used("k").await, 630);
    assert_eq!(counted(&scene.limits, "p"), (50 + 550, 0, 0));
}

/// A chat whose first event tells 25 of the 1,000 that were reserved, and its last one all.
fn chat() -> (Limits, RateLimitLayer, Rule) {
    let rule = per_hour("p", 100_000);
    let limits = limits([rule.clone()], MemoryStore::new());
    let layer = limits.layer("p").cost(|_| 1_000);
    (limits, layer, rule)
}

/// A server whose body has these frames. The response has such a `content-length`, if any, and the
/// body has the witness.
async fn served(
    layer: RateLimitLayer,
    parts: &'static [Part],
    bytes: Option<u64>,
    witness: &Arc<()>,
) -> SocketAddr {
    let witness = Arc::clone(witness);
    let handler = move |charges: Charges| async move {
        let units =
            move |frame: &Frame<Bytes>| length(frame) * Arc::strong_count(&witness).min(1) as u64;
        let body = Body::new(charges.of("p").settle_on_end(body(parts), units));
        let fields = bytes.map(|it| (http::header::CONTENT_LENGTH, it.into()));
        (HeaderMap::from_iter(fields), body)
    };
    serve(Router::new().route("/", get(handler).layer(layer))).await
}

/// Waits until so many units of `k` are used.
async fn until_used(limits: &Limits, rule: &Rule, units: u64, case: &str) {
    let is_settled = async || {
        flushed(limits).await;
        used(&**limits.shared_store(), rule, "k").await == units
    };
    eventually(case, is_settled).await;
}

/// Over sockets: a client that leaves pays what was reserved, one that stays what was used. The
/// server does not ask for the end of a body whose length it knows, nor for that of trailers.
#[tokio::test]
async fn servers_and_their_ends() {
    const WHOLE: &[Part] = &[Data(25), Pending, Data(15)];
    const TRAILED: &[Part] = &[Data(25), Trailers];
    const BROKEN: &[Part] = &[Data(25), Fails];
    for (case, is_2, method, parts, length, expected) in [
        ("chunked", false, Method::GET, WHOLE, None, 40),
        ("a length", false, Method::GET, WHOLE, Some(40), 40),
        ("HEAD", false, Method::HEAD, WHOLE, Some(40), 1_000),
        ("HTTP/2", true, Method::GET, WHOLE, None, 40),
        ("HTTP/2, a length", true, Method::GET, WHOLE, Some(40), 40),
        ("HTTP/2, HEAD", true, Method::HEAD, WHOLE, Some(40), 1_000),
        ("trailers", true, Method::GET, TRAILED, None, 125),
        ("HTTP/1.1, trailers", false, Method::GET, TRAILED, None, 125),
        ("a failure", false, Method::GET, BROKEN, None, 25),
        ("HTTP/2, a failure", true, Method::GET, BROKEN, None, 25),
    ] {
        let (limits, layer, rule) = chat();
        let server = served(layer, parts, length, &Arc::default()).await;
        let is_whole = match asked(server, is_2, method).await {
            Ok(answer) => answer.into_body().collect().await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(is_whole, expected != 25, "{case}");
        until_used(&limits, &rule, expected, case).await;
    }
}

/// What a middleware around the layer counts, of a body whose length only a field says.
#[tokio::test]
async fn a_meter_around_the_layer_knows_the_length() {
    let (limits, layer, rule) = chat();
    let fields = [(http::header::CONTENT_LENGTH, "40")];
    let handler = async move || (fields, Body::new(body(&[Data(25), Data(15)])));
    let metered = async |answer: Response<Body>| {
        let charges = Charges::from_extensions(answer.extensions());
        answer.map(|body| Body::new(charges.of("p").settle_on_end(body, length)))
    };
    let app = Router::new().route("/", get(handler).layer(layer));
    let server = serve(app.layer(axum::middleware::map_response(metered))).await;
    let answer = asked(server, false, Method::GET).await.expect("an answer");
    answer.into_body().collect().await.expect("a body");
    until_used(&limits, &rule, 40, "what was used").await;
}

/// The answer of a server to one request without a body.
async fn asked(
    server: SocketAddr,
    is_2: bool,
    method: Method,
) -> hyper::Result<Response<hyper::body::Incoming>> {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{server}/"));
    let request = request.body(Body::empty()).expect("valid");
    let io = TokioIo::new(TcpStream::connect(server).await.expect("a server"));
    if is_2 {
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        return client.send_request(request).await;
    }
    let (mut client, connection) = http1::handshake(io).await?;
    tokio::spawn(connection);
    client.send_request(request).await
}

/// A client that hangs up in the middle, whatever the body says of its length.
#[tokio::test]
async fn who_hangs_up_pays_what_was_reserved() {
    const ENDLESS: &[Part] = &[Data(25), Stays];
    let lengths = [None, Some(40)].into_iter();
    for (is_2, bytes) in lengths.flat_map(|it| [(false, it), (true, it)]) {
        let (limits, layer, rule) = chat();
        let witness = Arc::new(());
        let server = served(layer, ENDLESS, bytes, &witness).await;
        let before = Arc::strong_count(&witness);
        let answer = asked(server, is_2, Method::GET).await;
        let mut body = answer.expect("an answer").into_body();
        body.frame().await.expect("a frame").expect("no failure");
        assert!(Arc::strong_count(&witness) > before);
        drop(body);
        let has_left = async || Arc::strong_count(&witness) == before;
        eventually("the server has seen it", has_left).await;
        flushed(&limits).await;
        let used = used(&**limits.shared_store(), &rule, "k").await;
        assert_eq!(used, 1_000, "HTTP/2: {is_2}, {bytes:?}");
    }
}

/// Beside a rule that gives back by outcome: the head decides first. What it keeps is settled by
/// the body, and what it has given back is not charged again.
#[tokio::test]
async fn beside_an_outcome() {
    let rule = per_hour("p", 1_000).with_refund_on(["5xx"]);
    let scene = Scene::new(rule.expect("valid"));
    for status in [200, 503] {
        let handler = move |charges: Charges| async move {
            let parts = body(&[Data(30), Data(10)]);
            let body = Body::new(charges.of("p").settle_on_end(parts, length));
            let response = http::Response::builder().status(status);
            response.body(body).expect("a valid response")
        };
        let layer = scene.limits.layer("p").cost(|_| 10);
        let app = Router::new().route("/", get(handler).layer(layer));
        assert_eq!(kit::http::ask(&app, "/", "").await.status, status);
        assert_eq!(scene.used("k").await, 40, "{status}");
    }
}
