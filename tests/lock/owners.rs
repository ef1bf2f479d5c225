//! Several holds of one owner: each is released once, and the lock stays for the others.

use std::time::Duration;

use kit::Redis;
use redis::Commands;
use tidegate::lock::{Lock, LockErrorKind, Owner};

use crate::{HICCUP, at, eventually, process};

const SECOND: Duration = Duration::from_secs(1);

/// Law: nobody waits behind somebody who waits for them.
#[tokio::test]
async fn an_owner_does_not_wait_behind_others() {
    let server = Redis::start();
    let redis = process(&server).await;
    let (x, y) = (Owner::new(), Owner::new());
    let lock = Lock::new(&redis, "l");
    for is_released in [true, false] {
        let theirs = lock.lock().await.expect("a lock");
        let both = [&x, &y, &x].map(|owner| {
            let lock = lock.by(owner);
            async move {
                tokio::task::yield_now().await;
                lock.lock().await.expect("a lock")
            }
        });
        let [first, between, second] = both.map(tokio::spawn);
        tokio::time::sleep(Duration::from_millis(100)).await;
        match is_released {
            true => theirs.release().await.expect("it was held"),
            false => assert!(lock.force_unlock().await.expect("an answer")),
        }
        let of_x = async {
            (
                first.await.expect("no panic"),
                second.await.expect("no panic"),
            )
        };
        let of_y = async { between.await.expect("no panic") };
        tokio::pin!(of_x, of_y);
        let within = tokio::time::timeout(4 * SECOND, async {
            tokio::select! {
                guards = &mut of_x => {
                    drop(guards);
                    drop(of_y.await);
                }
                guard = &mut of_y => {
                    drop(guard);
                    drop(of_x.await);
                }
            }
        });
        within.await.expect("nobody waits for each other");
    }
}

/// Law: who has lost a lock releases nothing that the same owner has taken since.
#[tokio::test]
async fn a_stale_guard_releases_nothing() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let me = Owner::new();
    let lock = Lock::new(&redis, "l").by(&me);
    for without in [
        "redisson_lock_token*",
        "redisson_unlock_latch*",
        "redisson_*",
    ] {
        let stale = lock.lock_for(SECOND / 50).await.expect("a lock");
        eventually("it expires", HICCUP, async || {
            !lock.is_locked().await.expect("an answer")
        })
        .await;
        let fresh = lock.lock().await.expect("a lock");
        let lost: Vec<String> = admin.keys(without).expect("keys");
        admin.del::<_, ()>(lost).expect("are deleted");
        let error = stale.release().await.expect_err("it was lost");
        assert_eq!(error.kind(), LockErrorKind::NotHeld, "{without}");
        assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);
        assert!(fresh.is_held());
        lock.force_unlock().await.expect("an answer");
    }
}

/// Law: a hold with a long lease does not leave the others with that lease.
#[tokio::test]
async fn a_long_lease_ends_with_its_guard() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l").by(&Owner::new());
    let hour = 3_600 * SECOND;
    for is_fixed in [false, true] {
        let outer = match is_fixed {
            true => lock.lock_for(20 * SECOND).await.expect("a lock"),
            false => lock.lock().await.expect("a lock"),
        };
        let inner = lock.lock_for(hour).await.expect("a lock");
        let left = || async { lock.remaining().await.expect("an answer").expect("a lease") };
        assert!(left().await > hour - 5 * SECOND);
        inner.release().await.expect("it was held");
        let lease = if is_fixed {
            20 * SECOND
        } else {
            Lock::DEFAULT_LEASE
        };
        let rest = left().await;
        assert!(rest <= lease && rest > lease - 3 * SECOND, "{rest:?}");
        assert!(outer.is_held());
        // A hold that is as long stays as long.
        let [long, inner] = [hour, 2 * hour].map(|lease| lock.lock_for(lease));
        let (long, inner) = (long.await.expect("a lock"), inner.await.expect("a lock"));
        drop(inner);
        eventually("the longest lease is over", HICCUP, async || {
            left().await <= hour
        })
        .await;
        assert!(left().await > hour - 5 * SECOND);
        long.release().await.expect("it was held");
        outer.release().await.expect("it was held");
    }
}

/// A hold whose own lease is over is released once, whatever is left of what Redis knew of it.
#[tokio::test]
async fn an_inner_lease_that_is_over() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let me = Owner::new();
    let lock = Lock::new(&redis, "l").by(&me);
    let outer = lock.lock().await.expect("a lock");
    let inner = lock.lock_for(SECOND / 50).await.expect("a lock");
    inner.lost().await;
    // As when its latch has expired, after 10 s.
    let latches: Vec<String> = admin.keys("redisson_unlock_latch*").expect("keys");
    for latch in latches {
        if admin.pttl::<_, u64>(&latch).expect("an expiry") <= 10_000 {
            admin.del::<_, ()>(latch).expect("is deleted");
        }
    }
    inner.release().await.expect("the lock is still held");
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);
    outer.release().await.expect("it was held");
}

/// Law: a release leaves nothing behind for as long as the lease was.
#[tokio::test]
async fn a_release_is_soon_forgotten() {
    let server = Redis::start();
    let redis = at(&server.url).await.timeout(SECOND);
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "l").by(&Owner::new());
    for _ in 0..3 {
        let guard = lock.lock_for(3_600 * SECOND).await.expect("a lock");
        guard.release().await.expect("it was held");
    }
    let latches: Vec<String> = admin.keys("redisson_unlock_latch*").expect("keys");
    for latch in latches {
        let left: u64 = admin.pttl(&latch).expect("an expiry");
        assert!(left <= 11_000, "{latch} stays for {left} ms");
    }
}

/// A lock of an owner is renewed, and with it what its release needs.
#[tokio::test]
async fn a_renewed_hold_is_released() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let me = Owner::new();
    let lock = Lock::new(&redis, "l").lease(3 * SECOND).by(&me);
    let (outer, inner) = (
        lock.lock().await.expect("a lock"),
        lock.lock().await.expect("a lock"),
    );
    let latches: Vec<String> = admin.keys("redisson_unlock_latch*").expect("keys");
    assert_eq!(latches.len(), 2);
    for latch in &latches {
        admin.pexpire::<_, ()>(latch, 1_500).expect("expires");
    }
    admin
        .del::<_, ()>("redisson_lock_token:{l}")
        .expect("is deleted");
    tokio::time::sleep(2 * SECOND).await;
    inner.release().await.expect("it was held");
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);
    outer.release().await.expect("it was held");
    assert!(!lock.is_locked().await.expect("an answer"));
}
