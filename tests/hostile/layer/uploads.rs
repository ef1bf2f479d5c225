//! Uploads that a layer answers before it has read them: over HTTP/1 behind a real nginx with its
//! defaults, whose upstream counts as dead after one connection that was reset, and over HTTP/2,
//! where hyper ends a connection after many resets of its streams.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;

use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, post};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kit::http::{answer_on as answer, serve};
use kit::load::until;
use kit::nginx::Nginx;

use crate::*;

/// A process reads only so many uploads on: one test at a time takes all places, or counts on one.
static PLACES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// `/denied` denies all that comes, and `/` reads what it gets.
fn app(limits: &Limits) -> Router {
    let read = async |body: Bytes| body.len().to_string();
    Router::new()
        .route("/denied", post(read).layer(limits.layer("denied")))
        .route("/", any(read))
        .layer(DefaultBodyLimit::disable())
}

fn denying() -> Limits {
    Limits::new([Rule::new("denied", [Quota::per_hour(0)]).expect("a rule")])
}

/// The status of a request with a body of so many bytes over a connection of its own, as a client
/// gets it that sends all before it reads; an error if the connection breaks before.
fn upload(to: SocketAddr, path: &str, bytes: usize) -> std::io::Result<u16> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {bytes}\r\n\r\n");
    connection.write_all(head.as_bytes())?;
    connection.write_all(&vec![b'x'; bytes])?;
    let mut answer = [0; 12];
    connection.read_exact(&mut answer)?;
    let status = std::str::from_utf8(&answer[9..]).map(str::parse);
    Ok(status.expect("text").expect("a status"))
}

/// How many of so many uploads got this status.
async fn count(
    times: usize,
    status: u16,
    upload: impl Fn() -> std::io::Result<u16> + Send + 'static,
) -> usize {
    let all = move || {
        (0..times)
            .filter(|_| upload().is_ok_and(|it| it == status))
            .count()
    };
    tokio::task::spawn_blocking(all).await.expect("no panic")
}

/// A client that sends all before it reads hears that it is denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_uploads_reads_the_denial() {
    let server = serve(app(&denying())).await;
    let nginx = Nginx::before(&[server.to_string()]);
    let straight = [64 * KIB, MIB, 15 * MIB].map(|bytes| (server, bytes));
    // What is longer than a server reads is ended by nginx, which has the answer.
    let behind = [64 * KIB, MIB, 20 * MIB, 64 * MIB].map(|bytes| (nginx.address, bytes));
    for (to, bytes) in straight.into_iter().chain(behind) {
        let denied = count(20, 429, move || upload(to, "/denied", bytes)).await;
        assert_eq!(denied, 20, "{bytes} bytes to {to}");
    }
}

/// Nobody else gets an error of nginx, which takes a server for dead that resets connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_behind_a_proxy_are_served() {
    let limits = denying();
    let servers = [serve(app(&limits)).await, serve(app(&limits)).await];
    let nginx = Nginx::before(&servers.map(|it| it.to_string()));
    let to = nginx.address;
    for bytes in [MIB, 64 * MIB] {
        let uploads = thread::spawn(move || {
            (0..20).for_each(|_| drop(upload(to, "/denied", bytes)));
        });
        let served = count(100, 200, move || upload(to, "/", 0)).await;
        uploads.join().expect("no panic");
        assert_eq!(served, 100, "beside uploads of {bytes} bytes");
    }
}

/// All answers of the layer's own are alike: those of callbacks, without a key, without a decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_read() {
    let layer = || RateLimitLayer::new("denied", Duration::from_secs(3_600), 0);
    let late_too = |_: Failed| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        StatusCode::IM_A_TEAPOT
    };
    let late = |_: Denied| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        StatusCode::IM_A_TEAPOT
    };
    let waiting = RateLimitLayer::new("denied", Duration::from_millis(100), 1)
        .cost(|_| 2)
        .wait(Duration::from_millis(50));
    let cases = [
        (418, layer().degrade_fn(late)),
        (
            418,
            layer().key(Header::new("x-user")).on_error_fn(late_too),
        ),
        (400, layer().key(Header::new("x-user"))),
        (503, layer().store(Stub::down())),
        (429, waiting),
    ];
    for (status, layer) in cases {
        let read = async |body: Bytes| body.len().to_string();
        let to = serve(Router::new().route("/", post(read).layer(layer))).await;
        let answered = count(10, status, move || upload(to, "/", 15 * MIB)).await;
        assert_eq!(answered, 10, "{status}");
    }
}

/// A POST that is denied, with a body of so many bytes, in chunks if no length is told.
fn denied_upload(bytes: usize, in_chunks: bool) -> Vec<u8> {
    let head = "POST /denied HTTP/1.1\r\nhost: a\r\n";
    if !in_chunks {
        let length = format!("{head}content-length: {bytes}\r\n\r\n");
        return [length.into_bytes(), vec![b'x'; bytes]].concat();
    }
    let mut whole = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for chunk in vec![b'x'; bytes].chunks(64 * KIB) {
        whole.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        whole.extend_from_slice(chunk);
        whole.extend_from_slice(b"\r\n");
    }
    whole.extend_from_slice(b"0\r\n\r\n");
    whole
}

