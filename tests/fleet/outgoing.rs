//! Four processes call a partner that allows half as much as they believe. Each time it refuses a
//! call, all of them leave it alone until it wants calls again.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use http::HeaderMap;
use kit::Redis;
use kit::workers::{instructions, number, outputs, start_worker};
use tidegate::{Limits, Quota, RedisStore, Resilient, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{MACHINE, PROCESSES, TASKS};

/// What the partner allows in each second of its own clock.
const ALLOWED: u64 = 100;
/// What the processes believe.
const BELIEVED: u32 = 200;
/// How long they call it, in seconds.
const SECONDS: u64 = 8;
/// From an answer to the end of what other processes decided before: a decision, on a busy machine.
const LATENCY: Duration = Duration::from_millis(400);

/// One call over a connection that stays open: the status, and the fields of the answer.
async fn ask(connection: &mut TcpStream) -> (StatusCode, HeaderMap) {
    let request = b"GET / HTTP/1.1\r\nhost: partner\r\n\r\n";
    connection.write_all(request).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).expect("a text");
    let status = head[9..12].parse().expect("a status");
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let fields = fields.filter(|(name, _)| *name == "retry-after");
    let fields = fields.map(|(name, value)| {
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
        (name, value.parse().expect("a value"))
    });
    (status, fields.collect())
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by other tests"]
async fn worker_calls_a_partner() {
    let Some(words) = instructions() else { return };
    let store = RedisStore::connect(&words[0]).await;
    let store = store
        .expect("a running server")
        .timeout(Duration::from_secs(5));
    let rule = Rule::new("partner", [Quota::per_second(BELIEVED)]).expect("valid");
    let rule = rule.with_outgoing().expect("one subject");
    let limits = Limits::new([rule]).store(Resilient::new(store).timeout(None));
    let partner = limits.outgoing("partner").wait(Duration::from_secs(20));
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let tasks = (0..TASKS).map(|_| {
        let (partner, address) = (partner.clone(), words[1].clone());
        tokio::spawn(async move {
            let mut connection = TcpStream::connect(address).await.expect("a partner");
            let mut answered = 0_u64;
            while Instant::now() < end {
                let turn = partner.ready("our-token").await.expect("a turn");
                let (status, fields) = ask(&mut connection).await;
                turn.heard(status, &fields);
                answered += 1;
            }
            answered
        })
    });
    let mut answered = 0;
    for task in tasks.collect::<Vec<_>>() {
        answered += task.await.expect("no panic");
    }
    println!("\nanswered {answered}");
}

/// What the partner was asked: when, and whether it allowed that.
type Asked = Arc<Mutex<Vec<(Duration, bool)>>>;

async fn partner(asked: Asked) -> String {
    let begun = Instant::now();
    let answer = async move || {
        let mut asked = asked.lock().expect("no panic");
        let now = begun.elapsed();
        let allowed = asked.iter().rev().filter(|(_, is_allowed)| *is_allowed);
        let in_second = allowed.take_while(|(at, _)| at.as_secs() == now.as_secs());
        let is_allowed = (in_second.count() as u64) < ALLOWED;
        asked.push((now, is_allowed));
        match is_allowed {
            true => (StatusCode::OK, [("retry-after", "0")]),
            false => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]),
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let app = Router::new().route("/", get(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_obeys_a_partner() {
    let _machine = MACHINE.lock().await;
    let (server, asked) = (Redis::start(), Asked::default());
    let address = partner(Arc::clone(&asked)).await;
    let worker = "outgoing::worker_calls_a_partner";
    let words = format!("{} {address}", server.url);
    let workers = (0..PROCESSES).map(|_| start_worker(worker, &words));
    let outputs = tokio::task::spawn_blocking({
        let workers: Vec<_> = workers.collect();
        move || outputs(workers)
    });
    let outputs = outputs.await.expect("no panic");
    let answered: u64 = outputs
        .iter()
        .map(|output| number(output, "answered"))
        .sum();
    let asked = asked.lock().expect("no panic").clone();
    assert_eq!(
        answered,
        asked.len() as u64,
        "each request is answered once"
    );

    let mut told = String::from("second: allowed, refused\n");
    for second in 0..=SECONDS {
        let of = |is_allowed| {
            let asked = asked
                .iter()
                .filter(|(at, it)| at.as_secs() == second && *it == is_allowed);
            asked.count()
        };
        told += &format!("{second}: {}, {}\n", of(true), of(false));
    }
    println!("{told}");

    let refused: Vec<_> = asked
        .iter()
        .filter(|(_, it)| !it)
        .map(|(at, _)| *at)
        .collect();
    let bursts: Vec<_> = refused
        .chunk_by(|one, next| *next - *one < Duration::from_millis(500))
        .collect();
    assert!(bursts.len() >= 2, "it is held again and again: {told}");
    for burst in &bursts {
        let (first, last) = (burst[0], burst[burst.len() - 1]);
        let in_flight = PROCESSES * TASKS;
        assert!(
            burst.len() <= 2 * in_flight,
            "{} refused at {first:?}: {told}",
            burst.len()
        );
        // The hold begins after the refusal, and ends a second later.
        let held = last + LATENCY..last + Duration::from_millis(990);
        let early = asked.iter().filter(|(at, _)| held.contains(at)).count();
        assert_eq!(early, 0, "calls between {held:?}: {told}");
    }
    let refused = refused.len() as f64 / asked.len() as f64;
    assert!(refused < 0.5, "{refused}: {told}");
}
