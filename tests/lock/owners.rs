//! Several holds of one owner: each is released once, and the lock stays for the others.

use crate::*;

/// Law: nobody waits behind somebody who waits for them.
#[tokio::test]
async fn an_owner_does_not_wait_behind_others() {
    let (server, lock) = a_lock().await;
    let (x, y) = (Owner::new(), Owner::new());
    for is_released in [true, false] {
        let theirs = lock.holds().await;
        let both = [&x, &y, &x].map(|owner| {
            let lock = lock.by(owner);
            async move {
                tokio::task::yield_now().await;
                lock.holds().await
            }
        });
        let [first, between, second] = both.map(tokio::spawn);
        let stopwatch = server.stopwatch();
        sleep(millis(100)).await;
        match is_released {
            true => frees(theirs).await,
            false => assert!(lock.force_unlock().await.expect("an answer")),
        }
        let of_x = async { drop(tokio::try_join!(first, second).expect("no panic")) };
        let of_y = async { drop(between.await.expect("no panic")) };
        let both = async { tokio::join!(of_x, of_y) };
        let within = timeout(PATIENT, both).await;
        within.expect("nobody waits for each other");
        assert!(stopwatch.waited() < 4 * SECOND);
    }
}

/// Law: who has lost a lock releases nothing that the same owner has taken since.
#[tokio::test]
async fn a_stale_guard_releases_nothing() {
    let (server, lock) = a_lock().await;
    let me = Owner::new();
    let lock = lock.by(&me);
    for without in [
        "redisson_lock_token*",
        "redisson_unlock_latch*",
        "redisson_*",
    ] {
        let stale = lock.lock_for(SECOND / 50).await.expect("a lock");
        lock.is_free_soon().await;
        let fresh = lock.holds().await;
        let lost: Vec<String> = server.run(&format!("KEYS {without}"));
        run(&server, &format!("DEL {}", lost.join(" ")));
        let told = lock_error(stale.release().await);
        assert_eq!(told, LockErrorKind::NotHeld, "{without}");
        assert_eq!(lock.count(&me).await, 1);
        assert!(fresh.is_held());
        lock.force_unlock().await.expect("an answer");
    }
}

/// Nor does it stand in the way of what came after it, if only the latches say which is which.
#[tokio::test]
async fn a_stale_guard_keeps_no_newer_hold() {
    let (server, lock) = a_lock().await;
    let lock = lock.by(&Owner::new());
    let stale = lock.lock_for(SECOND / 50).await.expect("a lock");
    lock.is_free_soon().await;
    let fresh = lock.holds().await;
    let tokens: Vec<String> = server.run("KEYS redisson_lock_token*");
    run(&server, &format!("DEL {}", tokens.join(" ")));
    frees(fresh).await;
    assert!(!lock.is_taken().await);
    drop(stale);
}

/// Law: a hold with a long lease does not leave the others with that lease.
#[tokio::test]
async fn a_long_lease_ends_with_its_guard() {
    let (_server, lock) = a_lock().await;
    let lock = lock.by(&Owner::new());
    let hour = HOUR;
    for is_fixed in [false, true] {
        let outer = match is_fixed {
            true => lock.lock_for(20 * SECOND).await.expect("a lock"),
            false => lock.holds().await,
        };
        let inner = lock.lock_for(hour).await.expect("a lock");
        let left = || async { lock.remaining().await.expect("an answer").expect("a lease") };
        assert!(left().await > hour - 5 * SECOND);
        frees(inner).await;
        let lease = match is_fixed {
            true => 20 * SECOND,
            false => Lock::DEFAULT_LEASE,
        };
        let rest = left().await;
        assert!(rest <= lease && rest > lease - 3 * SECOND, "{rest:?}");
        assert!(outer.is_held());
        // A hold that is as long stays as long.
        let [long, inner] = [hour, 2 * hour].map(|lease| lock.lock_for(lease));
        let (long, inner) = (long.await.expect("a lock"), inner.await.expect("a lock"));
        drop(inner);
        eventually("the longest lease is over", async || left().await <= hour).await;
        assert!(left().await > hour - 5 * SECOND);
        frees(long).await;
        frees(outer).await;
    }
}

/// A hold whose own lease is over is released once, whatever is left of what Redis knew of it.
#[tokio::test]
async fn an_inner_lease_that_is_over() {
    let (server, lock) = a_lock().await;
    let me = Owner::new();
    let lock = lock.by(&me);
    let outer = lock.holds().await;
    let inner = lock.lock_for(SECOND / 50).await.expect("a lock");
    inner.lost().await;
    // As when its latch has expired, after 10 s.
    let latches: Vec<String> = server.run("KEYS redisson_unlock_latch*");
    for latch in latches {
        if server.life(&latch) <= 10_000 {
            run(&server, &format!("DEL {latch}"));
        }
    }
    inner.release().await.expect("the lock is still held");
    assert_eq!(lock.count(&me).await, 1);
    frees(outer).await;
}

/// Law: a release leaves nothing behind for as long as the lease was.
#[tokio::test]
async fn a_release_is_soon_forgotten() {
    let server = Redis::start();
    let redis = handle(&server.url).await.timeout(SECOND);
    let lock = Lock::new(&redis, "l").by(&Owner::new());
    for _ in 0..3 {
        let guard = lock.lock_for(HOUR).await.expect("a lock");
        frees(guard).await;
    }
    let latches: Vec<String> = server.run("KEYS redisson_unlock_latch*");
    for latch in latches {
        let left = server.life(&latch);
        assert!(left <= 11_000, "{latch} stays for {left} ms");
    }
}

/// A lock of an owner is renewed, and with it what its release needs.
#[tokio::test]
async fn a_renewed_hold_is_released() {
    let (server, lock) = a_lock().await;
    let me = Owner::new();
    let lock = lock.lease(3 * SECOND).by(&me);
    let (outer, inner) = (lock.holds().await, lock.holds().await);
    let latches: Vec<String> = server.run("KEYS redisson_unlock_latch*");
    assert_eq!(latches.len(), 2);
    for latch in &latches {
        run(&server, &format!("PEXPIRE {latch} 1500"));
    }
    run(&server, "DEL redisson_lock_token:{l}");
    sleep(2 * SECOND).await;
    frees(inner).await;
    assert_eq!(lock.count(&me).await, 1);
    frees(outer).await;
    assert!(!lock.is_taken().await);
}