/// Whoever has sent a request whole and got its answer whole gives the connection to the next
/// request, as the pools of proxies do: it is answered at once, or the answer before said `close`.
/// A denial of a small body does not cost its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_stays_answers_the_next_request() {
    let _places = PLACES.lock().await;
    let to = serve(app(&denying())).await;
    for (bytes, in_chunks, closes, [connections, posts]) in [
        (MIB, false, false, [1, 1]),
        (16 * MIB, false, false, [1, 1]),
        (20_000_000, false, true, [1, 1]),
        (64, true, false, [1, 1]),
        (500, true, false, [10, 100]),
        (20_000_000, true, false, [1, 1]),
    ] {
        let test = move || {
            let mut connection = TcpStream::connect(to).expect("connects");
            let timeout = Some(Duration::from_secs(10));
            connection.set_read_timeout(timeout).expect("is set");
            for _ in 0..posts {
                let sent = connection.write_all(&denied_upload(bytes, in_chunks));
                sent.expect("is sent");
                let denied = answer(&mut connection).expect("a 429");
                assert!(denied.starts_with("http/1.1 429"), "{denied}");
                assert_eq!(denied.contains("connection: close"), closes, "{denied}");
            }
            if !closes {
                let began = Instant::now();
                let next = connection.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
                next.expect("is sent");
                let next = answer(&mut connection).expect("an answer");
                assert!(next.starts_with("http/1.1 200"), "{next}");
                assert!(began.elapsed() < Duration::from_secs(1), "at once");
            }
        };
        let tests = (0..connections).map(|_| tokio::task::spawn_blocking(test));
        for tested in join_all(tests).await {
            tested.unwrap_or_else(|_| panic!("{bytes} bytes, in chunks: {in_chunks}"));
        }
    }
}

/// A proxy that keeps its connections loses no request of others, and takes no server for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_over_kept_connections_are_served() {
    let limits = denying();
    let servers = [serve(app(&limits)).await, serve(app(&limits)).await];
    let servers = servers.map(|it| it.to_string());
    for streams in [false, true] {
        let nginx = Nginx::keeping(&servers, streams);
        let to = nginx.address;
        let uploads = thread::spawn(move || {
            for _ in 0..6 {
                let mut connection = TcpStream::connect(to).expect("connects");
                // nginx may end the upload once it has the answer.
                let _ = connection.write_all(&denied_upload(20_000_000, streams));
                let head = answer(&mut connection).unwrap_or_default();
                assert!(head.starts_with("http/1.1 429"), "{head}");
            }
        });
        let mut served = 0;
        while !uploads.is_finished() || served < 500 {
            let answered = count(50, 200, move || upload(to, "/", 100)).await;
            assert_eq!(answered, 50, "beside uploads, streams: {streams}");
            served += answered;
        }
        uploads.join().expect("each was told that it is denied");
    }
}

/// The head of an upload that never ends.
const ENDLESS: &str = "POST /denied HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000000\r\n\r\n";

fn begin_upload(to: SocketAddr) -> TcpStream {
    let mut connection = TcpStream::connect(to).expect("connects");
    connection.write_all(ENDLESS.as_bytes()).expect("is sent");
    connection
}

/// 1,000 uploads that send nothing more, 100 that are half closed, and eight that send as fast as
/// they can, until the server has ended all of them. Returns how many were answered.
fn attack(to: SocketAddr) -> usize {
    let half_closed = (0..100).map(|_| {
        let connection = begin_upload(to);
        connection.shutdown(Shutdown::Write).expect("is open");
        connection
    });
    let slow: Vec<_> = half_closed
        .chain((0..1_000).map(|_| begin_upload(to)))
        .collect();
    let fast = || {
        let mut connection = begin_upload(to);
        while connection.write_all(&[b'x'; 64 * KIB]).is_ok() {}
    };
    let answered = |mut connection: TcpStream| {
        let mut answer = Vec::new();
        // A reset may end it, where bytes are left that nobody reads.
        let _ = connection.read_to_end(&mut answer);
        answer.starts_with(b"HTTP/1.1 429")
    };
    thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(fast)));
        slow.into_iter().map(answered).filter(|it| *it).count()
    })
}

/// What attackers hold ends, and what they took is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_endless_uploads_end() {
    let _places = PLACES.lock().await;
    let limits = denying();
    let to = serve(app(&limits)).await;
    // The first request starts a task that looks at the set-up later.
    assert_eq!(count(1, 429, move || upload(to, "/denied", 0)).await, 1);
    let runtime = tokio::runtime::Handle::current();
    let tasks = || runtime.metrics().num_alive_tasks();
    let before = tasks();
    let attack = tokio::task::spawn_blocking(move || attack(to));
    assert_eq!(attack.await.expect("no panic"), 1_100);
    until("no task is left", || tasks() <= before).await;
    let closed = limits.snapshot().rules[0].closed_uploads;
    assert!((1_000..=1_008).contains(&closed), "{closed}");
}

/// A connection of HTTP/2 stays open for the streams of others, however many uploads are denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_http2_stays_open() {
    let to = serve(app(&denying())).await;
    let socket = TokioIo::new(tokio::net::TcpStream::connect(to).await.expect("connects"));
    let client = http2::handshake::<_, _, Body>(TokioExecutor::new(), socket).await;
    let (client, connection) = client.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let upload = || {
        let mut client = client.clone();
        // The body comes behind its head.
        let parts = futures_util::stream::iter([Ok::<_, Infallible>(Bytes::from(vec![0; KIB]))]);
        let request = Request::post("http://a/denied").body(Body::from_stream(parts));
        async move {
            client.ready().await.ok()?;
            let answer = client.send_request(request.expect("a request")).await;
            Some(answer.ok()?.status())
        }
    };
    for round in 0..300 {
        for answer in join_all((0..10).map(|_| upload())).await {
            assert_eq!(answer, Some(StatusCode::TOO_MANY_REQUESTS), "round {round}");
        }
    }
    assert!(!connection.is_finished());
}
