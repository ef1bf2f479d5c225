//! Runtimes that end while their callers wait for a lock or hold it.

use std::time::{Duration, Instant};

use kit::Redis as Server;
use tidegate::lock::{Lock, Owner};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{becomes_free, is_free};
use kit::{behind, check_expiries, handle, millis};

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Guests end with calls on their way, waiting, and holding the lock: the home runtime's callers
/// are served, and nothing stays locked.
#[test]
fn guests_end_while_they_wait() {
    let (home, server) = (runtime(), Server::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let redis = home.block_on(handle(&proxy.url));
    let lock = Lock::new(&redis, "guests");
    home.block_on(is_free(&lock, Duration::from_secs(2)));
    for round in 0..12 {
        let guest = runtime();
        for at in 0..20 {
            let lock = if at % 4 == 0 {
                lock.by(&Owner::new())
            } else {
                lock.clone()
            };
            guest.spawn(async move {
                let _guard = lock.lock().await;
                tokio::time::sleep(millis(3)).await;
            });
        }
        std::thread::sleep(millis(round * 2));
        let waiting: Vec<_> = (0..3)
            .map(|at| {
                let lock = if at == 0 {
                    lock.by(&Owner::new())
                } else {
                    lock.clone()
                };
                home.spawn(async move { is_free(&lock, Duration::from_secs(4)).await })
            })
            .collect();
        std::thread::sleep(millis(round % 3));
        drop(guest);
        home.block_on(async {
            for waiting in waiting {
                waiting
                    .await
                    .unwrap_or_else(|_| panic!("law 13, in round {round}"));
            }
        });
    }
    home.block_on(becomes_free(&lock, Duration::from_secs(1)));
    check_expiries(&server, &[]);
}

/// The runtime that connected ends: others get an answer or an error in time, and guards say that
/// their lease is over when it is.
#[test]
fn the_home_runtime_ends() {
    let (home, guest, server) = (runtime(), runtime(), Server::start());
    let redis = home.block_on(handle(&server.url)).timeout(millis(200));
    let lock = Lock::new(&redis, "home").lease(millis(900));
    let guard = home.block_on(lock.lock()).expect("free");
    let waits = lock.clone();
    let waits = guest.spawn(async move { waits.lock().await.map(|_| ()) });
    std::thread::sleep(millis(100));
    drop(home);
    guest.block_on(async {
        let asked = Instant::now();
        let answer = timeout(Duration::from_secs(8), lock.try_lock_for(millis(100))).await;
        println!("{answer:?} after {:?}", asked.elapsed());
        assert!(
            asked.elapsed() < Duration::from_secs(3),
            "law 6: {:?}",
            asked.elapsed()
        );
        timeout(Duration::from_secs(8), waits)
            .await
            .expect("law 6")
            .expect("no panic")
            .ok();
        let lost = timeout(Duration::from_secs(3), guard.lost()).await;
        println!("{lost:?}, held: {}", guard.is_held());
        assert!(!guard.is_held(), "nobody renews it");
        let released = timeout(Duration::from_secs(13), guard.release()).await;
        assert!(released.expect("law 6").is_err());
    });
}
