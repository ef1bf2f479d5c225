//! The way to the server.

use tidegate::store::StoreErrorKind::{self as Kind, Protocol, Timeout, Unavailable};

use crate::fault::Fault;
use crate::load::TIMEOUT;
use crate::*;

/// All connections are in this mode for a while.
async fn all_are(name: &'static str, mode: Mode, kind: Kind) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let fault = Fault::at(name, &proxy.url).await;
    // Who has just asked over a connection that another one replaces is told so.
    let fault = fault.gives(&[kind, Unavailable]).begins();
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
    let fault = Fault::at(name, &proxy.url).await;
    // Who waits behind a caller that got nonsense hears of the broken connection.
    let fault = fault.gives(&[kind, Unavailable]).begins();
    while !fault.is_told() {
        proxy.present(mode);
        sleep(WHILE / 4).await;
    }
    fault.ends().await;
    assert!(proxy.accepted() > 1, "{name}: the connection stays");
}

/// This happens to five connections, one after the other. One that breaks between two calls is
/// replaced without a word.
async fn they_are(name: &'static str, mode: Mode, kind: Kind) {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let fault = Fault::at(name, &proxy.url).await.or(&[kind]).begins();
    for broken in 1..=5 {
        fault.lasts(WHILE / 2).await;
        proxy.present(mode);
        while proxy.accepted() <= broken {
            fault.lasts(millis(1)).await;
        }
    }
    fault.ends().await;
}

const GARBAGE: Mode = Mode::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n");

const fn slow(calls: u32, replies: u32) -> Mode {
    Mode::Delay {
        calls: TIMEOUT.saturating_mul(calls),
        replies: TIMEOUT.saturating_mul(replies),
    }
}

kit::cases! {
    one_connection_is_a_black_hole:
        it_is("a black hole, one connection", Mode::BlackHole, Timeout);
    // What was sent meanwhile comes late.
    held: all_are("held up, then delivered late", Mode::Hold, Timeout);
    slow_calls: all_are("calls take twice the time-out", slow(2, 0), Timeout);
    slow_replies: all_are("replies take twice the time-out", slow(0, 2), Timeout);
    cut_in_the_middle_of_a_reply:
        it_is("cut after 7 bytes of a reply", Mode::CutAfter(7), Unavailable);
    reset: they_are("reset, 5 times", Mode::Reset, Unavailable);
    garbage: it_is("garbage for a reply", GARBAGE, Protocol);
    half_closed: they_are("half-closed, 5 times", Mode::HalfClosed, Unavailable);
    // Those who wait behind it must not get each other's.
    one_reply_is_lost: it_is("one reply lost", Mode::LoseReplies(1), Protocol);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused() {
    let server = Redis::start();
    let mut proxy = Proxy::start(&server.url).await;
    let fault = Fault::at("connections reset, and refused for a while", &proxy.url).await;
    let fault = fault.gives(&[Unavailable]).begins();
    proxy.refuse().await;
    proxy.present(Mode::Reset);
    fault.lasts(WHILE).await;
    proxy.accept_again().await;
    fault.ends().await;
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
    let store = kit::load::store(&proxy.url).await;
    proxy.present(Mode::CloseIdle(WHILE / 4));
    after_a_rest("closed while idle, by the network", store).await;
    assert!(proxy.accepted() > 1, "the connection stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_by_the_server_while_idle() {
    let server = Redis::start();
    run(&server, "CONFIG SET timeout 1");
    let store = kit::store_on(&server).await;
    after_a_rest("closed while idle, by the setting timeout", store).await;
}
