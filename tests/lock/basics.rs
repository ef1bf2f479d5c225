//! What stands in Redis, byte by byte, and what a holder may do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kit::Redis;
use redis::{Commands, cmd};
use tidegate::lock::{Lock, LockErrorKind, Owner};
use tidegate::store::StoreErrorKind;

use crate::{HICCUP, eventually, is_free_soon, process};

type Fields = HashMap<String, String>;

fn micros_of(connection: &mut redis::Connection) -> u64 {
    let (seconds, micros): (u64, u64) = cmd("TIME").query(connection).expect("a time");
    seconds * 1_000_000 + micros
}

#[tokio::test]
async fn the_layout_is_redissons() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let mut listener = server.connection();
    let mut channel = listener.as_pubsub();
    channel
        .subscribe("redisson_lock__channel:{report}")
        .expect("subscribes");
    channel
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a time-out");

    let owner = Owner::new();
    let lock = Lock::new(&redis, "report")
        .lease(Duration::from_secs(20))
        .by(&owner);
    let before = micros_of(&mut admin);
    let guard = lock.lock().await.expect("a lock");
    let fields: Fields = admin.hgetall("report").expect("a hash");
    let [(holder, count)] = &fields.into_iter().collect::<Vec<_>>()[..] else {
        panic!("one holder")
    };
    let (process, number) = holder.split_once(':').expect("a process and an owner");
    assert_eq!(process, redis.id());
    assert!(number.parse::<u64>().is_ok(), "{number}");
    assert_eq!(count, "1");
    let left: u64 = admin.pttl("report").expect("a lease");
    assert!((19_000..=20_000).contains(&left), "{left}");
    let token: String = admin.get("redisson_lock_token:{report}").expect("a token");
    assert_eq!(token, guard.fencing_token().to_string());
    assert!(guard.fencing_token() >= before);
    let left: u64 = admin
        .pttl("redisson_lock_token:{report}")
        .expect("an expiry");
    assert!((2_591_990_000..=2_592_000_000).contains(&left), "{left}");

    guard.release().await.expect("it was held");
    let message = channel.get_message().expect("a message");
    assert_eq!(message.get_payload_bytes(), b"0");
    let keys: Vec<String> = admin.keys("*").expect("keys");
    for key in &keys {
        let left: i64 = admin.pttl(key).expect("an expiry");
        assert!(left > 0, "{key} never expires");
    }
    assert!(!keys.contains(&"report".to_owned()));
    assert_eq!(keys.len(), 2, "the token and the latch: {keys:?}");
}

#[tokio::test]
async fn an_owner_enters_again() {
    let server = Redis::start();
    let redis = process(&server).await;
    let (me, other) = (Owner::new(), Owner::new());
    let lock = Lock::new(&redis, "l").by(&me);
    let first = lock.lock().await.expect("a lock");
    let second = lock
        .clone()
        .try_lock()
        .await
        .expect("an answer")
        .expect("it is mine");
    let third = lock.lock_for(Duration::from_secs(1)).await.expect("a lock");
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 3);
    assert_eq!(lock.hold_count(&other).await.expect("an answer"), 0);
    assert_eq!(first.fencing_token(), second.fencing_token());
    assert_eq!(first.fencing_token(), third.fencing_token());
    let left = lock.remaining().await.expect("an answer").expect("a lease");
    assert!(
        left > Duration::from_secs(25),
        "a short lease shortened it: {left:?}"
    );

    let others = Lock::new(&redis, "l").by(&other);
    for guard in [first, third] {
        guard.release().await.expect("it was held");
        assert!(others.try_lock().await.expect("an answer").is_none());
        assert!(second.is_held());
    }
    drop(second);
    is_free_soon(&lock).await;
    let theirs = others.lock().await.expect("a lock");
    assert_eq!(others.hold_count(&other).await.expect("an answer"), 1);
    theirs.release().await.expect("it was held");
}

