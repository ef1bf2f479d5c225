//! Replies that are lost, servers that are away: nothing counts twice, and nothing stays behind.

use crate::*;

const TIMEOUT: Duration = millis(100);

/// A server behind a network that loses replies; a lock over it, and the same one beside it.
struct Lossy {
    server: Redis,
    network: Proxy,
    lock: Lock,
    sight: Lock,
}

impl Lossy {
    async fn start() -> Self {
        let server = Redis::start();
        let network = Proxy::start(&server.url).await;
        let redis = handle(&network.url).await.timeout(TIMEOUT);
        Self {
            sight: lock_of_another(&server).await,
            lock: Lock::new(&redis, "l"),
            server,
            network,
        }
    }

    async fn is_whole(&self) {
        let is_whole = async || self.lock.is_locked().await.is_ok();
        eventually("the connection is whole", is_whole).await;
    }

    /// Replies are lost meanwhile; then what lost them breaks, and new connections are whole.
    async fn without_replies<T>(&self, work: impl Future<Output = T>) -> T {
        self.is_whole().await;
        self.network.all(Mode::LoseReplies(usize::MAX));
        let ends = async {
            sleep(6 * TIMEOUT).await;
            self.network.all(Mode::Pass);
            self.network.present(Mode::Reset);
        };
        tokio::join!(work, ends).0
    }

    /// What comes late over the connections that are there has come by now, and was in vain.
    async fn nothing_is_taken(&self) {
        for _ in 0..20 {
            sleep(millis(10)).await;
            assert!(!self.sight.is_taken().await, "taken by nobody");
        }
    }
}

/// Law: an acquire whose reply is lost counts once, and goes on.
#[tokio::test]
async fn a_lost_reply_to_an_acquire() {
    let lossy = Lossy::start().await;
    let me = Owner::new();
    for lock in [lossy.lock.clone(), lossy.lock.by(&me)] {
        let guard = lossy.without_replies(lock.holds()).await;
        // A request that was given up may have been granted, and is given back.
        let counts = async || lossy.server.run::<Vec<u64>>("HVALS l") == [1];
        eventually("it counts once", counts).await;
        frees(guard).await;
        lossy.sight.is_free_soon().await;
    }
    // Entering again counts once, too.
    let lock = lossy.lock.by(&me);
    let outer = lock.holds().await;
    let inner = lossy.without_replies(lock.holds()).await;
    eventually("it counts once", async || lock.count(&me).await == 2).await;
    frees(inner).await;
    assert_eq!(lock.count(&me).await, 1);
    frees(outer).await;
}

/// A hold, and the call that acquired it, as the server saw it.
async fn hold_and_call(server: &Redis, lock: &Lock) -> (LockGuard, String) {
    type Logged = (i64, i64, i64, Vec<String>, String, String);
    server.run::<()>("CONFIG SET slowlog-log-slower-than 0");
    server.run::<()>("SLOWLOG RESET");
    let guard = lock.holds().await;
    let logged: Vec<Logged> = server.run("SLOWLOG GET 16");
    let calls = logged.iter().filter(|call| call.3[0].starts_with("EVAL"));
    let acquires: Vec<_> = calls
        .filter(|call| call.3.contains(&"l".to_owned()))
        .collect();
    let [acquire] = acquires[..] else {
        panic!("one call: {logged:?}");
    };
    (guard, acquire.3.join(" "))
}

/// Law: a call that the network repeats counts once.
#[tokio::test]
async fn an_acquire_that_comes_twice() {
    let (server, lock) = a_lock().await;
    let me = Owner::new();
    let lock = lock.by(&me);
    let outer = lock.holds().await;
    let (inner, call) = hold_and_call(&server, &lock).await;
    let again: (i64, Vec<i64>) = server.run(&call);
    assert_eq!(again.1.first(), Some(&1), "granted: {again:?}");
    assert_eq!(lock.count(&me).await, 2);
    frees(inner).await;
    frees(outer).await;
    lock.is_free_soon().await;
}

/// Law: a call that the network repeats behind its release takes nothing.
#[tokio::test]
async fn an_acquire_that_comes_behind_its_release() {
    let (server, lock) = a_lock().await;
    for lock in [lock.clone(), lock.by(&Owner::new())] {
        let (guard, call) = hold_and_call(&server, &lock).await;
        frees(guard).await;
        let again: (i64, Vec<i64>) = server.run(&call);
        assert_eq!(again.1.first(), Some(&-1), "given up: {again:?}");
        assert!(!lock.is_taken().await, "taken by nobody");
    }
}

/// Law: an acquire that nobody knows the end of is given back; what its owner had before stays.
#[tokio::test]
async fn an_acquire_that_fails_leaves_nothing() {
    let lossy = Lossy::start().await;
    let me = Owner::new();
    for lock in [lossy.lock.clone(), lossy.lock.by(&me)] {
        let taken = lossy.without_replies(lock.try_lock()).await;
        taken.expect_err("no reply came");
        lossy.sight.is_free_soon().await;
    }
    let lock = lossy.lock.by(&me);
    lossy.is_whole().await;
    let outer = lock.holds().await;
    let inner = lossy.without_replies(lock.try_lock()).await;
    inner.expect_err("no reply came");
    let is_one = async || lock.hold_count(&me).await.is_ok_and(|count| count == 1);
    eventually("it is given back", is_one).await;
    sleep(millis(300)).await;
    assert_eq!(lock.count(&me).await, 1);
    assert!(outer.is_held());
    frees(outer).await;
}

