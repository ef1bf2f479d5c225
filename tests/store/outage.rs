//! Redis gone, hanging and back: bounded time, honest errors, and nothing leaked. The faults one by
//! one, each under load, are in `tests/faults`.

use std::time::{Duration, Instant};

use kit::Redis;
use kit::proxy::Proxy;
use redis::cmd;
use tidegate::store::StoreErrorKind;
use tidegate::{Quota, RedisStore, Store};

use crate::{allowed, ask, take};
use kit::store_on;

/// More than any scheduling hiccup on a busy machine, less than anybody's time-out.
const HICCUP: Duration = Duration::from_millis(900);

async fn failure(store: &RedisStore) -> (StoreErrorKind, Duration) {
    let started = Instant::now();
    let store: &dyn Store = store;
    let error = store.take(&take("p", &[Quota::per_minute(5)])).await;
    (error.expect_err("no decision").kind(), started.elapsed())
}

/// Asks until there is a decision again.
async fn is_back(store: &RedisStore) {
    let started = Instant::now();
    let store: &dyn Store = store;
    while let Err(error) = store
        .take(&take("back", &[Quota::per_minute(1_000_000)]))
        .await
    {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "not back: {error}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Law 6: a server that hangs.
#[tokio::test]
async fn a_stopped_server_costs_the_timeout() {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(Duration::from_millis(100));
    server.signal("STOP");
    for _ in 0..3 {
        let (kind, took) = failure(&store).await;
        assert_eq!(kind, StoreErrorKind::Timeout);
        assert!(
            took >= Duration::from_millis(100) && took < HICCUP,
            "{took:?}"
        );
    }
    server.signal("CONT");
    is_back(&store).await;
}

#[tokio::test]
async fn the_default_timeout_is_50_ms() {
    let server = Redis::start();
    let store = RedisStore::connect(&server.url)
        .await
        .expect("a running server");
    server.signal("STOP");
    let dynamic: &dyn Store = &store;
    let error = dynamic.take(&take("p", &[Quota::per_minute(5)])).await;
    let error = error.expect_err("no decision").to_string();
    assert!(error.ends_with("did not answer within 50ms"), "{error}");
    server.signal("CONT");
}

/// Law 6: many at once wait no longer than one alone.
#[tokio::test]
async fn a_crowd_waits_no_longer() {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(Duration::from_millis(100));
    let mut connection = server.connection();
    cmd("CLIENT")
        .arg("PAUSE")
        .arg(2_000)
        .exec(&mut connection)
        .expect("pauses");
    let started = Instant::now();
    let crowd = (0..500).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { failure(&store).await })
    });
    for one in crowd.collect::<Vec<_>>() {
        let (kind, _) = one.await.expect("no panic");
        assert_eq!(kind, StoreErrorKind::Timeout);
    }
    assert!(started.elapsed() < HICCUP, "{:?}", started.elapsed());
    is_back(&store).await;
}

/// A dead server is told at once, and a new one is found without anybody's help.
#[tokio::test]
async fn a_killed_server_fails_fast_and_comes_back() {
    let mut server = Redis::start();
    let store = store_on(&server).await.timeout(Duration::from_millis(500));
    for _ in 0..3 {
        is_back(&store).await;
        server.kill();
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..20 {
            let (kind, took) = failure(&store).await;
            assert_eq!(kind, StoreErrorKind::Unavailable);
            assert!(took < Duration::from_millis(400), "{took:?}");
        }
        server.restart();
        is_back(&store).await;
        let fresh = take("fresh", &[Quota::per_minute(5)]);
        assert_eq!(
            allowed(&store, &fresh, 9).await,
            5,
            "an empty server counts from nothing"
        );
    }
}

/// A server that stays read-only is not flooded with connections either.
#[tokio::test]
async fn reconnecting_is_paced() {
    let (replica, master) = (Redis::start(), Redis::start());
    let proxy = Proxy::start(&replica.url).await;
    let store = RedisStore::connect(&proxy.url)
        .await
        .expect("a running server");
    replica.follow(&master.url);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1_200) {
        let _ = failure(&store).await;
    }
    assert!(
        (2..=12).contains(&proxy.accepted()),
        "{} connections",
        proxy.accepted()
    );

    // Nor is one that hangs up on everybody.
    let before = proxy.accepted();
    proxy.cut_after(Duration::from_millis(5));
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(
        proxy.accepted() - before <= 12,
        "{} connections",
        proxy.accepted() - before
    );
}

#[tokio::test]
async fn no_memory_is_a_typed_error_and_charges_nothing() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let mut connection = server.connection();
    let two = take("two", &[Quota::per_minute(2)]);
    ask(&store, &two).await;
    let mut limit = |bytes: &str| {
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes);
        set.exec(&mut connection).expect("is set");
    };
    // A take within the same millisecond needs no memory, and would be allowed.
    tokio::time::sleep(Duration::from_millis(5)).await;
    limit("1");
    let dynamic: &dyn Store = &store;
    let error = dynamic.take(&two).await.expect_err("no memory");
    assert_eq!(error.kind(), StoreErrorKind::OutOfMemory, "{error}");
    limit("0");
    assert_eq!(allowed(&store, &two, 5).await, 1);
}

/// Law 9: futures that are dropped leave no task behind, and the connection goes on.
#[tokio::test]
async fn dropped_takes_leak_nothing() {
    let server = Redis::start();
    let store = store_on(&server).await;
    is_back(&store).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = metrics.num_alive_tasks();
    let take = take("p", &[Quota::per_minute(100_000)]);
    for round in 0..2_000_u32 {
        let mut taking = std::pin::pin!(store.take(&take));
        for _ in 0..round % 4 {
            let polled = futures_util::poll!(taking.as_mut());
            if polled.is_ready() {
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
    let started = Instant::now();
    while metrics.num_alive_tasks() > tasks {
        assert!(started.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
