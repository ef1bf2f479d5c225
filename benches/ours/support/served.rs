//! A service over Redis, and what its requests cost.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use http::request::Parts;
use redis::{Connection, InfoDict, cmd};
use tidegate::key::KeyExtractor;
use tidegate::{Key, Quota};
use tokio::net::TcpListener;

/// A key whose number changes with each request.
pub(crate) fn one_of(many: u64) -> impl KeyExtractor {
    let next = AtomicU64::new(0);
    move |_: &Parts| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        Ok(Key::from(number.wrapping_mul(2_654_435_761) % many))
    }
}

/// So much that nothing is denied.
pub(crate) fn quota(seconds: u64) -> Quota {
    Quota::new(Duration::from_secs(seconds), 1_000_000_000).expect("valid")
}

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

/// What a contender's requests cost in a round: microseconds of one, or requests a second; script calls
/// of each; and microseconds of the server.
pub(crate) type Costs = [f64; 3];

pub(crate) const CALLS: usize = 1;
pub(crate) const MICROS: usize = 2;

/// Script calls, and microseconds of the server in them, since the last question.
pub(crate) fn script_calls(connection: &mut Connection) -> (f64, f64) {
    let info = cmd("INFO").arg("commandstats").query(connection);
    let info: InfoDict = info.expect("informs");
    let stats: String = info.get("cmdstat_evalsha").unwrap_or_default();
    let field = |name| stats.split(',').find_map(|pair| pair.strip_prefix(name));
    let number = |name| field(name).map_or(0.0, |text| text.parse().expect("a number"));
    let found = (number("calls="), number("usec="));
    let reset = cmd("CONFIG").arg("RESETSTAT").exec(connection);
    reset.expect("resets");
    found
}

/// Requests of this path over 64 connections, for two seconds.
pub(crate) fn loaded(server: &mut Connection, address: SocketAddr, path: &str) -> Costs {
    cmd("FLUSHALL").exec(server).expect("flushes");
    script_calls(server);
    let url = format!("http://{address}/{path}");
    let output = Command::new("wrk")
        .args(["-t1", "-c64", "-d2s", &url])
        .output();
    let text = String::from_utf8(output.expect("wrk is installed").stdout).expect("text");
    assert!(!text.contains("Non-2xx"), "{text}");
    let (calls, micros) = script_calls(server);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate: f64 = line.and_then(|it| it.trim().parse().ok()).expect("a rate");
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "));
    let requests: f64 = requests
        .and_then(|(it, _)| it.parse().ok())
        .expect("a number");
    [rate, calls / requests, micros / requests]
}
