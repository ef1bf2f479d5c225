//! A process that serves, and what its clients do.

use axum::body::Bytes;
use axum::extract::Path as Segments;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::backend::{Running, connect};
use super::*;

pub(super) const WORKER: &str = "permits::served::worker_serves";
pub(super) const MAX: u64 = 4;
pub(super) const KEYS: u64 = 8;

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
    let handler = move |Segments((how, lasts)): Segments<(String, u64)>, head: HeaderMap| {
        let key = head["x-key"].to_str().expect("a number").to_owned();
        let backend = Arc::clone(&backend);
        async move {
            let running = Running::begin(&backend, &key, process);
            handle(running, how, millis(lasts)).await
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
    let [process, requests, lease, max] = numbers(&words);
    let folder = Path::new(&words[1]);
    let store = kit::load::store(&words[0]).await.timeout(SECOND);
    let limits = Limits::new([rule(max, millis(lease))]);
    let limits = limits.store(store).key(Header::new("x-key"));
    let path = socket(folder, process as usize);
    let listener = UnixListener::bind(&path).expect("is bound");
    let served = axum::serve(listener, app(&limits, folder, process as usize));
    let served = tokio::spawn(async { served.await });
    if requests == 0 {
        served.await.expect("no panic").expect("serves");
    }
    let clients = (0..TASKS as u64).map(|task| {
        let (path, mut random) = (path.clone(), Random::new(100 * process + task));
        async move {
            let mut seen = Seen::default();
            for _ in 0..requests.div_ceil(TASKS as u64) {
                seen[request(&path, &mut random).await as usize] += 1;
            }
            seen
        }
    });
    let mut all = Seen::default();
    for seen in in_tasks(clients).await {
        for (all, times) in all.iter_mut().zip(seen) {
            *all += times;
        }
    }
    // The server hears of clients that left, and a take without an answer is executed until then.
    sleep(SECOND + millis(500)).await;
    let is_flushed = limits.flush(10 * SECOND).await;
    assert!(is_flushed, "{:?}", limits.snapshot());
    let rule = &limits.snapshot().rules[0];
    assert_eq!((rule.waiting, rule.refunds_lost), (0, 0));
    println!();
    for (word, times) in WORDS.iter().zip(all) {
        println!("{word}{times}");
    }
}

/// What a client of a process saw.
#[derive(Debug, Clone, Copy)]
enum Saw {
    Served,
    Denied,
    /// It left.
    Left,
    Panicked,
    /// Redis did not answer in time.
    Failed,
}

/// What a process says of each of these.
pub(super) const WORDS: [&str; 5] = ["served ", "denied ", "left ", "panicked ", "failed "];

/// How often its clients saw each of these.
type Seen = [u64; WORDS.len()];

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
async fn request(socket: &Path, random: &mut Random) -> Saw {
    let (kind, key) = (random.below(100), random.below(KEYS));
    let layer = ["now", "waits"][random.below(2) as usize];
    let (how, lasts) = match kind {
        // Longer than a lease.
        0 if random.is(10) => ("streams", 5_000),
        0..60 => ("ends", random.below(5)),
        60..70 => ("panics", random.below(3)),
        70..80 => ("streams", random.below(5)),
        _ => ("streams", 3_600_000),
    };
    let mut stream = send(socket, &format!("/{layer}/{how}/{lasts}"), key).await;
    match kind {
        // At any moment, also before there is a decision.
        30..60 if random.is(50) => {
            for _ in 0..random.below(300) {
                yield_now().await;
            }
            return Saw::Left;
        }
        30..60 => {
            sleep(millis(random.below(8))).await;
            return Saw::Left;
        }
        80.. => {
            let mut buffer = [0; 1_024];
            let size = stream.read(&mut buffer).await.expect("is read");
            if buffer[..size].starts_with(b"HTTP/1.1 200 ") {
                sleep(millis(random.below(5))).await;
                return Saw::Left;
            }
            return Saw::of(&buffer[..size]);
        }
        _ => {}
    }
    Saw::of(answer(stream).await.as_bytes())
}

impl Saw {
    fn of(answer: &[u8]) -> Self {
        match answer.get(9..12).unwrap_or_default() {
            b"200" => Self::Served,
            b"429" => Self::Denied,
            b"503" => Self::Failed,
            b"" => Self::Panicked,
            _ => panic!("{}", String::from_utf8_lossy(answer)),
        }
    }
}
