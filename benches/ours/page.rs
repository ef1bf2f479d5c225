//! What the page costs a service: a flood of 10,000 keys over 64 connections of `wrk`, few of which
//! send most requests (Zipf's law), while 32 browsers poll the page; beside the same service without
//! a page. Nine pairs, or as many as ROUNDS says. The bench starts a server of its own.
//!
//! With COUNTED=n it sends 20,000 requests of these keys through the layer over a memory store, then n
//! of which `benches/page.sh` counts the instructions, and ends. PAGE=1 mounts a page, and nobody
//! looks. MAX=n is how many requests a second each key may send.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use kit::Redis;
use support::{Table, counted, median};
use tidegate::{Key, Limits, Quota, Resilient, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, service_fn};

const KEYS: usize = 10_000;
const POLLERS: usize = 32;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The keys of many requests: the key of rank n sends one n-th of what the first one sends.
fn keys() -> Vec<u64> {
    let weights = (1..=KEYS).map(|rank| 1.0 / rank as f64);
    let mut sum = 0.0;
    let sums: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    // Multiples of the golden ratio are spread evenly.
    let points = (0..1_u64 << 16).map(|at| (at as f64 * 0.618_033_988_75).fract() * sum);
    let rank = |point: f64| sums.partition_point(|so_far| *so_far < point) as u64;
    points.map(rank).collect()
}

fn limits(max: u64) -> Limits {
    let quota = Quota::new(Duration::from_secs(1), max).expect("valid");
    let rule = Rule::new("api", [quota]).expect("valid");
    let (keys, next) = (keys(), AtomicU64::new(0));
    let rule = rule.with_key(move |_: &http::request::Parts| {
        let at = next.fetch_add(1, Ordering::Relaxed) as usize;
        Ok(Key::from(keys[at % keys.len()]))
    });
    Limits::new([rule])
}

/// The service's address, with a page or without.
async fn serve(limits: &Limits, has_page: bool) -> u16 {
    let mut app = Router::new().route("/api", get("1").layer(limits.layer("api")));
    if has_page {
        app = app.nest_service("/limits", limits.page().router());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async { axum::serve(listener, app).await });
    port
}

/// A browser with the page open: it asks for two views a second.
async fn poll(port: u16, bytes: Arc<AtomicU64>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connects");
    let mut after = String::new();
    loop {
        let now = ask(&mut stream, &format!("now{after}")).await;
        let tick = now
            .split("\"tick\":")
            .nth(1)
            .and_then(|rest| rest.split([',', '}']).next());
        after = tick.map_or_else(String::new, |tick| format!("?after={tick}"));
        let limited = ask(&mut stream, "limited").await;
        bytes.fetch_add((now.len() + limited.len()) as u64, Ordering::Relaxed);
        sleep(Duration::from_secs(1)).await;
    }
}

async fn ask(stream: &mut TcpStream, view: &str) -> String {
    let request = format!("GET /limits/api/{view} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut answer = Vec::new();
    loop {
        stream.read_buf(&mut answer).await.expect("reads");
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|it| it.parse().ok()).expect("a length");
        if body.len() >= length {
            return body.to_owned();
        }
    }
}

async fn load(port: u16) -> f64 {
    let url = format!("http://127.0.0.1:{port}/api");
    let wrk = Command::new("wrk")
        .args(["-t1", "-c64", "-d2s", &url])
        .output()
        .await;
    let text = String::from_utf8(wrk.expect("wrk is installed").stdout).expect("text");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    line.and_then(|line| line.trim().parse().ok())
        .expect("a result")
}

/// Requests through the layer alone.
fn requests(runtime: &Runtime, number: u64, max: u64) {
    let _entered = runtime.enter();
    let limits = limits(max);
    let page = variable("PAGE").map(|_| limits.page().router());
    let mut service = limits
        .layer("api")
        .layer(service_fn(async |_: Request<Body>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("1")))
        }));
    let mut ask = |number| {
        runtime.block_on(async {
            for at in 0..number {
                if at % 1_000 == 0 {
                    // The task of the page goes on.
                    tokio::task::yield_now().await;
                }
                let request = Request::get("/api").body(Body::empty()).expect("valid");
                let service = service.ready().await.expect("ready");
                let _ = service.call(request).await;
            }
        });
    };
    ask(20_000);
    counted(&mut || ask(number));
    drop(page);
}

fn main() {
    let max = variable("MAX").unwrap_or(100);
    if let Some(number) = variable("COUNTED") {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return requests(&runtime.expect("a runtime"), number, max);
    }
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(compare(max));
}

async fn compare(max: u64) {
    let server = Redis::start();
    let rounds = variable("ROUNDS").unwrap_or(9);
    let mut table = Table::new(&[
        "64 connections, 10,000 keys by Zipf's law",
        "without a page, requests/s",
        "32 browsers, requests/s",
        "ratio",
        "lowest",
        "highest",
        "of them denied",
        "bytes for a browser and second",
    ]);
    for name in ["memory", "Redis"] {
        let store = |service: &str| {
            let redis = Resilient::redis(server.url.as_str(), service).expect("valid");
            redis.timeout(Duration::from_secs(5)).in_flight(None)
        };
        let (mut with, mut without) = (limits(max), limits(max));
        if name == "Redis" {
            (with, without) = (with.store(store("with")), without.store(store("without")));
        }
        let ports = [serve(&with, true).await, serve(&without, false).await];
        let bytes = Arc::new(AtomicU64::new(0));
        let (mut rates, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for round in 0..=rounds {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            let mut rate = [0.0, 0.0];
            for at in order {
                let pollers: Vec<_> = (0..if at == 0 { POLLERS } else { 0 })
                    .map(|_| tokio::spawn(poll(ports[0], Arc::clone(&bytes))))
                    .collect();
                rate[at] = load(ports[at]).await;
                pollers.iter().for_each(tokio::task::JoinHandle::abort);
            }
            // The first pair warms up.
            if round > 0 {
                rates[0].push(rate[0]);
                rates[1].push(rate[1]);
                ratios.push(rate[0] / rate[1]);
            } else {
                bytes.store(0, Ordering::Relaxed);
            }
        }
        let snapshot = with.snapshot();
        let counted = snapshot.rule("api").expect("a layer uses it");
        let all: u64 = tidegate::metrics::DecisionOutcome::ALL
            .map(|it| counted.decisions(it))
            .iter()
            .sum();
        let denied = counted.decisions(tidegate::metrics::DecisionOutcome::Denied);
        let per_browser = bytes.load(Ordering::Relaxed) / (rounds * 2 * POLLERS as u64);
        table.row(&[
            name.to_owned(),
            format!("{:.0}", median(rates[1].iter().copied())),
            format!("{:.0}", median(rates[0].iter().copied())),
            format!("{:.3}", median(ratios.iter().copied())),
            format!("{:.2}", ratios.iter().copied().fold(f64::MAX, f64::min)),
            format!("{:.2}", ratios.iter().copied().fold(0.0, f64::max)),
            format!("{} %", 100 * denied / all.max(1)),
            per_browser.to_string(),
        ]);
    }
    table.print();
}
