//! Permits of a process that is killed are another one's, once their leases are over.

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::backend::Backend;
use super::served::{WORKER, send, socket};
use super::*;
use crate::process::Process;

/// Of a process that is killed.
const KEYS: u64 = 20;
/// Whoever holds it.
const MAX: u64 = 1;
const LEASE: Duration = Duration::from_secs(1);

/// Serves requests of one permit for each key, until it is dropped.
struct Server {
    process: Process<&'static str>,
    socket: PathBuf,
    /// It tells this one of its requests.
    _backend: Backend,
}

impl Server {
    async fn start(redis: &Redis, lease: Duration) -> Self {
        let folder = redis.folder();
        let _backend = Backend::start(folder, MAX as usize);
        let (url, folder_name, lease) = (&redis.url, folder.display(), lease.as_millis());
        let instructions = format!("{url} {folder_name} 0 0 {lease} {MAX}");
        let process = Process::of(WORKER, start_worker(WORKER, &instructions));
        let socket = socket(folder, 0);
        while UnixStream::connect(&socket).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
        Self {
            process,
            socket,
            _backend,
        }
    }
}

/// The first bytes of an answer: its request holds a permit.
async fn begun(socket: &Path, path: &str, key: u64) -> UnixStream {
    let mut stream = send(socket, path, key).await;
    let mut buffer = [0; 15];
    stream.read_exact(&mut buffer).await.expect("an answer");
    assert_eq!(&buffer, b"HTTP/1.1 200 OK");
    stream
}

/// Another process: this one.
#[derive(Clone)]
struct Other {
    limits: Limits,
    app: Router,
}

impl Other {
    async fn start(redis: &Redis, lease: Duration) -> Self {
        let store = kit::store_on(redis).await;
        let limits = Limits::new([rule(MAX, lease)]).store(store);
        let limits = limits.key(Header::new("x-key"));
        let app = kit::app(limits.layer(PATH).wait(Duration::from_secs(60)));
        Self { limits, app }
    }

    /// Asks in this way until it is granted the permit. Says when.
    async fn granted(self, how: &str, key: u64) -> Instant {
        if how == "waits" {
            let answer = kit::http::ask(&self.app, "/", &format!("x-key: {key}")).await;
            assert_eq!(answer.status, 200);
            return Instant::now();
        }
        while self.limits.check(PATH, key).await.is_err() {
            sleep(millis(1)).await;
        }
        Instant::now()
    }
}

/// From the end of a process until another one is granted each of its permits. `None` if they came
/// back while it lived: it stood still for longer than a lease.
async fn killed() -> Option<Vec<Duration>> {
    let redis = Redis::start();
    let mut server = Server::start(&redis, LEASE).await;
    let other = Other::start(&redis, LEASE).await;
    let (mut held, mut granted) = (Vec::new(), Vec::new());
    for key in 0..KEYS {
        held.push(begun(&server.socket, "/now/streams/3600000", key).await);
        // Renewed at different times.
        sleep(LEASE / 3 / KEYS as u32).await;
        let how = ["waits", "asks"][key as usize % 2];
        granted.push(tokio::spawn(other.clone().granted(how, key)));
    }
    sleep(2 * LEASE).await;
    if granted.iter().any(tokio::task::JoinHandle::is_finished) {
        return None;
    }
    server.process.kill();
    let killed = Instant::now();
    let back = done(granted).await.into_iter().map(|at| at - killed);
    Some(back.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_of_a_killed_process_are_back_after_their_lease() {
    let _machine = MACHINE.lock().await;
    let mut back = None;
    for _ in 0..3 {
        if back.is_none() {
            back = killed().await;
        }
    }
    let back = back.expect("they are renewed");
    let bound = LEASE + SECOND + millis(500);
    assert!(back.iter().all(|back| *back <= bound), "{back:?}");
}