#[tokio::test]
async fn without_an_owner_everybody_is_somebody_else() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    assert_eq!(lock.remaining().await.expect("an answer"), None);
    let guard = lock
        .try_lock()
        .await
        .expect("an answer")
        .expect("it is free");
    assert!(lock.is_locked().await.expect("an answer"));
    assert!(lock.try_lock().await.expect("an answer").is_none());
    let began = Instant::now();
    let wait = Duration::from_millis(300);
    assert!(lock.try_lock_for(wait).await.expect("an answer").is_none());
    assert!(began.elapsed() >= wait && began.elapsed() < wait + HICCUP);
    let first = guard.fencing_token();
    drop(guard);
    let guard = lock.lock().await.expect("a lock");
    assert!(guard.fencing_token() > first);
    guard.release().await.expect("it was held");
    assert!(!lock.is_locked().await.expect("an answer"));
}

/// Law: who does not hold it, changes nothing.
#[tokio::test]
async fn what_was_lost_cannot_be_released() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "l");

    // Expired, and taken by somebody else.
    let late = lock
        .lock_for(Duration::from_millis(20))
        .await
        .expect("a lock");
    let theirs = lock.lock().await.expect("a lock");
    assert!(!late.is_held());
    late.lost().await;
    let before: Fields = admin.hgetall("l").expect("a hash");
    let error = late.release().await.expect_err("it was lost");
    assert_eq!(error.kind(), LockErrorKind::NotHeld);
    assert_eq!(admin.hgetall::<_, Fields>("l").expect("a hash"), before);
    theirs.release().await.expect("it was held");

    // The same owner has it anew, by another acquisition.
    let me = Owner::new();
    let mine = lock.by(&me);
    let late = mine
        .lock_for(Duration::from_millis(20))
        .await
        .expect("a lock");
    late.lost().await;
    eventually("it expires", HICCUP, async || {
        !lock.is_locked().await.expect("an answer")
    })
    .await;
    let again = mine.lock().await.expect("a lock");
    let error = late.release().await.expect_err("it was lost");
    assert_eq!(error.kind(), LockErrorKind::NotHeld);
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);

    // Taken away.
    assert!(lock.force_unlock().await.expect("an answer"));
    assert!(!lock.force_unlock().await.expect("an answer"));
    let error = again.release().await.expect_err("it was taken away");
    assert_eq!(error.kind(), LockErrorKind::NotHeld);
    assert_eq!(admin.exists::<_, u8>("l").expect("an answer"), 0);
}

#[tokio::test]
async fn what_others_wrote_under_the_names() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "l");
    let wrong = LockErrorKind::Store(StoreErrorKind::WrongType);

    admin.set::<_, _, ()>("l", "text").expect("is set");
    assert_eq!(lock.lock().await.expect_err("no hash").kind(), wrong);
    assert_eq!(lock.try_lock().await.expect_err("no hash").kind(), wrong);
    assert_eq!(lock.is_locked().await.expect_err("no hash").kind(), wrong);
    assert_eq!(
        lock.force_unlock().await.expect_err("no hash").kind(),
        wrong
    );
    assert_eq!(admin.get::<_, String>("l").expect("text"), "text");
    admin.del::<_, ()>("l").expect("is deleted");

    admin
        .rpush::<_, _, ()>("redisson_lock_token:{l}", "x")
        .expect("is pushed");
    assert_eq!(lock.try_lock().await.expect_err("no string").kind(), wrong);
    assert_eq!(
        admin.exists::<_, u8>("l").expect("an answer"),
        0,
        "half done"
    );
    admin
        .del::<_, ()>("redisson_lock_token:{l}")
        .expect("is deleted");

    // No number of ours is no reason to fail for ever.
    let me = Owner::new();
    let mine = lock.by(&me);
    for nonsense in ["x", "-5", "1e400", "nan", "99999999999999999999", ""] {
        admin
            .set::<_, _, ()>("redisson_lock_token:{l}", nonsense)
            .expect("is set");
        let before = micros_of(&mut admin);
        let guard = mine.lock().await.expect("a lock");
        assert!(guard.fencing_token() >= before, "{nonsense}");
        let holder = format!("{}:{}", redis.id(), holder_number(&mut admin));
        admin
            .hset::<_, _, _, ()>("l", holder, nonsense)
            .expect("is set");
        let inner = mine.lock().await.expect("a lock");
        assert_eq!(
            lock.hold_count(&me).await.expect("an answer"),
            2,
            "{nonsense}"
        );
        inner.release().await.expect("it was held");
        guard.release().await.expect("it was held");
        assert!(!lock.is_locked().await.expect("an answer"));
    }
}

