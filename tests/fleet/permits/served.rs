//! A process that serves, and what its clients do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path as Segments;

use axum::routing::get;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::HeaderMap;
use kit::random::Random;
use kit::workers::instructions;
use tidegate::{Header, Limits, RedisStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::backend::{Running, connect};
use super::{PATH, rule};
use crate::TASKS;

pub(super) const WORKER: &str = "permits::served::worker_serves";
pub(super) const MAX: u64 = 4;
pub(super) const KEYS: u64 = 8;
const TIMEOUT: Duration = Duration::from_secs(1);

/// Where a process listens.
pub(super) fn socket(folder: &Path, process: usize) -> PathBuf {
    folder.join(process.to_string())
}

/// What a request path says: how a request runs, and for how many milliseconds.
async fn handle(running: Running, how: String, lasts: Duration) -> Body {
    match &*how {
        "ends" => {
            sleep(lasts).await;
            "1".into()
        }
        "panics" => {
            sleep(lasts).await;
            // Without the message that a panic prints.
            std::panic::resume_unwind(Box::new("as it was asked to"));
        }
        // The body goes on for so long, and the request with it.
        _ => {
            let chunks = stream::iter([Bytes::from_static(b"1")]);
            let rest = stream::once(async move {
                sleep(lasts).await;
                drop(running);
                Bytes::from_static(b"2")
            });
            let chunks: BoxStream<'static, _> = chunks.chain(rest).boxed();
            Body::from_stream(chunks.map(Ok::<_, std::convert::Infallible>))
        }
    }
}

fn app(limits: &Limits, folder: &Path, process: usize) -> Router {
    let backend = Arc::new(connect(&folder.join("backend")));
    let handler = move |Segments((how, millis)): Segments<(String, u64)>, head: HeaderMap| {
        let key = head["x-key"].to_str().expect("a number").to_owned();
        let backend = Arc::clone(&backend);
        async move {
            let running = Running::begin(&backend, &key, process);
            handle(running, how, Duration::from_millis(millis)).await
        }
    };
    let waits = limits.layer(PATH).wait(Duration::from_secs(5));
    let of = |layer| get(handler.clone()).layer(layer);
    Router::new()
        .route("/now/{how}/{millis}", of(limits.layer(PATH)))
        .route("/waits/{how}/{millis}", of(waits))
}

/// Plays one process: serves, and asks so much of itself; without requests it serves until it is
/// killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_serves() {
    let Some(words) = instructions() else { return };
    let store = RedisStore::connect(&*words[0])
        .await
        .expect("a running server");
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (process, requests) = (number(2) as usize, number(3));
    let folder = Path::new(&words[1]);
    let limits = Limits::new([rule(number(5), Duration::from_millis(number(4)))]);
    let limits = limits
        .store(store.timeout(TIMEOUT))
        .key(Header::new("x-key"));
    let path = socket(folder, process);
    let listener = UnixListener::bind(&path).expect("is bound");
    let served = axum::serve(listener, app(&limits, folder, process));
    let served = tokio::spawn(async { served.await });
    if requests == 0 {
        served.await.expect("no panic").expect("serves");
    }
    let clients = (0..TASKS as u64).map(|task| {
        let (path, mut random) = (path.clone(), Random::new(100 * process as u64 + task));
        tokio::spawn(async move {
            let mut seen = Seen::default();
            for _ in 0..requests.div_ceil(TASKS as u64) {
                seen.add(request(&path, &mut random).await);
            }
            seen
        })
    });
    let mut seen = Seen::default();
    for client in clients.collect::<Vec<_>>() {
        seen.add(client.await.expect("no panic"));
    }
    // The server hears of clients that left, and a take without an answer is executed until then.
    sleep(TIMEOUT + Duration::from_millis(500)).await;
    assert!(
        limits.flush(Duration::from_secs(10)).await,
        "{:?}",
        limits.snapshot()
    );
    let snapshot = limits.snapshot();
    assert_eq!(
        (snapshot.rules[0].waiting, snapshot.rules[0].refunds_lost),
        (0, 0)
    );
    println!(
        "\nserved {}\ndenied {}\nleft {}\npanicked {}\nfailed {}",
        seen.served, seen.denied, seen.left, seen.panicked, seen.failed
    );
}

/// What the clients of a process saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) served: u64,
    pub(super) denied: u64,
    /// Their clients left.
    pub(super) left: u64,
    pub(super) panicked: u64,
    /// Redis did not answer in time.
    pub(super) failed: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: Self) {
        self.served += other.served;
        self.denied += other.denied;
        self.left += other.left;
        self.panicked += other.panicked;
        self.failed += other.failed;
    }
}

/// A connection that has sent this request.
pub(super) async fn send(socket: &Path, path: &str, key: u64) -> UnixStream {
    let mut stream = UnixStream::connect(socket).await.expect("a server");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nx-key: {key}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("is sent");
    stream
}

/// All that the server answers.
pub(super) async fn answer(mut stream: UnixStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("is read");
    String::from_utf8(answer).expect("text")
}

/// One request, whose client may leave at any moment.
async fn request(socket: &Path, random: &mut Random) -> Seen {
    let (kind, key) = (random.below(100), random.below(KEYS));
    let layer = ["now", "waits"][random.below(2) as usize];
    let (how, millis) = match kind {
        // Longer than a lease.
        0 if random.is(10) => ("streams", 5_000),
        0..60 => ("ends", random.below(5)),
        60..70 => ("panics", random.below(3)),
        70..80 => ("streams", random.below(5)),
        _ => ("streams", 3_600_000),
    };
    let mut stream = send(socket, &format!("/{layer}/{how}/{millis}"), key).await;
    let left = Seen {
        left: 1,
        ..Seen::default()
    };
    match kind {
        // At any moment, also before there is a decision.
        30..60 if random.is(50) => {
            for _ in 0..random.below(300) {
                yield_now().await;
            }
            return left;
        }
        30..60 => {
            sleep(Duration::from_millis(random.below(8))).await;
            return left;
        }
        80.. => {
            let mut buffer = [0; 1_024];
            let size = stream.read(&mut buffer).await.expect("is read");
            if buffer[..size].starts_with(b"HTTP/1.1 200 ") {
                sleep(Duration::from_millis(random.below(5))).await;
                return left;
            }
            return Seen::of(&buffer[..size]);
        }
        _ => {}
    }
    Seen::of(answer(stream).await.as_bytes())
}

impl Seen {
    fn of(answer: &[u8]) -> Self {
        let mut seen = Self::default();
        let word = answer.get(9..12).unwrap_or_default();
        match word {
            b"200" => seen.served = 1,
            b"429" => seen.denied = 1,
            b"503" => seen.failed = 1,
            b"" => seen.panicked = 1,
            _ => panic!("{}", String::from_utf8_lossy(answer)),
        }
        seen
    }
}
