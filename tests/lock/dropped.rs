//! Futures dropped wherever they stand, guards dropped whenever: the lock is free soon, and nothing
//! stays behind.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use kit::Redis;
use redis::cmd;
use tidegate::lock::{Lock, Owner};

use crate::{HICCUP, eventually, is_free_soon, process};

/// Polls so often, or until it is ready; none if it is dropped before.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls >= times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn nobody_listens(server: &Redis) {
    let mut admin = server.connection();
    eventually("nobody listens", HICCUP, async || {
        let channels: Vec<String> = cmd("PUBSUB")
            .arg("CHANNELS")
            .query(&mut admin)
            .expect("an answer");
        channels.is_empty()
    })
    .await;
}

/// Law: a future that is dropped at any await point leaves no lock behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_anywhere() {
    let server = Redis::start();
    let redis = process(&server).await;
    for owner in [None, Some(Owner::new())] {
        let lock = Lock::new(&redis, "l");
        let asking = owner.as_ref().map_or(lock.clone(), |owner| lock.by(owner));
        let mut dropped = 0;
        for round in 0..30 {
            match polled(asking.lock(), 1 + round % 6).await {
                Some(guard) => guard.expect("a lock").release().await.expect("it was held"),
                None => dropped += 1,
            }
            is_free_soon(&lock).await;
        }
        assert!(dropped > 0, "it never waited");
    }
}

/// The same when it was sent, and Redis takes its time.
#[tokio::test]
async fn an_acquire_dropped_under_way() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    let mut admin = server.connection();
    for round in 0..10 {
        let mut pause = cmd("CLIENT");
        pause.arg("PAUSE").arg(60).exec(&mut admin).expect("pauses");
        let patience = Duration::from_millis(4 * round);
        let got = tokio::time::timeout(patience, lock.lock()).await;
        assert!(got.is_err(), "it was not under way");
        is_free_soon(&lock).await;
    }
}

/// The same while it waits for somebody else, whose lock it must not touch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_dropped_anywhere() {
    let server = Redis::start();
    let (redis, other) = (process(&server).await, process(&server).await);
    let lock = Lock::new(&redis, "l");
    for times in 1.. {
        let theirs = Lock::new(&other, "l").lock().await.expect("a lock");
        let release = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            theirs.release().await.expect("nobody else has touched it");
        };
        let (got, ()) = tokio::join!(polled(lock.lock(), times), release);
        if let Some(guard) = got {
            guard.expect("a lock").release().await.expect("it was held");
            assert!(times > 2, "it never waited");
            break;
        }
        is_free_soon(&lock).await;
        nobody_listens(&server).await;
    }
    nobody_listens(&server).await;
}

/// Law: a release that is dropped at any await point goes on in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_dropped_anywhere() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    for times in 1.. {
        let guard = lock.lock().await.expect("a lock");
        let done = polled(guard.release(), times).await;
        is_free_soon(&lock).await;
        if let Some(released) = done {
            released.expect("it was held");
            break;
        }
    }
    drop(lock.lock());
    let unpolled = lock.lock().await.expect("a lock").release();
    drop(unpolled);
    is_free_soon(&lock).await;
}

#[tokio::test]
async fn guards_outlive_handles() {
    let server = Redis::start();
    let tasks = || {
        let runtime = tokio::runtime::Handle::current();
        runtime.metrics().num_alive_tasks()
    };
    let before = tasks();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l").lease(Duration::from_secs(1));
    let guard = lock.lock().await.expect("a lock");
    drop((lock, redis));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(guard.is_held(), "nobody renews it");
    drop(guard);
    eventually("its tasks end", HICCUP, async || tasks() == before).await;
    let redis = process(&server).await;
    is_free_soon(&Lock::new(&redis, "l")).await;
    // The connection of the first handle ends with its guard.
    let mut admin = server.connection();
    eventually("its connections are closed", HICCUP, async || {
        let clients: String = cmd("CLIENT").arg("LIST").query(&mut admin).expect("a list");
        clients.lines().count() == 2
    })
    .await;
}

/// Law: a guard is dropped without a panic, whatever is left of the runtime.
#[test]
fn a_guard_outlives_its_runtime() {
    let server = Redis::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (guard, other) = runtime.block_on(async {
        let redis = process(&server).await;
        let lease = Duration::from_millis(400);
        let taken = async |name| Lock::new(&redis, name).lease(lease).lock().await;
        let guard = taken("l").await.expect("a lock");
        (guard, taken("m").await.expect("a lock"))
    });
    runtime.spawn(async move {
        let _other = other;
        std::future::pending::<()>().await;
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(guard.lost());
    drop(guard);
    std::thread::sleep(Duration::from_millis(500));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let redis = process(&server).await;
        for name in ["l", "m"] {
            let lock = Lock::new(&redis, name);
            assert!(!lock.is_locked().await.expect("an answer"), "{name}");
        }
    });
}

/// Law: after a release nothing is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_after_its_release() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "l").lease(Duration::from_millis(450));
    for round in 0..20 {
        let guard = lock.lock().await.expect("a lock");
        // Around its first renewal.
        tokio::time::sleep(Duration::from_millis(147 + round % 6)).await;
        match round % 2 {
            0 => guard.release().await.expect("it was held"),
            _ => drop(guard),
        }
        is_free_soon(&lock).await;
    }
    let calls = |admin: &mut redis::Connection| {
        let info: String = cmd("INFO").arg("commandstats").query(admin).expect("stats");
        let eval = |line: &&str| line.starts_with("cmdstat_eval");
        info.lines().filter(eval).collect::<String>()
    };
    let before = calls(&mut admin);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(calls(&mut admin), before);
    assert!(!before.is_empty());
}

/// Law: the release of a guard that is dropped is sent before whatever this process asks later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_drops_it_can_take_it_again() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    for lock in [lock.clone(), lock.by(&Owner::new()).by(&Owner::new())] {
        for _ in 0..200 {
            let guard = lock.try_lock().await.expect("an answer");
            drop(guard.expect("it is free"));
        }
    }
    let many = (0..500).map(|at| Lock::new(&redis, &format!("l{at}")));
    let many: Vec<_> = many.collect();
    let take = async || {
        let all = many.iter().map(Lock::try_lock);
        futures_util::future::try_join_all(all)
            .await
            .expect("answers")
    };
    for _ in 0..3 {
        let guards = take().await;
        assert!(guards.iter().all(Option::is_some));
    }
}
