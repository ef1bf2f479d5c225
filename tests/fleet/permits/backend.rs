use std::os::unix::net::UnixDatagram;

use std::thread::JoinHandle;

use crate::*;

/// Counts the requests that run, in all processes.
///
/// Each tells it when it begins and ends, by datagrams to one Unix socket: the kernel delivers them
/// in the order in which they were sent, by whatever process. A request that begins once another
/// one has ended is never counted beside it.
pub(super) struct Backend {
    path: PathBuf,
    begun: Arc<AtomicU64>,
    counting: JoinHandle<Counted>,
}

/// What it has counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) begun: u64,
    /// The most requests of a key at a time.
    pub(super) most: usize,
    /// How often a request began when `max` of its key ran.
    pub(super) above: u64,
    /// Those that have not ended.
    pub(super) running: usize,
}

/// A request that runs, until this is dropped.
pub(super) struct Running {
    backend: Arc<UnixDatagram>,
    name: String,
}

impl Backend {
    pub(super) fn start(folder: &Path, max: usize) -> Self {
        let path = folder.join("backend");
        let socket = UnixDatagram::bind(&path).expect("is bound");
        let begun = Arc::<AtomicU64>::default();
        let all = Arc::clone(&begun);
        let counting = std::thread::spawn(move || count(&socket, max, &all));
        Self {
            path,
            begun,
            counting,
        }
    }

    /// How many requests have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The requests of this process, which is no more, have ended.
    pub(super) fn killed(&self, process: usize) {
        tell(&connect(&self.path), &format!("killed {process}"));
    }

    pub(super) fn end(self) -> Counted {
        tell(&connect(&self.path), "over");
        self.counting.join().expect("no panic")
    }
}

/// For [`Running::begin`].
pub(super) fn connect(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.connect(path).expect("a backend");
    socket
}

fn tell(backend: &UnixDatagram, what: &str) {
    backend.send(what.as_bytes()).expect("is sent");
}

fn count(socket: &UnixDatagram, max: usize, begun: &AtomicU64) -> Counted {
    let mut running: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    let mut counted = Counted::default();
    let mut buffer = [0; 256];
    loop {
        let size = socket.recv(&mut buffer).expect("a message");
        let text = std::str::from_utf8(&buffer[..size]).expect("text");
        let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        match &words[..] {
            [what, key, process, number] => {
                let of_key = running.entry(key.clone()).or_default();
                let request = (process.clone(), number.clone());
                if what == "begins" {
                    counted.above += u64::from(of_key.len() >= max);
                    assert!(of_key.insert(request), "{text} again");
                    counted.most = counted.most.max(of_key.len());
                    counted.begun = begun.fetch_add(1, Ordering::Relaxed) + 1;
                } else {
                    assert!(of_key.remove(&request), "{text}, and has not begun");
                }
            }
            [_, killed] => {
                let of_keys = running.values_mut();
                of_keys.for_each(|of_key| of_key.retain(|(process, _)| process != killed));
            }
            _ => {
                counted.running = running.values().map(BTreeSet::len).sum();
                return counted;
            }
        }
    }
}

impl Running {
    pub(super) fn begin(backend: &Arc<UnixDatagram>, key: &str, process: usize) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("{key} {process} {number}");
        tell(backend, &format!("begins {name}"));
        let backend = Arc::clone(backend);
        Self { backend, name }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        tell(&self.backend, &format!("ends {}", self.name));
    }
}
