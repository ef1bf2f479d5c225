//! A fleet: several processes and one Redis, and the limit is one.
//!
//! The processes are this test binary, started anew for a single test that plays the worker.

mod support;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use support::Redis;
use tidegate::{Decision, Key, Quota, RateLimitLayer, RedisStore, Rule, Store, StoreExt, Take};
use tower::ServiceExt;

const PROCESSES: usize = 4;
const TASKS: usize = 16;

/// What a worker needs to know, in its environment.
const WORKER: &str = "TIDEGATE_TEST_WORKER";

fn start_worker(name: &str, instructions: &str) -> Child {
    let binary = std::env::current_exe().expect("this test");
    Command::new(binary)
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(WORKER, instructions)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts")
}

/// The number that the worker printed behind this word.
fn number(output: &str, word: &str) -> u64 {
    let line = output.lines().find_map(|line| line.strip_prefix(word));
    let line = line.unwrap_or_else(|| panic!("no {word} in {output:?}"));
    line.trim().parse().expect("a number")
}

fn outputs(workers: Vec<Child>) -> Vec<String> {
    let output = |mut worker: Child| {
        let mut output = String::new();
        let mut stdout = worker.stdout.take().expect("is piped");
        stdout.read_to_string(&mut output).expect("text");
        assert!(worker.wait().expect("our child").success(), "{output}");
        output
    };
    workers.into_iter().map(output).collect()
}

/// Instructions for a worker, if this process is one: the server's address and words behind it.
fn instructions() -> Option<Vec<String>> {
    let instructions = std::env::var(WORKER).ok()?;
    Some(instructions.split_whitespace().map(str::to_owned).collect())
}

async fn store(url: &str) -> Arc<dyn Store> {
    let store = RedisStore::connect(url).await.expect("a running server");
    Arc::new(store.timeout(Duration::from_secs(20)))
}

/// Plays one process: requests through the whole layer until told otherwise.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_hammers_a_path() {
    let Some(words) = instructions() else { return };
    let store = store(&words[0]).await;
    let max: u64 = words[1].parse().expect("a number");
    let layer = RateLimitLayer::new("hammered", Duration::from_secs(3600), max).store(store);
    let app = Router::new().route("/", get(|| async { "1" }).layer(layer));
    let tasks = (0..TASKS).map(|_| {
        let app = app.clone();
        tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..max.div_ceil(4) + 10 {
                let request = Request::get("/").body(Body::empty()).expect("valid");
                let response = app
                    .clone()
                    .oneshot(request)
                    .await
                    .expect("axum does not fail");
                match response.status() {
                    StatusCode::OK => allowed += 1,
                    StatusCode::TOO_MANY_REQUESTS => {}
                    other => panic!("{other}"),
                }
            }
            allowed
        })
    });
    let mut allowed: u64 = 0;
    for task in tasks.collect::<Vec<_>>() {
        allowed += task.await.expect("no panic");
    }
    println!("\nallowed {allowed}");
}

/// Law 1 for processes: exactly `max` requests get through, whoever asks.
#[test]
fn exactly_max_requests_for_the_whole_fleet() {
    for max in [1, 10, 100, 1_000] {
        let server = Redis::start();
        let instructions = format!("{} {max}", server.url);
        let workers = (0..PROCESSES).map(|_| start_worker("worker_hammers_a_path", &instructions));
        let outputs = outputs(workers.collect());
        let allowed: u64 = outputs
            .iter()
            .map(|output| number(output, "allowed "))
            .sum();
        assert_eq!(allowed, max);
    }
}

/// Plays one process that asks for weighted takes without a pause, for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_spends_for_a_while() {
    let Some(words) = instructions() else { return };
    let store = store(&words[0]).await;
    let quotas = [quota(100, 200), quota(240, 1_000)];
    let rule = Arc::new(Rule::new("weighted", quotas).expect("valid"));
    let until = tokio::time::Instant::now() + Duration::from_secs(2);
    let tasks = (0..TASKS as u64).map(|task| {
        let (store, rule) = (store.clone(), rule.clone());
        tokio::spawn(async move {
            let mut spent = Vec::new();
            let mut step = task;
            while tokio::time::Instant::now() < until {
                step += 1;
                let cost = 1 + step % 7;
                let take = Take::new(rule.clone(), Key::default()).cost(cost);
                let decision: Decision = store.take_one(&take).await.expect("a decision");
                if decision.is_allowed() {
                    spent.push(cost);
                }
            }
            spent.iter().sum::<u64>()
        })
    });
    let mut spent = 0;
    for task in tasks.collect::<Vec<_>>() {
        spent += task.await.expect("no panic");
    }
    println!("\nspent {spent}");
}

