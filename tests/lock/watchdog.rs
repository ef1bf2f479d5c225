//! Leases that are renewed, and those that are lost.

use std::time::{Duration, Instant};

use kit::Redis;
use redis::{Commands, cmd};
use tidegate::lock::{Lock, LockErrorKind, LockGuard};

use crate::{HICCUP, at, eventually, is_free_soon, process};

#[tokio::test]
async fn a_lock_is_renewed_and_a_fixed_lease_is_not() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lease = Duration::from_secs(1);
    let lock = Lock::new(&redis, "l").lease(lease);
    let guard = lock.lock().await.expect("a lock");
    let fixed = Lock::new(&redis, "fixed");
    let until = fixed.lock_for(lease).await.expect("a lock");
    let lost = until.lost();
    let began = Instant::now();
    lost.await;
    assert!(began.elapsed() <= lease + HICCUP / 2);
    assert!(!until.is_held());
    while began.elapsed() < 3 * lease {
        assert!(guard.is_held());
        assert!(lock.is_locked().await.expect("an answer"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!fixed.is_locked().await.expect("an answer"));
    guard.release().await.expect("it was held");
}

#[tokio::test]
async fn a_lock_that_was_taken_away_is_lost() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l").lease(Duration::from_millis(600));
    let guard = lock.lock().await.expect("a lock");
    assert!(lock.force_unlock().await.expect("an answer"));
    let began = Instant::now();
    guard.lost().await;
    assert!(
        began.elapsed() < Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    assert!(!guard.is_held());
    guard.lost().await;
    let error = guard.release().await.expect_err("it was taken away");
    assert_eq!(error.kind(), LockErrorKind::NotHeld);
}

/// What was stored may go, and the next renewal brings back what it can.
#[tokio::test]
async fn scripts_and_tokens_may_go() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "l").lease(Duration::from_secs(1));
    let guard = lock.lock().await.expect("a lock");
    cmd("SCRIPT")
        .arg("FLUSH")
        .exec(&mut admin)
        .expect("flushes");
    admin
        .del::<_, ()>("redisson_lock_token:{l}")
        .expect("is deleted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_held());
    let token: String = admin.get("redisson_lock_token:{l}").expect("a token");
    assert_eq!(token, guard.fencing_token().to_string());
    cmd("SCRIPT")
        .arg("FLUSH")
        .exec(&mut admin)
        .expect("flushes");
    guard.release().await.expect("it was held");
    cmd("SCRIPT")
        .arg("FLUSH")
        .exec(&mut admin)
        .expect("flushes");
    let again = lock.lock().await.expect("a lock");
    again.release().await.expect("it was held");
}

/// Ten thousand when asked for, see the environment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_renews_them_all() {
    let number =
        std::env::var("TIDEGATE_LOCKS").map_or(1_000, |text| text.parse().expect("a number"));
    let server = Redis::start();
    let redis = process(&server).await;
    let lease = Duration::from_secs(5);
    let began = Instant::now();
    let taken = (0..number).map(|at| {
        let lock = Lock::new(&redis, &format!("l{at}")).lease(lease);
        async move { lock.lock().await.expect("a lock") }
    });
    let guards: Vec<LockGuard> = futures_util::future::join_all(taken).await;
    println!("{number} locks taken in {:?}", began.elapsed());
    let mut admin = server.connection();
    let mut shortest = lease;
    while began.elapsed() < 2 * lease {
        for at in 0..number {
            let left: i64 = admin.pttl(format!("l{at}")).expect("a lease");
            assert!(left > 0, "lock {at} has expired");
            shortest = shortest.min(Duration::from_millis(left.unsigned_abs()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("the shortest that was left of {lease:?}: {shortest:?}");
    assert!(guards.iter().all(LockGuard::is_held));
    let released = Instant::now();
    drop(guards);
    eventually("all are free", Duration::from_secs(10), async || {
        let keys: Vec<String> = admin.keys("l*").expect("keys");
        keys.is_empty()
    })
    .await;
    println!(
        "{number} locks dropped, and free after {:?}",
        released.elapsed()
    );
}

/// Law: who was away for longer than the lease learns of it, and the resource refuses what it
/// writes then.
#[tokio::test]
async fn a_server_that_hangs_longer_than_the_lease() {
    let server = Redis::start();
    let redis = at(&server.url).await.timeout(Duration::from_millis(100));
    let lease = Duration::from_millis(500);
    let lock = Lock::new(&redis, "l").lease(lease);
    let stale = lock.lock().await.expect("a lock");
    server.signal("STOP");
    let began = Instant::now();
    stale.lost().await;
    assert!(
        began.elapsed() <= lease + HICCUP / 2,
        "{:?}",
        began.elapsed()
    );
    assert!(!stale.is_held());
    server.signal("CONT");

    let other = process(&server).await;
    let fresh = Lock::new(&other, "l").lock().await.expect("a lock");
    let mut resource = Resource::default();
    assert!(resource.write(fresh.fencing_token(), "new"));
    assert!(!resource.write(stale.fencing_token(), "old"));
    assert_eq!(resource.text, "new");
    let error = stale.release().await.expect_err("it was lost");
    assert_eq!(error.kind(), LockErrorKind::NotHeld);
    assert!(fresh.is_held());
    fresh.release().await.expect("nobody else has touched it");
}

#[derive(Default)]
struct Resource {
    highest: u64,
    text: &'static str,
}

impl Resource {
    fn write(&mut self, token: u64, text: &'static str) -> bool {
        let is_fresh = token >= self.highest;
        if is_fresh {
            *self = Self {
                highest: token,
                text,
            };
        }
        is_fresh
    }
}

/// A hang that is shorter than the lease costs nothing.
#[tokio::test]
async fn a_short_hang_is_survived() {
    let server = Redis::start();
    let redis = at(&server.url).await.timeout(Duration::from_millis(100));
    let lock = Lock::new(&redis, "l").lease(Duration::from_secs(3));
    let guard = lock.lock().await.expect("a lock");
    let mut admin = server.connection();
    for _ in 0..3 {
        let mut pause = cmd("CLIENT");
        pause
            .arg("PAUSE")
            .arg(1_200)
            .exec(&mut admin)
            .expect("pauses");
        tokio::time::sleep(Duration::from_millis(1_700)).await;
        assert!(guard.is_held());
    }
    guard.release().await.expect("it was held");
    is_free_soon(&lock).await;
}

/// Law: tokens rise when Redis has lost everything.
#[tokio::test]
async fn tokens_rise_over_an_empty_server() {
    let mut server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l").lease(Duration::from_millis(500));
    let mut highest = 0;
    for is_restarted in [false, true] {
        let guard = lock.lock().await.expect("a lock");
        assert!(guard.fencing_token() > highest);
        highest = guard.fencing_token();
        match is_restarted {
            false => cmd("FLUSHALL")
                .exec(&mut server.connection())
                .expect("flushes"),
            true => {
                server.kill();
                server.restart();
            }
        }
        let next = lock.try_lock_for(Duration::from_secs(4)).await;
        let next = next.expect("an answer").expect("nobody has it any more");
        assert!(next.fencing_token() > highest);
        highest = next.fencing_token();
        guard.lost().await;
    }
}
