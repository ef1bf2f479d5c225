//! Four processes that contend for one lock, some of them stopped for longer than their lease, and
//! a resource that refuses whoever comes late.
//!
//! `TIDEGATE_ACQUISITIONS=100000` for the long form.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::*;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const LEASE: Duration = millis(300);

/// A counter that is read, and written later by whoever has read it: an update is lost if two do so
/// at once. It takes nothing with a lower token than it has seen.
#[derive(Default)]
struct Resource {
    value: u64,
    highest: u64,
    tokens: HashSet<u64>,
    accepted: u64,
    refused: u64,
    /// Tokens that were given to two acquisitions.
    twice: u64,
    wanted: u64,
}

impl Resource {
    /// `read TOKEN`, `write TOKEN VALUE`; the answer is a number, or `stale`, or `end`.
    fn answer(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let token = number(1);
        if words[0] == "read" {
            if self.accepted + self.refused >= self.wanted {
                return "end".to_owned();
            }
            self.twice += u64::from(!self.tokens.insert(token));
        }
        if token < self.highest {
            self.refused += 1;
            return "stale".to_owned();
        }
        self.highest = token;
        if words[0] == "write" {
            self.accepted += 1;
            self.value = number(2);
        }
        self.value.to_string()
    }
}

async fn serve(listener: TcpListener, resource: Arc<Mutex<Resource>>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let resource = Arc::clone(&resource);
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream
                .read_line(&mut line)
                .await
                .is_ok_and(|bytes| bytes > 0)
            {
                let answer = resource.lock().expect("no panic").answer(&line) + "\n";
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

/// A process that contends; it is started by the test below.
#[tokio::test]
#[ignore = "a worker of the test below"]
async fn worker() {
    let Some(instructions) = instructions() else {
        return;
    };
    let [url, address] = &instructions[..] else {
        panic!("{instructions:?}");
    };
    let redis = handle(url).await;
    let tasks = (0..TASKS).map(|_| {
        let lock = Lock::new(&redis, "soak").lease(LEASE);
        let address = address.clone();
        tokio::spawn(async move {
            let stream = TcpStream::connect(address).await.expect("the resource");
            stream.set_nodelay(true).expect("is set");
            let mut stream = BufReader::new(stream);
            loop {
                let guard = lock.holds().await;
                let token = guard.fencing_token();
                let read = ask(&mut stream, &format!("read {token}\n")).await;
                if let Ok(value) = read.parse::<u64>() {
                    // Others may come in here, if this process is stopped.
                    tokio::task::yield_now().await;
                    ask(&mut stream, &format!("write {token} {}\n", value + 1)).await;
                }
                // It may have been lost.
                let _ = guard.release().await;
                if read == "end" {
                    return;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

async fn ask(stream: &mut BufReader<TcpStream>, question: &str) -> String {
    stream
        .write_all(question.as_bytes())
        .await
        .expect("is sent");
    let mut answer = String::new();
    stream.read_line(&mut answer).await.expect("an answer");
    answer.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_checks_tokens_loses_no_update() {
    let wanted = std::env::var("TIDEGATE_ACQUISITIONS");
    let wanted = wanted.map_or(3_000, |number| number.parse().expect("a number"));
    let server = Server::start();
    let resource = Arc::new(Mutex::new(Resource {
        wanted,
        ..Resource::default()
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, Arc::clone(&resource)));

    let began = Instant::now();
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| start_worker("soak::worker", &format!("{} {address}", server.url)))
        .collect();
    let mut stops = 0;
    while !workers
        .iter_mut()
        .all(|worker| worker.try_wait().expect("our child").is_some())
    {
        sleep(millis(250)).await;
        let stopped = &mut workers[stops % PROCESSES];
        if stopped.try_wait().expect("our child").is_none() {
            signal("STOP", stopped.id());
            sleep(2 * LEASE).await;
            signal("CONT", stopped.id());
            stops += 1;
        }
    }
    for worker in &mut workers {
        assert!(worker.wait().expect("our child").success());
    }
    let resource = resource.lock().expect("no panic");
    println!(
        "{} acquisitions, {stops} stops for longer than the lease, {} writes refused, in {:?}",
        resource.tokens.len(),
        resource.refused,
        began.elapsed()
    );
    assert_eq!(resource.value, resource.accepted, "an update was lost");
    assert_eq!(resource.twice, 0, "tokens that two have had");
    assert!(stops > 0 && resource.accepted + resource.refused >= wanted);
}

fn signal(name: &str, process: u32) {
    let status = std::process::Command::new("kill")
        .args([format!("-{name}"), process.to_string()])
        .status();
    assert!(status.expect("kill runs").success());
}