/// Law: a release whose reply is lost was a release, and takes nothing from who comes next.
#[tokio::test]
async fn a_lost_reply_to_a_release() {
    let lossy = Lossy::start().await;
    let guard = lossy.lock.holds().await;
    let both = async { tokio::join!(guard.release(), lossy.sight.holds()) };
    let (released, theirs) = lossy.without_replies(both).await;
    released.expect("it was held");
    // Nobody has touched it.
    frees(theirs).await;

    let me = Owner::new();
    let lock = lossy.lock.by(&me);
    let (outer, inner) = (lock.holds().await, lock.holds().await);
    lossy.without_replies(frees(inner)).await;
    assert_eq!(lock.count(&me).await, 1);
    frees(outer).await;
}

/// Law: an acquire that was given up takes nothing when it comes at last, over a connection of
/// which nobody knows any more.
#[tokio::test]
async fn an_acquire_that_comes_late() {
    let lossy = Lossy::start().await;
    for lock in [lossy.lock.clone(), lossy.lock.by(&Owner::new())] {
        lossy.is_whole().await;
        lossy.network.present(Mode::Hold);
        // Another connection is made meanwhile, so what gives it up overtakes it.
        lock.try_lock().await.expect_err("no answer");
        lossy.is_whole().await;
        sleep(millis(500)).await;
        lossy.network.present(Mode::Pass);
        lossy.nothing_is_taken().await;
    }
}

/// Law: a release that nobody waits for is tried until it comes through.
#[tokio::test]
async fn a_release_that_does_not_come_through() {
    let lossy = Lossy::start().await;
    for is_dropped in [false, true] {
        lossy.is_whole().await;
        let guard = lossy.lock.holds().await;
        lossy.network.present(Mode::Hold);
        match is_dropped {
            true => drop(guard),
            false => drop(
                timeout(TIMEOUT / 2, guard.release())
                    .await
                    .expect_err("no answer"),
            ),
        }
        // Nothing that was sent is ever delivered; the connection is made anew after ten tries.
        lossy.sight.is_free_soon().await;
        lossy.network.present(Mode::Pass);
    }
}

/// The same from a server that hangs, with many at once.
#[tokio::test]
async fn acquires_at_a_server_that_hangs() {
    let server = Redis::start();
    let lock = Lock::new(&handle(&server.url).await.timeout(TIMEOUT), "l");
    server.signal("STOP");
    for _ in 0..10 {
        let told = lock_error(lock.try_lock().await);
        assert_eq!(told, LockErrorKind::Store(StoreErrorKind::Timeout));
    }
    server.signal("CONT");
    let sight = lock_of_another(&server).await;
    sight.is_free_soon().await;
    sleep(millis(300)).await;
    assert!(!sight.is_taken().await, "taken by nobody");
}

/// An outage that ends costs a waiter nothing.
#[tokio::test]
async fn waiters_survive_a_restart() {
    let mut server = Redis::start();
    let lock = Lock::new(&handle(&server.url).await.timeout(TIMEOUT), "l");
    is_taken_by_somebody(&server);
    let waiting = waiting(&lock);
    sleep(millis(100)).await;
    server.kill();
    sleep(millis(300)).await;
    server.restart();
    let stopwatch = Stopwatch::here();
    let guard = waiting.await.expect("no panic");
    let waited = stopwatch.waited();
    assert!(waited < 2 * HICCUP, "{waited:?}");
    frees(guard).await;
}

/// Law: a lost message costs at most a second.
#[tokio::test]
async fn a_message_that_is_lost() {
    let (server, lock) = a_lock().await;
    is_taken_by_somebody(&server);
    let waiting = waiting(&lock);
    sleep(millis(100)).await;
    run(&server, "DEL l");
    let stopwatch = server.stopwatch();
    let guard = waiting.await.expect("no panic");
    assert!(stopwatch.waited() < SECOND + HICCUP);
    frees(guard).await;
}

/// A connection that is cut while somebody listens is made anew, and listens again.
#[tokio::test]
async fn a_listener_that_is_cut_comes_back() {
    let (server, lock) = a_lock().await;
    is_taken_by_somebody(&server);
    let waiting = waiting(&lock);
    let listens = async || server.is_listened_to(CHANNEL);
    eventually("somebody listens", listens).await;
    run(&server, "CLIENT KILL TYPE pubsub");
    sleep(millis(20)).await;
    eventually("somebody listens again", listens).await;
    run(&server, "DEL l");
    run(&server, &format!("PUBLISH {CHANNEL} 0"));
    let guard = timeout(PATIENT, waiting).await.expect("it hears of it");
    frees(guard.expect("no panic")).await;
}
