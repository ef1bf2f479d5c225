//! Replies that are lost, servers that are away: nothing counts twice, and nothing stays behind.

use std::time::{Duration, Instant};

use kit::Redis;
use redis::{Commands, cmd};
use tidegate::Redis as Handle;
use tidegate::lock::{Lock, LockErrorKind, Owner};
use tidegate::store::StoreErrorKind;

use crate::mute::Mute;
use crate::{HICCUP, at, eventually, is_free_soon, process};

const TIMEOUT: Duration = Duration::from_millis(100);

/// A server behind a network that loses replies, and the same server without it.
struct Lossy {
    server: Redis,
    network: Mute,
    redis: Handle,
}

impl Lossy {
    async fn start() -> Self {
        let server = Redis::start();
        let network = Mute::start(&server.url).await;
        let redis = at(&network.url).await.timeout(TIMEOUT);
        Self {
            server,
            network,
            redis,
        }
    }

    async fn is_whole(&self) {
        let any = Lock::new(&self.redis, "any");
        eventually("the connection is whole", 2 * HICCUP, async || {
            any.is_locked().await.is_ok()
        })
        .await;
    }

    /// Replies are lost meanwhile.
    async fn without_replies<T>(&self, work: impl Future<Output = T>) -> T {
        self.is_whole().await;
        self.network.begin();
        let ends = async {
            tokio::time::sleep(8 * TIMEOUT).await;
            self.network.end();
        };
        tokio::join!(work, ends).0
    }
}

/// Law: an acquire whose reply is lost counts once, and goes on.
#[tokio::test]
async fn a_lost_reply_to_an_acquire() {
    let lossy = Lossy::start().await;
    let me = Owner::new();
    let lock = Lock::new(&lossy.redis, "l");
    for lock in [lock.clone(), lock.by(&me)] {
        let guard = lossy.without_replies(lock.lock()).await.expect("a lock");
        let mut admin = lossy.server.connection();
        // A request that was given up may have been granted, and is given back.
        eventually("it counts once", 2 * HICCUP, async || {
            admin.hvals::<_, Vec<u64>>("l").expect("a hash") == [1]
        })
        .await;
        guard.release().await.expect("it was held");
        is_free_soon(&lock).await;
    }
    // Entering again counts once, too.
    let lock = lock.by(&me);
    let outer = lock.lock().await.expect("a lock");
    let inner = lossy.without_replies(lock.lock()).await.expect("a lock");
    eventually("it counts once", 2 * HICCUP, async || {
        lock.hold_count(&me).await.expect("an answer") == 2
    })
    .await;
    inner.release().await.expect("it was held");
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);
    outer.release().await.expect("it was held");
}

/// Law: an acquire that nobody knows the end of is given back; what its owner had before stays.
#[tokio::test]
async fn an_acquire_that_fails_leaves_nothing() {
    let lossy = Lossy::start().await;
    let other = process(&lossy.server).await;
    let sight = Lock::new(&other, "l");
    let me = Owner::new();
    let lock = Lock::new(&lossy.redis, "l");
    for lock in [lock.clone(), lock.by(&me)] {
        let failed = lossy.without_replies(async {
            let failed = lock.try_lock().await;
            assert!(
                sight.is_locked().await.expect("an answer"),
                "it did not come through"
            );
            failed
        });
        let error = failed.await.expect_err("no answer");
        assert_eq!(error.kind(), LockErrorKind::Store(StoreErrorKind::Timeout));
        is_free_soon(&sight).await;
    }
    let lock = lock.by(&me);
    let outer = lock.lock().await.expect("a lock");
    let failed = lossy.without_replies(lock.try_lock()).await;
    failed.expect_err("no answer");
    eventually("the inner one is given back", 2 * HICCUP, async || {
        lock.hold_count(&me).await.is_ok_and(|count| count == 1)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);
    assert!(outer.is_held());
    outer.release().await.expect("it was held");
}

/// Law: a release whose reply is lost was a release, and takes nothing from who comes next.
#[tokio::test]
async fn a_lost_reply_to_a_release() {
    let lossy = Lossy::start().await;
    let other = process(&lossy.server).await;
    let lock = Lock::new(&lossy.redis, "l");
    let guard = lock.lock().await.expect("a lock");
    let theirs = async {
        let theirs = Lock::new(&other, "l");
        theirs.lock().await.expect("a lock")
    };
    let both = async { tokio::join!(guard.release(), theirs) };
    let (released, theirs) = lossy.without_replies(both).await;
    released.expect("it was held");
    theirs.release().await.expect("nobody has touched it");

    let me = Owner::new();
    let lock = lock.by(&me);
    let outer = lock.lock().await.expect("a lock");
    let inner = lock.lock().await.expect("a lock");
    lossy
        .without_replies(inner.release())
        .await
        .expect("it was held");
    assert_eq!(lock.hold_count(&me).await.expect("an answer"), 1);
    outer.release().await.expect("it was held");
}

/// Law: an acquire that was given up takes nothing when it comes at last, over a connection of
/// which nobody knows any more.
#[tokio::test]
async fn an_acquire_that_comes_late() {
    let lossy = Lossy::start().await;
    let other = process(&lossy.server).await;
    let sight = Lock::new(&other, "l");
    let lock = Lock::new(&lossy.redis, "l");
    for lock in [lock.clone(), lock.by(&Owner::new())] {
        lossy.is_whole().await;
        lossy.network.hold();
        // Another connection is made meanwhile, so what gives it up overtakes it.
        lock.try_lock().await.expect_err("no answer");
        lossy.is_whole().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        lossy.network.deliver();
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(
                !sight.is_locked().await.expect("an answer"),
                "taken by nobody"
            );
        }
    }
}

