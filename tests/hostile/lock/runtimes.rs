//! Runtimes that end while their callers wait for a lock or hold it.

use crate::*;

/// Guests end with calls on their way, waiting, and holding the lock: the home runtime's callers
/// are served, and nothing stays locked.
#[test]
fn guests_end_while_they_wait() {
    let (home, server) = (runtime(), Server::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let redis = home.block_on(handle(&proxy.url));
    let lock = Lock::new(&redis, "guests");
    home.block_on(is_free(&lock, 2 * SECOND));
    for round in 0..12 {
        let guest = runtime();
        for at in 0..20 {
            let lock = lock.of((at % 4 == 0).then(Owner::new).as_ref());
            guest.spawn(async move {
                let _guard = lock.lock().await;
                sleep(millis(3)).await;
            });
        }
        std::thread::sleep(millis(round * 2));
        let waiting: Vec<_> = (0..3)
            .map(|at| {
                let lock = lock.of((at == 0).then(Owner::new).as_ref());
                home.spawn(async move { is_free(&lock, 4 * SECOND).await })
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
    home.block_on(becomes_free(&lock, SECOND));
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
        let answer = timeout(8 * SECOND, lock.try_lock_for(millis(100))).await;
        println!("{answer:?} after {:?}", asked.elapsed());
        let took = asked.elapsed();
        assert!(took < 3 * SECOND, "law 6: {took:?}");
        timeout(8 * SECOND, waits)
            .await
            .expect("law 6")
            .expect("no panic")
            .ok();
        let lost = timeout(3 * SECOND, guard.lost()).await;
        println!("{lost:?}, held: {}", guard.is_held());
        assert!(!guard.is_held(), "nobody renews it");
        let released = timeout(13 * SECOND, guard.release()).await;
        assert!(released.expect("law 6").is_err());
    });
}
