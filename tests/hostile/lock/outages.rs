//! Redis hangs or is away, and what those who wait hear of it.

use crate::*;

const TIMED_OUT: LockErrorKind = LockErrorKind::Store(StoreErrorKind::Timeout);

/// Law: that others have it is known from an answer, and from nothing else.
#[tokio::test]
async fn nobody_knows_who_has_it() {
    let server = Server::start();
    let redis = handle(&server.url).await.timeout(SECOND);
    let lock = Lock::new(&redis, "l");
    run(&server, "HSET l somebody:1 1");
    let stop = async {
        sleep(SECOND / 2).await;
        server.signal("STOP");
    };
    let began = Instant::now();
    let (taken, ()) = tokio::join!(lock.try_lock_for(SECOND + SECOND / 2), stop);
    let took = began.elapsed();
    server.signal("CONT");
    assert_eq!(taken.expect_err("no answer").kind(), TIMED_OUT);
    assert!(took < SECOND * 5 / 2 + HICCUP, "{took:?}");
}

/// Law: the time without an answer is counted from the latest answer.
#[tokio::test]
async fn outages_do_not_add_up() {
    let server = Server::start();
    let redis = handle(&server.url).await.timeout(SECOND / 10);
    let lock = Lock::new(&redis, "l");
    server.signal("STOP");
    let taken = lock.try_lock_for(SECOND / 2).await;
    assert_eq!(taken.expect_err("no answer").kind(), TIMED_OUT);
    server.signal("CONT");
    eventually("it is back", async || lock.try_lock().await.is_ok()).await;
    // Waiting ends after five seconds without an answer.
    sleep(SECOND * 5 / 2).await;
    server.signal("STOP");
    let end = async {
        sleep(3 * SECOND).await;
        server.signal("CONT");
    };
    let (taken, ()) = tokio::join!(lock.lock(), end);
    taken.expect("a lock").release().await.expect("it was held");
}

/// Law: a server that hangs costs a short wait one time-out.
#[tokio::test]
async fn a_short_wait_at_a_server_that_hangs() {
    let timeout = SECOND * 2 / 5;
    for owner in [Some(Owner::new()), None] {
        let server = Server::start();
        let redis = handle(&server.url).await.timeout(timeout);
        let lock = Lock::new(&redis, "l");
        let lock = owner.map_or(lock.clone(), |owner| lock.by(&owner));
        server.signal("STOP");
        let began = Instant::now();
        let error = lock.try_lock_for(SECOND / 100).await;
        let took = began.elapsed();
        server.signal("CONT");
        assert_eq!(error.expect_err("no answer").kind(), TIMED_OUT);
        assert!(took < timeout * 7 / 4, "{took:?}");
    }
}

/// Law: no user's setting ends what renews the leases of a process.
#[tokio::test]
async fn a_time_out_without_end() {
    let server = Server::start();
    let redis = handle(&server.url).await.timeout(Duration::MAX);
    let lease = 3 * SECOND / 10;
    let kept = Lock::new(&redis, "kept").lease(lease);
    let kept = kept.holds().await;
    for owner in [None, Some(Owner::new())] {
        let lock = Lock::new(&redis, "l");
        let lock = owner.map_or(lock.clone(), |owner| lock.by(&owner));
        for lease in [lease, Lock::MAX_LEASE] {
            drop(lock.lock_for(lease).await.expect("a lock"));
            let guard = lock.try_lock_for(Duration::MAX).await.expect("an answer");
            guard
                .expect("it is free")
                .release()
                .await
                .expect("it was held");
        }
        let mut waiting = Box::pin(lock.lock());
        drop(timeout(SECOND / 1_000, &mut waiting).await);
    }
    sleep(3 * lease).await;
    assert!(kept.is_held());
    frees(kept).await;
}

/// A server that stays away is an error, and in time, however many stand in line.
#[tokio::test]
async fn a_server_that_stays_away() {
    let mut server = Server::start();
    let lock = Lock::new(&handle(&server.url).await.timeout(SECOND / 10), "l");
    server.kill();
    sleep(millis(300)).await;
    let (began, wait) = (Instant::now(), millis(300));
    let error = lock.try_lock_for(wait).await.expect_err("nobody answers");
    let unavailable = LockErrorKind::Store(StoreErrorKind::Unavailable);
    assert_eq!(error.kind(), unavailable);
    let took = began.elapsed();
    assert!(took < wait + HICCUP, "{took:?}");
    let began = Instant::now();
    for result in futures_util::future::join_all((0..20).map(|_| lock.lock())).await {
        result.expect_err("nobody answers");
    }
    let took = began.elapsed();
    assert!(took < 8 * SECOND, "{took:?}");
}