/// Law: a release that nobody waits for is tried until it comes through.
#[tokio::test]
async fn a_release_that_does_not_come_through() {
    let lossy = Lossy::start().await;
    let other = process(&lossy.server).await;
    let sight = Lock::new(&other, "l");
    let lock = Lock::new(&lossy.redis, "l");
    for is_dropped in [false, true] {
        lossy.is_whole().await;
        let guard = lock.lock().await.expect("a lock");
        lossy.network.hold();
        match is_dropped {
            true => drop(guard),
            false => {
                let released = tokio::time::timeout(TIMEOUT / 2, guard.release()).await;
                released.expect_err("no answer");
            }
        }
        // Nothing that was sent is ever delivered; the connection is made anew after ten tries.
        eventually("it is free", Duration::from_secs(9), async || {
            !sight.is_locked().await.expect("an answer")
        })
        .await;
        lossy.network.deliver();
    }
}

/// The same from a server that hangs, with many at once.
#[tokio::test]
async fn acquires_at_a_server_that_hangs() {
    let server = Redis::start();
    let redis = at(&server.url).await.timeout(TIMEOUT);
    let lock = Lock::new(&redis, "l");
    server.signal("STOP");
    for _ in 0..15 {
        let error = lock.try_lock().await.expect_err("no answer");
        assert_eq!(error.kind(), LockErrorKind::Store(StoreErrorKind::Timeout));
    }
    server.signal("CONT");
    let other = process(&server).await;
    let sight = Lock::new(&other, "l");
    is_free_soon(&sight).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        !sight.is_locked().await.expect("an answer"),
        "taken by nobody"
    );
}

/// An outage that ends costs a waiter nothing; one that does not is an error, and in time.
#[tokio::test]
async fn waiters_survive_a_restart() {
    let mut server = Redis::start();
    let redis = at(&server.url).await.timeout(TIMEOUT);
    let lock = Lock::new(&redis, "l");
    let mut admin = server.connection();
    admin
        .hset::<_, _, _, ()>("l", "somebody:1", 1)
        .expect("is set");
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.kill();
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.restart();
    let began = Instant::now();
    let guard = waiting.await.expect("no panic").expect("a lock");
    assert!(began.elapsed() < 2 * HICCUP, "{:?}", began.elapsed());
    guard.release().await.expect("it was held");

    server.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    let wait = Duration::from_millis(300);
    let error = lock.try_lock_for(wait).await.expect_err("nobody answers");
    assert_eq!(
        error.kind(),
        LockErrorKind::Store(StoreErrorKind::Unavailable)
    );
    assert!(began.elapsed() < wait + HICCUP, "{:?}", began.elapsed());
    // However many stand in line.
    let began = Instant::now();
    let all = (0..20).map(|_| lock.lock());
    for result in futures_util::future::join_all(all).await {
        result.expect_err("nobody answers");
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// Law: a lost message costs at most a second.
#[tokio::test]
async fn a_message_that_is_lost() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    let mut admin = server.connection();
    admin
        .hset::<_, _, _, ()>("l", "somebody:1", 1)
        .expect("is set");
    let waiting = tokio::spawn(async move { lock.lock().await.expect("a lock") });
    tokio::time::sleep(Duration::from_millis(100)).await;
    admin.del::<_, ()>("l").expect("is deleted");
    let began = Instant::now();
    let guard = waiting.await.expect("no panic");
    assert!(began.elapsed() < Duration::from_secs(1) + HICCUP);
    guard.release().await.expect("it was held");
}

/// A connection that is cut while somebody listens is made anew, and listens again.
#[tokio::test]
async fn a_listener_that_is_cut_comes_back() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    let mut admin = server.connection();
    admin
        .hset::<_, _, _, ()>("l", "somebody:1", 1)
        .expect("is set");
    let waiting = tokio::spawn(async move { lock.lock().await.expect("a lock") });
    let mut listens = async || {
        eventually("somebody listens", HICCUP, async || {
            let channels: Vec<String> = cmd("PUBSUB")
                .arg("CHANNELS")
                .query(&mut admin)
                .expect("an answer");
            channels == ["redisson_lock__channel:{l}"]
        })
        .await;
    };
    listens().await;
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("pubsub");
    kill.exec(&mut server.connection()).expect("kills");
    tokio::time::sleep(Duration::from_millis(20)).await;
    listens().await;
    admin.del::<_, ()>("l").expect("is deleted");
    admin
        .publish::<_, _, ()>("redisson_lock__channel:{l}", "0")
        .expect("is told");
    let guard = waiting.await.expect("no panic");
    guard.release().await.expect("it was held");
}
