//! A lone take is sent by its own future. Nobody's answer depends on whether that future is polled.

use std::pin::{Pin, pin};

use futures_util::poll;
use tokio::time::Instant;

use crate::prelude::*;
use crate::take;

const MILLISECOND: Duration = Duration::from_millis(1);

fn of(path: &str) -> Take {
    take(path, &[Quota::per_hour(100)])
}

/// The numbers of the store's connections, by the server.
fn connections(server: &Redis) -> Vec<String> {
    let list: String = server.run("CLIENT LIST");
    let of_store = list.lines().filter(|line| line.contains("resp=3"));
    let id = |line: &str| line.split(' ').next().expect("an id").to_owned();
    of_store.map(id).collect()
}

async fn remaining(store: &RedisStore, take: &Take) -> u64 {
    ask(store, take).await.remaining()
}

/// A take whose future was polled once, and whose answer was not there then: a reply may be quick.
async fn sent(store: &RedisStore, take: &Take) -> Pin<Box<StoreFuture<Decision>>> {
    loop {
        let mut sent = Box::pin(store.take(take));
        if poll!(sent.as_mut()).is_pending() {
            return sent;
        }
    }
}

/// Sent, and then not polled for far longer than a connection may be silent: others are answered, and
/// the connection stays the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stops_polling_delays_nobody() {
    let (server, store) = started().await;
    assert_eq!(remaining(&store, &of("first")).await, 99);
    let before = connections(&server);
    assert_eq!(before.len(), 1, "{before:?}");

    let stopped = sent(&store, &of("stopped")).await;
    for at in 0..50 {
        let began = Instant::now();
        assert_eq!(remaining(&store, &of("other")).await, 99 - at);
        assert!(began.elapsed() < Duration::from_secs(5));
        sleep(10 * MILLISECOND).await;
    }
    // Now it is alone, and nobody reads its reply but the dispatcher.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(connections(&server), before);
    let left = stopped.await.expect("an answer").remaining();
    assert_eq!(remaining(&store, &of("stopped")).await, left - 1);
}

/// The same for one that is alone from the beginning, and for as many as may send their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_not_read_is_no_silence() {
    let (server, store) = started().await;
    let before = connections(&server);
    for number in [1, 2, 6] {
        let mut stopped = Vec::new();
        for _ in 0..number {
            stopped.push(sent(&store, &of("stopped")).await);
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!(connections(&server), before, "{number} takes");
        let mut left = 0;
        for stopped in stopped {
            left = stopped.await.expect("an answer").remaining();
        }
        assert_eq!(remaining(&store, &of("stopped")).await, left - 1);
    }
}

/// Callers that leave right after they have asked: what was sent is charged, and the connection and
/// its bound on flights are as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_leave_nothing_behind() {
    let (server, store) = started().await;
    assert_eq!(remaining(&store, &of("first")).await, 99);
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = metrics.num_alive_tasks();
    let before = connections(&server);
    for _ in 0..500 {
        let left = take("left", &[Quota::per_hour(1_000_000)]);
        let mut left = pin!(store.take(&left));
        let _ = poll!(left.as_mut());
    }
    let mut at_once = Vec::new();
    for at in 0..100 {
        let began = Instant::now();
        assert_eq!(remaining(&store, &of("after")).await, 99 - at);
        at_once.push(began.elapsed());
    }
    assert_eq!(connections(&server), before);
    assert_eq!(metrics.num_alive_tasks(), tasks);
}

/// One that is never polled is never sent, and holds up nobody.
#[tokio::test]
async fn what_is_never_polled_is_never_sent() {
    let (_server, store) = started().await;
    let never = store.take(&of("never"));
    for at in 0..20 {
        assert_eq!(remaining(&store, &of("other")).await, 99 - at);
    }
    // The other takes came behind it, and it departed with the first of them.
    drop(never);
    drop(store.take(&of("dropped")));
    sleep(100 * MILLISECOND).await;
    assert_eq!(remaining(&store, &of("dropped")).await, 99);
}

/// Takes and refunds of one key, by one caller, with and without other callers beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_asking_is_kept() {
    let (_server, store) = started().await;
    let take = take("p", &[Quota::per_hour(1)]);
    for round in 0..300 {
        let decision = ask(&store, &take).await;
        let receipt = decision.receipt().expect("it was charged");
        // Asked one behind the other, and polled in the opposite order.
        let refund = store.refund(&take, &receipt);
        let again = store.take(&take);
        let beside = (round % 3 == 0).then(|| store.take(&take));
        let again = timeout(10 * SECOND, again).await.expect("an answer");
        let again = again.expect("a decision");
        assert!(again.is_allowed(), "the refund comes first");
        assert_eq!(refund.await.expect("an answer"), 1);
        if let Some(beside) = beside {
            assert!(!beside.await.expect("a decision").is_allowed());
        }
        let receipt = again.receipt().expect("it was charged");
        assert_eq!(store.refund(&take, &receipt).await.expect("an answer"), 1);
    }
}

/// Whoever leaves gives up no place on the wire: a server that hangs gets few commands, however many
/// callers ask and leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_do_not_flood_a_server_that_hangs() {
    let (server, store) = started().await;
    assert_eq!(remaining(&store, &of("first")).await, 99);
    server.signal("STOP");
    let asked = take("p", &[Quota::per_hour(1_000)]);
    for _ in 0..300 {
        let mut left = pin!(store.take(&asked));
        let _ = poll!(left.as_mut());
        // Until the client has written it.
        sleep(MILLISECOND).await;
    }
    server.signal("CONT");
    // Its silence may have ended the connection.
    eventually("it answers", async || store.peek(&asked).await.is_ok()).await;
    let charged = 1_000 - 1 - remaining(&store, &asked).await;
    assert!((1..=70).contains(&charged), "{charged}");
}