fn holder_number(admin: &mut redis::Connection) -> String {
    let holders: Vec<String> = admin.hkeys("l").expect("a hash");
    let (_, number) = holders[0].split_once(':').expect("a holder");
    number.to_owned()
}

#[tokio::test]
async fn leases_that_cannot_be() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    for lease in [Duration::ZERO, Duration::from_millis(9), Duration::MAX] {
        let error = lock.lock_for(lease).await.expect_err("no such lease");
        assert_eq!(error.kind(), LockErrorKind::Lease);
        let error = lock.clone().lease(lease).try_lock().await;
        assert_eq!(
            error.expect_err("no such lease").kind(),
            LockErrorKind::Lease
        );
    }
    let guard = lock.lock_for(Lock::MAX_LEASE).await.expect("a lock");
    assert!(guard.is_held());
    guard.release().await.expect("it was held");
    let guard = lock
        .lease(Lock::MAX_LEASE)
        .try_lock_for(Duration::MAX)
        .await;
    drop(guard);
}

/// What a script of Redisson's has written is respected, and its message is heard.
#[tokio::test]
async fn redissons_holders_are_waited_for() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "l");
    let holder = "01234567-89ab-cdef-0123-456789abcdef:42";
    admin.hset::<_, _, _, ()>("l", holder, 1).expect("is set");
    admin.pexpire::<_, ()>("l", 30_000).expect("expires");
    assert!(lock.try_lock().await.expect("an answer").is_none());
    let waiting = tokio::spawn(async move { lock.lock().await.expect("a lock") });
    eventually("somebody listens", HICCUP, async || {
        let counts: HashMap<String, u64> = cmd("PUBSUB")
            .arg("NUMSUB")
            .arg("redisson_lock__channel:{l}")
            .query(&mut admin)
            .expect("an answer");
        counts["redisson_lock__channel:{l}"] == 1
    })
    .await;
    let began = Instant::now();
    admin.del::<_, ()>("l").expect("is deleted");
    admin
        .publish::<_, _, ()>("redisson_lock__channel:{l}", "0")
        .expect("is told");
    let guard = waiting.await.expect("no panic");
    assert!(
        began.elapsed() < Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
    guard.release().await.expect("it was held");
    eventually("nobody listens", HICCUP, async || {
        let channels: Vec<String> = cmd("PUBSUB")
            .arg("CHANNELS")
            .query(&mut admin)
            .expect("an answer");
        channels.is_empty()
    })
    .await;
}

/// Errors name the lock, so that a log of many locks can be read.
#[tokio::test]
async fn errors_name_the_lock() {
    let server = Redis::start();
    let redis = process(&server).await;
    let mut admin = server.connection();
    let lock = Lock::new(&redis, "report");
    let lost = lock.lock().await.expect("a lock");
    lock.force_unlock().await.expect("an answer");
    let lost = lost.release().await.expect_err("it was taken away");
    let lease = lock.lock_for(Duration::ZERO).await;
    admin.set::<_, _, ()>("report", "text").expect("is set");
    let errors = [
        lost,
        lease.expect_err("no such lease"),
        lock.lock().await.expect_err("no hash"),
        lock.try_lock().await.expect_err("no hash"),
        lock.try_lock_for(HICCUP).await.expect_err("no hash"),
        lock.is_locked().await.expect_err("no hash"),
        lock.remaining().await.expect_err("no hash"),
        lock.force_unlock().await.expect_err("no hash"),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.starts_with("lock \"report\": "), "{text}");
        assert!(!text.contains("limiter"), "{text}");
    }
}
