//! The way to the server.

use std::time::Duration;

use kit::Redis;
use kit::proxy::{Mode, Proxy};
use tidegate::RedisStore;
use tidegate::store::StoreErrorKind as Kind;
use tokio::time::sleep;

use crate::fault::Fault;
use crate::load::TIMEOUT;
use crate::run;

const WHILE: Duration = Duration::from_millis(400);

/// All connections are in this mode for a while.
async fn all_are(name: &'static str, mode: Mode, kind: Kind) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let fault = Fault::at(name, &proxy.url).await.gives(kind);
    // Who has just asked over a connection that another one replaces is told so.
    let mut fault = fault.or(Kind::Unavailable);
    fault.begins();
    proxy.all(mode);
    fault.lasts(WHILE).await;
    proxy.all(Mode::Pass);
    fault.ends().await;
}

/// This happens to the connection that is there, and to the next ones until it is told; another one
/// can be had at once.
async fn it_is(name: &'static str, mode: Mode, kind: Kind) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    // Who waits behind a caller that got nonsense hears of the broken connection.
    let fault = Fault::at(name, &proxy.url).await.gives(kind);
    let mut fault = fault.or(Kind::Unavailable);
    fault.begins();
    while !fault.is_told() {
        proxy.present(mode);
        sleep(WHILE / 4).await;
    }
    fault.ends().await;
    assert!(proxy.accepted() > 1, "{name}: the connection stays");
}

/// This happens to five connections, one after the other. One that breaks between two calls is
/// replaced without a word.
async fn they_are(name: &'static str, mode: Mode) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let fault = Fault::at(name, &proxy.url).await;
    let mut fault = fault.or(Kind::Unavailable);
    fault.begins();
    for broken in 1..=5 {
        fault.lasts(WHILE / 2).await;
        proxy.present(mode);
        while proxy.accepted() <= broken {
            fault.lasts(Duration::from_millis(1)).await;
        }
    }
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused() {
    let server = Redis::start();
    let mut proxy = Proxy::start(&server.url).await;
    let fault = Fault::at("connections reset, and refused for a while", &proxy.url).await;
    let mut fault = fault.gives(Kind::Unavailable);
    fault.begins();
    proxy.refuse().await;
    proxy.present(Mode::Reset);
    fault.lasts(WHILE).await;
    proxy.accept_again().await;
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_is_a_black_hole() {
    it_is(
        "a black hole, one connection",
        Mode::BlackHole,
        Kind::Timeout,
    )
    .await;
}

/// What was sent meanwhile comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held() {
    all_are("held up, then delivered late", Mode::Hold, Kind::Timeout).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_calls() {
    let slow = Mode::Delay {
        calls: 2 * TIMEOUT,
        replies: Duration::ZERO,
    };
    all_are("calls take twice the time-out", slow, Kind::Timeout).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_replies() {
    let slow = Mode::Delay {
        calls: Duration::ZERO,
        replies: 2 * TIMEOUT,
    };
    all_are("replies take twice the time-out", slow, Kind::Timeout).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_in_the_middle_of_a_reply() {
    it_is(
        "cut after 7 bytes of a reply",
        Mode::CutAfter(7),
        Kind::Unavailable,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset() {
    they_are("reset, 5 times", Mode::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage() {
    let garbage = Mode::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    it_is("garbage for a reply", garbage, Kind::Protocol).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed() {
    they_are("half-closed, 5 times", Mode::HalfClosed).await;
}

/// Those who wait behind it must not get each other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_reply_is_lost() {
    it_is("one reply lost", Mode::LoseReplies(1), Kind::Protocol).await;
}

/// Nobody has called for a while when the load begins.
async fn after_a_rest(name: &'static str, store: RedisStore) {
    sleep(6 * WHILE).await;
    Fault::before(name, store).ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_by_the_network_while_idle() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&proxy.url).await;
    proxy.present(Mode::CloseIdle(WHILE / 4));
    let name = "closed while idle, by the network";
    after_a_rest(name, store.expect("a running server")).await;
    assert!(proxy.accepted() > 1, "the connection stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_by_the_server_while_idle() {
    let server = Redis::start();
    run(&server, "CONFIG SET timeout 1");
    let store = RedisStore::connect(&server.url).await;
    let name = "closed while idle, by the setting timeout";
    after_a_rest(name, store.expect("a running server")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_by_the_server() {
    let server = Redis::start();
    // A connection that is closed between two calls is replaced without a word.
    let fault = Fault::at("CLIENT KILL, 5 times", &server.url).await;
    let mut fault = fault.or(Kind::Unavailable);
    fault.begins();
    for _ in 0..5 {
        fault.lasts(WHILE / 2).await;
        run(&server, "CLIENT KILL TYPE normal SKIPME yes");
    }
    fault.ends().await;
}
