//! Leases that are renewed, and those that are lost.

use crate::*;

#[tokio::test]
async fn a_lock_is_renewed_and_a_fixed_lease_is_not() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let lease = millis(800);
    let lock = Lock::new(&redis, "l").lease(lease);
    let guard = lock.holds().await;
    let fixed = Lock::new(&redis, "fixed");
    let until = fixed.lock_for(lease).await.expect("a lock");
    let stopwatch = server.stopwatch();
    until.lost().await;
    assert!(stopwatch.waited() <= lease + HICCUP / 2);
    assert!(!until.is_held());
    while stopwatch.elapsed() < 3 * lease {
        assert!(guard.is_held());
        assert!(lock.is_taken().await);
        sleep(millis(20)).await;
    }
    assert!(!fixed.is_taken().await);
    frees(guard).await;
}

#[tokio::test]
async fn a_lock_that_was_taken_away_is_lost() {
    let (server, lock) = a_lock().await;
    let guard = lock.clone().lease(millis(600)).holds().await;
    assert!(lock.force_unlock().await.expect("an answer"));
    let stopwatch = server.stopwatch();
    guard.lost().await;
    let waited = stopwatch.waited();
    assert!(waited < millis(400), "{waited:?}");
    assert!(!guard.is_held());
    guard.lost().await;
    assert_eq!(lock_error(guard.release().await), LockErrorKind::NotHeld);
}

/// What was stored may go, and the next renewal brings back what it can.
#[tokio::test]
async fn scripts_and_tokens_may_go() {
    let (server, lock) = a_lock().await;
    let guard = lock.clone().lease(SECOND).holds().await;
    run(&server, "SCRIPT FLUSH");
    run(&server, "DEL redisson_lock_token:{l}");
    sleep(millis(1_700)).await;
    assert!(guard.is_held());
    let token: String = server.run("GET redisson_lock_token:{l}");
    assert_eq!(token, guard.fencing_token().to_string());
    run(&server, "SCRIPT FLUSH");
    frees(guard).await;
    run(&server, "SCRIPT FLUSH");
    frees(lock.holds().await).await;
}

/// Law: who was away for longer than the lease learns of it, and the resource refuses what it
/// writes then.
#[tokio::test]
async fn a_server_that_hangs_longer_than_the_lease() {
    let server = Redis::start();
    let redis = handle(&server.url).await.timeout(millis(100));
    let lease = millis(500);
    let stale = Lock::new(&redis, "l").lease(lease).holds().await;
    server.signal("STOP");
    let stopwatch = Stopwatch::here();
    stale.lost().await;
    let waited = stopwatch.waited();
    assert!(waited <= lease + HICCUP / 2, "{waited:?}");
    assert!(!stale.is_held());
    server.signal("CONT");

    let fresh = lock_of_another(&server).await.holds().await;
    // A resource takes nothing with a lower token than it has seen.
    assert!(fresh.fencing_token() > stale.fencing_token());
    assert_eq!(lock_error(stale.release().await), LockErrorKind::NotHeld);
    assert!(fresh.is_held());
    // Nobody else has touched it.
    frees(fresh).await;
}

/// A hang that is shorter than the lease costs nothing.
#[tokio::test]
async fn a_short_hang_is_survived() {
    let server = Redis::start();
    let redis = handle(&server.url).await.timeout(millis(100));
    let lock = Lock::new(&redis, "l").lease(millis(1_500));
    let guard = lock.holds().await;
    for _ in 0..3 {
        run(&server, "CLIENT PAUSE 500");
        sleep(millis(800)).await;
        assert!(guard.is_held());
    }
    frees(guard).await;
    lock.is_free_soon().await;
}

/// Law: tokens rise when Redis has lost everything.
#[tokio::test]
async fn tokens_rise_over_an_empty_server() {
    let mut server = Redis::start();
    let lock = lock_of_another(&server).await.lease(millis(500));
    let mut highest = 0;
    for is_restarted in [false, true] {
        let guard = lock.holds().await;
        assert!(guard.fencing_token() > highest);
        highest = guard.fencing_token();
        match is_restarted {
            false => run(&server, "FLUSHALL"),
            true => {
                server.kill();
                server.restart();
            }
        }
        let next = lock.try_lock_for(PATIENT).await;
        let next = next.expect("an answer").expect("nobody has it any more");
        assert!(next.fencing_token() > highest);
        highest = next.fencing_token();
        guard.lost().await;
    }
}
