//! A Redis server inside the target's own thread.
//!
//! It answers the commands that begin a connection as Redis does. To every other command a target
//! chooses the reply. It listens on a socket in the folder for temporary files. The runtime's clock
//! is paused: when all tasks wait, it moves to the next timer. So timeouts and the pauses between
//! attempts to connect take no time, and bytes on the socket arrive before any timeout.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use tidegate::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, JoinHandle};

/// What a target answers.
pub enum Reply {
    /// These bytes, whether or not they are a whole reply.
    Bytes(Vec<u8>),
    /// The connection ends.
    Cut,
}

/// The words of a command: of a script call its name, the script, the number of keys, the keys and
/// the arguments.
pub type Words = [Vec<u8>];

type Answer = Box<dyn FnMut(&Words) -> Reply + Send>;

/// The server, and a handle that is connected to it.
pub struct Server {
    runtime: Runtime,
    pub redis: Redis,
    shared: Arc<Mutex<Shared>>,
    socket: PathBuf,
}

#[derive(Default)]
struct Shared {
    answer: Option<Answer>,
    clients: Vec<AbortHandle>,
}

/// Longer than a lost connection takes to be made anew.
const SETTLING: Duration = Duration::from_secs(1);

impl Server {
    /// Lends out this thread's server, which the first call starts.
    pub fn with<T>(work: impl FnOnce(&Self) -> T) -> T {
        thread_local! {
            static SERVER: Server = Server::start();
        }
        SERVER.with(work)
    }

    fn start() -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-fuzz-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let shared = Arc::<Mutex<Shared>>::default();
        let redis = runtime.block_on(async {
            // An earlier process with this number may have left its socket behind.
            let _ = std::fs::remove_file(&socket);
            let listener = UnixListener::bind(&socket).expect("a socket");
            tokio::spawn(accept(listener, Arc::clone(&shared)));
            let url = format!("unix://{}", socket.display());
            Redis::connect(&url).await.expect("it answers")
        });
        Self {
            runtime,
            redis,
            shared,
            socket,
        }
    }

    /// From now on this answers.
    pub fn answer(&self, answer: impl FnMut(&Words) -> Reply + Send + 'static) {
        self.shared.lock().expect("no panic here").answer = Some(Box::new(answer));
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Lets so much time pass.
    pub fn sleep(&self, duration: Duration) {
        self.block_on(async { tokio::time::sleep(duration).await });
    }

    /// Lets all that goes on in the background come to its end.
    pub fn settle(&self) {
        self.sleep(SETTLING);
    }

    /// Ends all connections, and waits until there is another one.
    pub fn cut(&self) {
        let clients = std::mem::take(&mut self.shared.lock().expect("no panic here").clients);
        clients.iter().for_each(AbortHandle::abort);
        self.settle();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Runs work that needs no server, but timers.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(work))
}

async fn accept(listener: UnixListener, shared: Arc<Mutex<Shared>>) {
    while let Ok((client, _)) = listener.accept().await {
        let serving: JoinHandle<_> = tokio::spawn(serve(client, Arc::clone(&shared)));
        let mut shared = shared.lock().expect("no panic here");
        shared.clients.retain(|client| !client.is_finished());
        shared.clients.push(serving.abort_handle());
    }
}

