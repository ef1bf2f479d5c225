//! Law 9: futures and guards that are dropped at every moment leave no lock behind.

use kit::lock_oracle::Ledger;
use tidegate::lock::LockError;

use crate::*;

async fn ask(lock: &Lock, way: u64) -> Result<Option<LockGuard>, LockError> {
    match way % 4 {
        0 => lock.lock().await.map(Some),
        1 => lock.lock_for(HOUR).await.map(Some),
        2 => lock.try_lock().await,
        _ => lock.try_lock_for(HOUR).await,
    }
}

/// Before the call is sent, while it is on its way, while others have the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_leave_at_every_moment() {
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    let ledger = Ledger::default();
    crowd(600, |at| {
        let lock = Lock::new(&handles[at as usize % 2], "left");
        let ledger = ledger.clone();
        async move {
            sleep(Duration::from_micros(at * 2_500)).await;
            let patience = Duration::from_micros(at * 7_919 % 20_000);
            let Ok(answer) = timeout(patience, ask(&lock, at)).await else {
                return;
            };
            let Some(guard) = answer.expect("an answer") else {
                return;
            };
            ledger.enter(&guard);
            sleep(Duration::from_micros(at * 31 % 900)).await;
            ledger.leave();
            if at % 3 == 0 {
                drop(guard);
            } else {
                let _ = timeout(patience, guard.release()).await;
            }
        }
    })
    .await;
    println!("{} had it", ledger.entries());
    assert!(ledger.entries() > 20);
    for redis in &handles {
        is_free(&Lock::new(redis, "left"), 3 * SECOND).await;
    }
    becomes_free(&Lock::new(&handles[0], "left"), millis(500)).await;
    check_expiries(&server, &[]);
}

/// A release by dropping is before whatever the same task asks then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_again_after_a_drop() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let noise = redis.clone();
    let noise = tokio::spawn(async move {
        loop {
            let locks = (0..40).map(|at| Lock::new(&noise, &format!("noise-{at}")));
            let locks: Vec<_> = locks.collect();
            drop(join_all(locks.iter().map(Lock::try_lock)).await);
        }
    });
    let mut tasks = JoinSet::new();
    for at in 0..8 {
        let redis = redis.clone();
        tasks.spawn(async move {
            for round in 0..40 {
                let name = format!("mine-{at}");
                let guard = Lock::new(&redis, &name).tries().await;
                drop(guard.unwrap_or_else(|| panic!("{name} is refused in round {round}")));
            }
        });
    }
    tasks.join_all().await;
    noise.abort();
    sleep(millis(50)).await;
    check_expiries(&server, &[]);
}

/// A waiter that nobody polls any more holds up neither those behind it nor another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_nobody_polls() {
    let server = Server::start();
    let (redis, abroad) = (handle(&server.url).await, handle(&server.url).await);
    let lock = Lock::new(&redis, "forgotten");
    let guard = lock.holds().await;
    let mut forgotten: Vec<_> = (0..3).map(|_| Box::pin(lock.lock())).collect();
    for _ in 0..5 {
        for future in &mut forgotten {
            assert!(futures_util::poll!(future).is_pending(), "held");
        }
        sleep(millis(20)).await;
    }
    let waiting = [redis, abroad].map(|redis| {
        let lock = Lock::new(&redis, "forgotten");
        tokio::spawn(async move { is_free(&lock, 6 * SECOND).await })
    });
    sleep(millis(50)).await;
    frees(guard).await;
    for waiting in waiting {
        waiting.await.expect("it is served");
    }
    drop(forgotten);
    is_free(&lock, 2 * SECOND).await;
}

/// Guards that are dropped where there is no runtime, or another one, or in a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_dropped_elsewhere() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let lock = Lock::new(&redis, "elsewhere");
    for way in 0..12 {
        let guard = timeout(2 * SECOND, lock.lock()).await;
        let guard = guard.expect("given back").expect("free");
        let drops = move || match way % 4 {
            0 => drop(guard),
            1 => {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.expect("a runtime").block_on(async { drop(guard) });
            }
            2 => {
                let panics = std::panic::AssertUnwindSafe(move || {
                    let _guard = guard;
                    std::panic::resume_unwind(Box::new("on purpose"));
                });
                assert!(std::panic::catch_unwind(panics).is_err());
            }
            _ => {
                // A runtime that has ended already when its task is dropped with the guard.
                let runtime = runtime();
                runtime.spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                });
                drop(runtime);
            }
        };
        std::thread::spawn(drops).join().expect("no panic");
        becomes_free(&lock, millis(1_500)).await;
    }
}

/// Two thousand waiters of one lock leave at the same time; others of it and of another are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_leaves() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let lock = Lock::new(&redis, "crowded");
    let aside = Lock::new(&redis, "aside");
    for _ in 0..3 {
        let guard = lock.holds().await;
        let mut crowd = JoinSet::new();
        for _ in 0..2_000 {
            let lock = Lock::new(&redis, "crowded");
            crowd.spawn(async move { lock.lock().await });
        }
        sleep(millis(100)).await;
        let began = Instant::now();
        is_free(&aside, 3 * SECOND).await;
        let took = began.elapsed();
        assert!(took < 3 * SECOND, "law 13: {took:?}");
        let mut waits = Box::pin(lock.lock());
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(crowd);
        drop(guard);
        let next = timeout(3 * SECOND, waits).await;
        let next = next.expect("nobody is before it").expect("free");
        frees(next).await;
    }
    becomes_free(&lock, millis(500)).await;
    check_expiries(&server, &[]);
}