fn quota(max: u64, millis: u64) -> Quota {
    Quota::new(max, Duration::from_millis(millis)).expect("valid")
}

/// Law 1 in every window: what `MONITOR` saw the script write is replayed by somebody who knows only
/// when how much was spent.
#[test]
fn no_window_is_ever_above_its_quota() {
    let server = Redis::start();
    let mut monitor = Monitor::start(&server);
    let workers = (0..PROCESSES).map(|_| start_worker("worker_spends_for_a_while", &server.url));
    let outputs = outputs(workers.collect());
    let spent: u64 = outputs.iter().map(|output| number(output, "spent ")).sum();
    let grants = monitor.grants();

    assert_eq!(
        grants.iter().map(|grant| grant.cost).sum::<u64>(),
        spent,
        "every grant was seen"
    );
    for (max, window) in [(100, 200_000), (240, 1_000_000)] {
        let mut fullest = 0;
        for (at, last) in grants.iter().enumerate() {
            let inside = grants[..=at].iter().rev();
            let inside = inside.take_while(|grant| grant.stamp + window > last.stamp);
            fullest = fullest.max(inside.map(|grant| grant.cost).sum::<u64>());
        }
        assert!(fullest <= max, "{fullest} in a window of {max}");
        assert!(
            fullest * 100 >= max * 90,
            "{fullest} of {max}: this test asked for too little"
        );
    }
}

/// How much was granted, and when by the server's clock.
struct Grant {
    stamp: u64,
    cost: u64,
}

/// `redis-cli MONITOR`, which shows what scripts write.
struct Monitor {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Monitor {
    fn start(server: &Redis) -> Self {
        let mut child = Command::new("redis-cli")
            .args(["-u", &server.url, "MONITOR"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-cli starts");
        let stdout = child.stdout.take().expect("is piped");
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            use std::io::BufRead;
            for line in std::io::BufReader::new(stdout)
                .lines()
                .map_while(Result::ok)
            {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let first = lines
            .recv_timeout(Duration::from_secs(20))
            .expect("redis-cli answers");
        assert_eq!(first, "OK");
        Self { child, lines }
    }

    /// From `"ZADD" "CurrentLimiter:weighted" "<stamp>" "<entry>"`: an entry has the running total, so the difference to the one before is what was granted.
    fn grants(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut before = 0;
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(2)) {
            let Some((_, entry)) = line.split_once("\"ZADD\" \"CurrentLimiter:weighted\" \"")
            else {
                continue;
            };
            let (stamp, entry) = entry.split_once("\" \"").expect("a score and a member");
            let total = total_of(entry);
            // A log that was forgotten as a whole starts again at zero.
            let cost = total.checked_sub(before).unwrap_or(total);
            before = total;
            let stamp = stamp.parse().expect("microseconds");
            grants.push(Grant { stamp, cost });
        }
        grants
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The seven bytes behind the first one, out of the quoting of `MONITOR`.
fn total_of(quoted: &str) -> u64 {
    let mut chars = quoted.bytes();
    let mut byte = || {
        let mut next = || chars.next().expect("an entry is longer");
        match next() {
            b'\\' => match next() {
                b'x' => {
                    let digits = [next(), next()];
                    let digits = std::str::from_utf8(&digits).expect("hexadecimal digits");
                    u8::from_str_radix(digits, 16).expect("hexadecimal digits")
                }
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'a' => 7,
                b'b' => 8,
                plain => plain,
            },
            plain => plain,
        }
    };
    let _mark = byte();
    (0..7).fold(0, |total, _| (total << 8) | u64::from(byte()))
}
