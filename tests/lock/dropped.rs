//! Futures dropped wherever they stand, guards dropped whenever: the lock is free soon, and nothing
//! stays behind.

use std::future::poll_fn;
use std::pin::pin;

use crate::*;

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
    let is_so = async || server.run::<Vec<String>>("PUBSUB CHANNELS").is_empty();
    eventually("nobody listens", is_so).await;
}

/// Law: a future that is dropped at any await point leaves no lock behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_anywhere() {
    let (_server, lock) = a_lock().await;
    for owner in [None, Some(Owner::new())] {
        let asking = lock.of(owner.as_ref());
        let mut dropped = 0;
        for round in 0..30 {
            match polled(asking.holds(), 1 + round % 6).await {
                Some(guard) => frees(guard).await,
                None => dropped += 1,
            }
            lock.is_free_soon().await;
        }
        assert!(dropped > 0, "it never waited");
    }
}

/// The same when it was sent, and Redis takes its time.
#[tokio::test]
async fn an_acquire_dropped_under_way() {
    let (server, lock) = a_lock().await;
    let mut dropped = 0;
    for round in 0..10 {
        run(&server, "CLIENT PAUSE 60");
        let got = timeout(millis(4 * round), lock.holds()).await;
        // A busy machine may be late itself.
        dropped += u64::from(got.is_err());
        drop(got);
        lock.is_free_soon().await;
    }
    assert!(dropped > 5, "it was not under way");
}

/// The same while it waits for somebody else, whose lock it must not touch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_dropped_anywhere() {
    let (server, lock) = a_lock().await;
    let other = lock_of_another(&server).await;
    for times in 1.. {
        let theirs = other.holds().await;
        let release = async {
            sleep(millis(30)).await;
            theirs.release().await.expect("nobody else has touched it");
        };
        let (got, ()) = tokio::join!(polled(lock.holds(), times), release);
        if let Some(guard) = got {
            frees(guard).await;
            assert!(times > 2, "it never waited");
            break;
        }
        lock.is_free_soon().await;
        nobody_listens(&server).await;
    }
    nobody_listens(&server).await;
}

/// Law: a release that is dropped at any await point goes on in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_dropped_anywhere() {
    let (_server, lock) = a_lock().await;
    for times in 1.. {
        let guard = lock.holds().await;
        let done = polled(guard.release(), times).await;
        lock.is_free_soon().await;
        if let Some(released) = done {
            released.expect("it was held");
            break;
        }
    }
    drop(lock.lock());
    let unpolled = lock.holds().await.release();
    drop(unpolled);
    lock.is_free_soon().await;
}

#[tokio::test]
async fn guards_outlive_handles() {
    let server = Redis::start();
    let tasks = || {
        let runtime = tokio::runtime::Handle::current();
        runtime.metrics().num_alive_tasks()
    };
    let before = tasks();
    let lock = lock_of_another(&server).await.lease(SECOND);
    let guard = lock.holds().await;
    drop(lock);
    sleep(millis(2_500)).await;
    assert!(guard.is_held(), "nobody renews it");
    drop(guard);
    eventually("its tasks end", async || tasks() == before).await;
    lock_of_another(&server).await.is_free_soon().await;
    // The connection of the first handle ends with its guard, and that of the other one, too.
    let clients = async || server.run::<String>("CLIENT LIST").lines().count() == 1;
    eventually("its connections are closed", clients).await;
}

/// Law: a guard is dropped without a panic, whatever is left of the runtime.
#[test]
fn a_guard_outlives_its_runtime() {
    let server = Redis::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (guard, other) = runtime.block_on(async {
        let redis = handle(&server.url).await;
        let [one, other] = ["l", "m"].map(|name| Lock::new(&redis, name).lease(millis(400)));
        (one.holds().await, other.holds().await)
    });
    runtime.spawn(async move {
        let _other = other;
        std::future::pending::<()>().await;
    });
    runtime.shutdown_timeout(SECOND);
    drop(guard.lost());
    drop(guard);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let redis = handle(&server.url).await;
        for name in ["l", "m"] {
            Lock::new(&redis, name).is_free_soon().await;
        }
    });
}

/// Law: after a release nothing is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_after_its_release() {
    let (server, lock) = a_lock().await;
    let lock = lock.lease(millis(450));
    for round in 0..12 {
        let guard = lock.holds().await;
        // Around its first renewal.
        sleep(millis(147 + round % 6)).await;
        match round % 2 {
            0 => guard.release().await.expect("it was held"),
            _ => drop(guard),
        }
        lock.is_free_soon().await;
    }
    let before = server.script_calls();
    sleep(millis(400)).await;
    assert_eq!(server.script_calls(), before);
    assert!(before > 0);
}

/// Law: the release of a guard that is dropped is sent before whatever this process asks later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_drops_it_can_take_it_again() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let lock = Lock::new(&redis, "l");
    for lock in [lock.clone(), lock.by(&Owner::new()).by(&Owner::new())] {
        for _ in 0..200 {
            drop(lock.tries().await.expect("it is free"));
        }
    }
    let many: Vec<_> = (0..500)
        .map(|at| Lock::new(&redis, &format!("l{at}")))
        .collect();
    for _ in 0..3 {
        let guards = futures_util::future::join_all(many.iter().map(Lock::tries)).await;
        assert!(guards.iter().all(Option::is_some));
    }
}
