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