async fn serve(mut client: UnixStream, shared: Arc<Mutex<Shared>>) -> Option<()> {
    let mut received = Vec::new();
    loop {
        let mut replies = Vec::new();
        let mut is_cut = false;
        while let Some((words, length)) = command(&received)
            && !is_cut
        {
            received.drain(..length);
            match reply(&words, &shared) {
                Reply::Bytes(bytes) => replies.extend(bytes),
                Reply::Cut => is_cut = true,
            }
        }
        client.write_all(&replies).await.ok()?;
        if is_cut || client.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}

fn reply(words: &Words, shared: &Mutex<Shared>) -> Reply {
    if let Some(reply) = checked(words) {
        return Reply::Bytes(reply);
    }
    let bytes: &[u8] = match &*words[0] {
        b"HELLO" => b"%1\r\n+proto\r\n:3\r\n",
        b"CLIENT" => b"+OK\r\n",
        b"SCRIPT" => b"$4\r\nhash\r\n",
        b"INFO" => b"-ERR unknown command 'INFO'\r\n",
        b"TIME" => b"*2\r\n$10\r\n1800000000\r\n$1\r\n0\r\n",
        b"SUBSCRIBE" | b"UNSUBSCRIBE" => b">3\r\n+subscribe\r\n+x\r\n:1\r\n",
        _ => {
            return match &mut shared.lock().expect("no panic here").answer {
                Some(answer) => answer(words),
                None => Reply::Bytes(numbered(words, b":0\r\n")),
            };
        }
    };
    Reply::Bytes(bytes.to_vec())
}

/// The first command, and its length in bytes; none if it has not arrived completely.
fn command(received: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (number, mut at) = header(received, 0, b'*')?;
    let mut words = Vec::with_capacity(number);
    for _ in 0..number {
        let (length, from) = header(received, at, b'$')?;
        words.push(received.get(from..from + length)?.to_vec());
        at = from + length + 2;
    }
    (at <= received.len() && !words.is_empty()).then_some((words, at))
}

/// The number behind this mark, and where the next line begins.
fn header(received: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = received.get(at..)?;
    let length = line.windows(2).position(|pair| pair == b"\r\n")?;
    let number = line[..length].strip_prefix(&[mark])?;
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((number, at + length + 2))
}

/// The keys of a script call.
pub fn keys(words: &Words) -> &Words {
    let number = words.get(2).and_then(|word| std::str::from_utf8(word).ok());
    let number: usize = number.and_then(|word| word.parse().ok()).unwrap_or(0);
    words.get(3..3 + number).unwrap_or_default()
}

/// What stands behind the keys of a script call.
pub fn arguments(words: &Words) -> &Words {
    words.get(3 + keys(words).len()..).unwrap_or_default()
}

/// Whether a script call gives back: its second key has what was given back of the first.
pub fn is_refund(words: &Words) -> bool {
    let is_apart = |key: &Vec<u8>| key.ends_with(b":back") || key.ends_with(b"{back}");
    keys(words).get(1).is_some_and(is_apart)
}

/// The reply to a check, which has no keys and repeats its argument. `None` for other commands.
fn checked(words: &Words) -> Option<Vec<u8>> {
    let is_check = words[0] == b"EVAL" && words.get(2).is_some_and(|number| number == b"0");
    let number = words.get(3).filter(|_| is_check)?;
    Some([b"*1\r\n:", &number[..], b"\r\n"].concat())
}

/// What a script returns, behind the number of its call, which is its last argument. Of other
/// commands only what is returned.
pub fn numbered(words: &Words, returned: &[u8]) -> Vec<u8> {
    match words.last() {
        Some(number) if words[0].starts_with(b"EVAL") => {
            [b"*2\r\n:", &number[..], b"\r\n", returned].concat()
        }
        _ => returned.to_vec(),
    }
}

/// The head of a reply: the id of its call, no state, and this instant.
pub fn head(words: &Words, now: u64) -> Vec<u8> {
    let question = arguments(words).first();
    let id = question.and_then(|question| question.get(3..11));
    let mut head = id.unwrap_or_default().to_vec();
    head.extend([0; 8]);
    head.extend(&now.to_be_bytes()[1..]);
    head
}

/// The reply that allows a single take under a single quota: see `lua/formats.md`.
pub fn allowed(words: &Words) -> Vec<u8> {
    let mut reply = head(words, 1_800_000_000_000_000);
    // The verdict, one take, its serial number, what remains, and when the quota is whole.
    reply.push(1);
    reply.extend(1_u16.to_be_bytes());
    reply.extend([0; 21]);
    reply
}

/// A reply as it goes over the wire, in RESP3. Pushes are no replies.
pub fn encoded(value: &Value) -> Vec<u8> {
    let all = |mark: char, values: &[Value]| {
        let mut bytes = format!("{mark}{}\r\n", values.len()).into_bytes();
        bytes.extend(values.iter().flat_map(encoded));
        bytes
    };
    let one_line = |text: &str| text.replace(['\r', '\n'], " ");
    match value {
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::BulkString(bytes) => {
            [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        }
        Value::SimpleString(text) => format!("+{}\r\n", one_line(text)).into_bytes(),
        Value::VerbatimString { text, .. } => {
            format!("={}\r\ntxt:{text}\r\n", text.len() + 4).into_bytes()
        }
        Value::Okay => b"+OK\r\n".to_vec(),
        Value::Boolean(is_so) => format!("#{}\r\n", if *is_so { 't' } else { 'f' }).into_bytes(),
        Value::Double(number) if number.is_finite() => format!(",{number:e}\r\n").into_bytes(),
        Value::Array(values) => all('*', values),
        Value::Set(values) => all('~', values),
        Value::Map(pairs) => {
            let mut bytes = format!("%{}\r\n", pairs.len()).into_bytes();
            let pair = |(key, value): &(Value, Value)| [encoded(key), encoded(value)].concat();
            bytes.extend(pairs.iter().flat_map(pair));
            bytes
        }
        Value::ServerError(error) => {
            let details = one_line(error.details().unwrap_or(""));
            format!("-{} {details}\r\n", error.code()).into_bytes()
        }
        _ => b"_\r\n".to_vec(),
    }
}
