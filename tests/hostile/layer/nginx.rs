//! A limit beside the one of a real nginx that docs/migrating.md translates to it.

use axum::routing::get;
use kit::nginx::Nginx;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::*;

/// After how many units of three seconds each of six requests at once is answered, and how.
async fn burst(server: std::net::SocketAddr) -> Vec<(u64, String)> {
    let began = Instant::now();
    let mut answers = join_all((0..6).map(async |_| {
        let mut stream = TcpStream::connect(server).await.expect("a server");
        let asked = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(asked).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        let status = answer.split(' ').nth(1).expect("a status").to_owned();
        let units = began.elapsed().as_secs_f64() / 3.0;
        (units.round() as u64, status)
    }))
    .await;
    answers.sort_unstable();
    answers
}

/// `rate=20r/m burst=3 delay=1`: four of six, of which two wait.
#[tokio::test]
async fn a_burst_that_is_delayed() {
    let quota = Quota::per_minute(20).with_burst(2).expect("valid");
    let rule = Rule::new("login", [quota]).expect("valid");
    let layer = RateLimitLayer::from_rule(rule.with_algorithm(Algorithm::Gcra));
    let layer = layer.store(MemoryStore::new()).wait(6 * SECOND);
    let route = |handler| Router::new().route("/", handler);
    let ours = kit::http::serve(route(get(async || "1").layer(layer))).await;
    let app = kit::http::serve(route(get(async || "1"))).await;
    let nginx = Nginx::limiting(&[app.to_string()], "20r/m", "burst=3 delay=1");
    let answers = tokio::join!(burst(ours), burst(nginx.address));
    assert_eq!(answers.0, answers.1);
    assert_eq!(
        answers
            .0
            .iter()
            .filter(|(_, status)| status == "200")
            .count(),
        4
    );
}
