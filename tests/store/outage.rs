//! Redis gone, hanging and back: bounded time, honest errors, and nothing leaked. The faults one by
//! one, each under load, are in `tests/faults`.

use crate::prelude::*;
use crate::take;

/// More than any scheduling hiccup that the kernel does not count, less than anybody's time-out.
const HICCUP: Duration = millis(900);

/// How a take failed, and how long that took, without the time in which the machine was busy.
async fn failure(store: &RedisStore) -> (StoreErrorKind, Duration) {
    let stopwatch = Stopwatch::here();
    let error = store.take(&take("p", &[Quota::per_minute(5)])).await;
    (error.expect_err("no decision").kind(), stopwatch.waited())
}

/// Asks until there is a decision again.
async fn is_back(store: &RedisStore) {
    let back = take("back", &[Quota::per_minute(1_000_000)]);
    eventually("it is back", async || store.take(&back).await.is_ok()).await;
}

/// Law 6: a server that hangs.
#[tokio::test]
async fn a_stopped_server_costs_the_timeout() {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(millis(100));
    server.signal("STOP");
    for _ in 0..3 {
        let began = Instant::now();
        let (kind, took) = failure(&store).await;
        assert_eq!(kind, StoreErrorKind::Timeout);
        assert!(took < HICCUP, "{took:?}");
        assert!(began.elapsed() >= millis(100));
    }
    server.signal("CONT");
    is_back(&store).await;
}

#[tokio::test]
async fn the_default_timeout_is_50_ms() {
    let server = Redis::start();
    let store = RedisStore::connect(&server.url).await.expect("it runs");
    server.signal("STOP");
    let error = store.take(&take("p", &[Quota::per_minute(5)])).await;
    let error = error.expect_err("no decision").to_string();
    assert!(error.ends_with("did not answer within 50ms"), "{error}");
    server.signal("CONT");
}

/// Law 6: many at once wait no longer than one alone.
#[tokio::test]
async fn a_crowd_waits_no_longer() {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(millis(100));
    run(&server, "CLIENT PAUSE 2000");
    let stopwatch = Stopwatch::here();
    let crowd = crowd(500, |_| {
        let store = store.clone();
        async move { failure(&store).await }
    });
    for (kind, _) in crowd.await {
        assert_eq!(kind, StoreErrorKind::Timeout);
    }
    assert!(stopwatch.waited() < HICCUP, "{:?}", stopwatch.waited());
    is_back(&store).await;
}

/// A dead server is told at once, and a new one is found without anybody's help.
#[tokio::test]
async fn a_killed_server_fails_fast_and_comes_back() {
    let mut server = Redis::start();
    let store = store_on(&server).await.timeout(millis(500));
    for _ in 0..3 {
        is_back(&store).await;
        server.kill();
        sleep(millis(300)).await;
        for _ in 0..20 {
            let (kind, took) = failure(&store).await;
            assert_eq!(kind, StoreErrorKind::Unavailable);
            assert!(took < millis(400), "{took:?}");
        }
        server.restart();
        is_back(&store).await;
        let fresh = take("fresh", &[Quota::per_minute(5)]);
        let allowed = allowed(&store, &fresh, 9).await;
        assert_eq!(allowed, 5, "an empty server counts from nothing");
    }
}

/// A server that takes no writes says so to all who ask, is connected to less and less often, and
/// decides at once when it is a master again. Another one behind its name is found.
#[tokio::test]
async fn a_replica_says_so() {
    let (replica, other) = (Redis::start(), Redis::start());
    let proxy = Proxy::start(&replica.url).await;
    let store = RedisStore::connect(&proxy.url).await.expect("it runs");
    for command in ["REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data no"] {
        replica.follow("redis://127.0.0.1:1");
        let (before, began) = (proxy.accepted(), Instant::now());
        let (mut asked, mut late) = (0, 0);
        while began.elapsed() < millis(4_000) {
            let (kind, _) = failure(&store).await;
            asked += 1;
            late += usize::from(kind != StoreErrorKind::ReadOnly);
            sleep(millis(5)).await;
        }
        let made = proxy.accepted() - before;
        assert!((1..=7).contains(&made), "{made} connections");
        assert!(
            late * 10 < asked,
            "{late} of {asked} were told something else"
        );
        run(&replica, command);
        if command.starts_with("REPLICAOF") {
            let back = replica.stopwatch();
            is_back(&store).await;
            assert!(back.waited() < HICCUP, "{:?}", back.waited());
        }
    }
    proxy.lead_to(&other.url);
    is_back(&store).await;
}

#[tokio::test]
async fn reconnecting_is_paced() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&proxy.url).await.expect("it runs");
    is_back(&store).await;
    let before = proxy.accepted();
    proxy.cut_after(millis(5));
    sleep(millis(1_200)).await;
    let made = proxy.accepted() - before;
    assert!(made <= 12, "{made} connections");
}

/// Law 9: futures that are dropped leave no task behind, and the connection goes on.
#[tokio::test]
async fn dropped_takes_leak_nothing() {
    let (_server, store) = started().await;
    is_back(&store).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = metrics.num_alive_tasks();
    let take = take("p", &[Quota::per_minute(100_000)]);
    for round in 0..2_000_u32 {
        let mut taking = std::pin::pin!(store.take(&take));
        for _ in 0..round % 4 {
            if futures_util::poll!(taking.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    is_back(&store).await;
    assert_eq!(metrics.num_alive_tasks(), tasks);

    // One that was never polled has charged nothing.
    let one = crate::take("one", &[Quota::per_minute(1)]);
    drop(store.take(&one));
    assert_eq!(allowed(&store, &one, 3).await, 1);
}

/// The background task ends with the store.
#[tokio::test]
async fn a_dropped_store_leaves_no_task() {
    let server = Redis::start();
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = metrics.num_alive_tasks();
    let store = store_on(&server).await;
    assert!(metrics.num_alive_tasks() > tasks);
    drop(store);
    eventually("its tasks end", async || metrics.num_alive_tasks() <= tasks).await;
}
