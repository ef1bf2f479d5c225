//! What stands in Redis, byte by byte, and what a holder may do.

use crate::*;

const TOKEN: &str = "redisson_lock_token:{l}";
/// Of a call that finds the lock free.
const WITHIN: Duration = Duration::from_secs(3);

type Fields = HashMap<String, String>;

fn micros_of(server: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = server.run("TIME");
    seconds * 1_000_000 + micros
}

#[tokio::test]
async fn the_layout_is_redissons() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let mut listener = server.connection();
    let mut channel = listener.as_pubsub();
    let subscribed = channel.subscribe("redisson_lock__channel:{report}");
    subscribed.expect("subscribes");
    let bound = channel.set_read_timeout(Some(20 * SECOND));
    bound.expect("a time-out");

    let lock = Lock::new(&redis, "report").lease(HOUR).by(&Owner::new());
    let before = micros_of(&server);
    let guard = lock.holds().await;
    let fields: Fields = server.run("HGETALL report");
    let [(holder, count)] = &fields.into_iter().collect::<Vec<_>>()[..] else {
        panic!("one holder")
    };
    let (process, number) = holder.split_once(':').expect("a process and an owner");
    assert_eq!((process, &**count), (redis.id(), "1"));
    assert!(number.parse::<u64>().is_ok(), "{number}");
    let left = server.life("report");
    assert!((3_580_000..=3_600_000).contains(&left), "{left}");
    let token: String = server.run("GET redisson_lock_token:{report}");
    assert_eq!(token, guard.fencing_token().to_string());
    assert!(guard.fencing_token() >= before);
    let left = server.life("redisson_lock_token:{report}");
    assert!((2_591_980_000..=2_592_000_000).contains(&left), "{left}");

    frees(guard).await;
    let message = channel.get_message().expect("a message");
    assert_eq!(message.get_payload_bytes(), b"0");
    check_expiries(&server, &[]);
    let keys = server.names();
    assert!(!keys.contains(&"report".to_owned()));
    assert_eq!(keys.len(), 2, "the token and the latch: {keys:?}");
}

#[tokio::test]
async fn an_owner_enters_again() {
    let (_server, lock) = a_lock().await;
    let (me, other) = (Owner::new(), Owner::new());
    let (lock, others) = (lock.by(&me), lock.by(&other));
    let first = lock.holds().await;
    let second = lock.clone().tries().await.expect("it is mine");
    let third = lock.lock_for(SECOND).await.expect("a lock");
    assert_eq!((lock.count(&me).await, lock.count(&other).await), (3, 0));
    assert_eq!(first.fencing_token(), second.fencing_token());
    assert_eq!(first.fencing_token(), third.fencing_token());
    let left = lock.remaining().await.expect("an answer").expect("a lease");
    assert!(left > 5 * SECOND, "a short lease shortened it: {left:?}");

    for guard in [first, third] {
        frees(guard).await;
        assert!(others.tries().await.is_none());
        assert!(second.is_held());
    }
    drop(second);
    lock.is_free_soon().await;
    let theirs = others.holds().await;
    assert_eq!(others.count(&other).await, 1);
    frees(theirs).await;
}

#[tokio::test]
async fn without_an_owner_everybody_is_somebody_else() {
    let (server, lock) = a_lock().await;
    assert_eq!(lock.remaining().await.expect("an answer"), None);
    let guard = lock.tries().await.expect("it is free");
    assert!(lock.is_taken().await);
    assert!(lock.tries().await.is_none());
    let (wait, stopwatch) = (millis(300), server.stopwatch());
    assert!(lock.try_lock_for(wait).await.expect("an answer").is_none());
    assert!(stopwatch.elapsed() >= wait && stopwatch.waited() < wait + HICCUP);
    let first = guard.fencing_token();
    drop(guard);
    let guard = lock.holds().await;
    assert!(guard.fencing_token() > first);
    frees(guard).await;
    assert!(!lock.is_taken().await);
}

/// Law: who does not hold it, changes nothing.
#[tokio::test]
async fn what_was_lost_cannot_be_released() {
    let (server, lock) = a_lock().await;

    // Expired, and taken by somebody else.
    let late = lock.lock_for(millis(20)).await.expect("a lock");
    let theirs = lock.holds().await;
    assert!(!late.is_held());
    late.lost().await;
    let before: Fields = server.run("HGETALL l");
    assert_eq!(lock_error(late.release().await), LockErrorKind::NotHeld);
    assert_eq!(server.run::<Fields>("HGETALL l"), before);
    frees(theirs).await;

    // The same owner has it anew, by another acquisition.
    let me = Owner::new();
    let mine = lock.by(&me);
    let late = mine.lock_for(millis(20)).await.expect("a lock");
    late.lost().await;
    lock.is_free_soon().await;
    let again = mine.holds().await;
    assert_eq!(lock_error(late.release().await), LockErrorKind::NotHeld);
    assert_eq!(lock.count(&me).await, 1);

    // Taken away.
    assert!(lock.force_unlock().await.expect("an answer"));
    assert!(!lock.force_unlock().await.expect("an answer"));
    assert_eq!(lock_error(again.release().await), LockErrorKind::NotHeld);
    assert_eq!(server.run::<u8>("EXISTS l"), 0);
}

#[tokio::test]
async fn what_others_wrote_under_the_names() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let lock = Lock::new(&redis, "l");

    run(&server, "SET l text");
    let asked = [
        lock_error(lock.lock().await),
        lock_error(lock.try_lock().await),
        lock_error(lock.is_locked().await),
        lock_error(lock.force_unlock().await),
    ];
    let wrong = LockErrorKind::Store(StoreErrorKind::WrongType);
    assert_eq!(asked, [wrong; 4], "no hash");
    assert_eq!(server.run::<String>("GET l"), "text");
    run(&server, "DEL l");

    run(&server, &format!("RPUSH {TOKEN} x"));
    assert_eq!(lock_error(lock.try_lock().await), wrong, "no string");
    assert_eq!(server.run::<u8>("EXISTS l"), 0, "half done");
    run(&server, &format!("DEL {TOKEN}"));
}

/// Tokens and counts that are no numbers of ours, or the last ones: a fresh start in bounded time,
/// and no lock is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_make_no_sense() {
    const NONSENSE: [&str; 14] = [
        "x",
        "",
        "-1",
        "-5",
        "-7",
        "-9223372036854775808",
        "0",
        "1.5",
        "9223372036854775806",
        "9223372036854775807",
        "99999999999999999999",
        "1e400",
        "nan",
        " 1",
    ];
    let (server, lock) = a_lock().await;
    let mut admin = server.connection();
    for nonsense in NONSENSE {
        let me = Owner::new();
        for owner in [None, Some(&me)] {
            let (lock, what) = (lock.of(owner), format!("{nonsense:?}, {owner:?}"));
            let set = admin.set::<_, _, ()>(TOKEN, nonsense);
            set.expect("is set");
            let mut before = micros_of(&server) - 1;
            for _ in 0..3 {
                let guard = timeout(WITHIN, lock.tries()).await.expect("law 6");
                let guard = guard.unwrap_or_else(|| panic!("{what}: locked by nobody"));
                let token = guard.fencing_token();
                assert!(token > before, "{what}: {before}, then {token}");
                before = token;
                let released = guard.release().await;
                released.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            assert!(!lock.is_taken().await, "{what}: is left locked");
            run(&server, &format!("DEL {TOKEN}"));
        }
        let mine = lock.by(&me);
        for is_dropped in [false, true] {
            let guard = mine.holds().await;
            let [holder] = &server.run::<Vec<String>>("HKEYS l")[..] else {
                panic!("{nonsense:?}: one holder")
            };
            let set = admin.hset::<_, _, _, ()>("l", holder, nonsense);
            set.expect("is set");
            let calls = async {
                let inner = mine.holds().await;
                assert!(inner.is_held(), "{nonsense:?}: an owner's own");
                assert!(lock.tries().await.is_none(), "{nonsense:?}: it is held");
                assert_eq!(mine.count(&me).await, 2, "{nonsense:?}");
                match is_dropped {
                    true => drop(inner),
                    false => frees(inner).await,
                }
                let released = guard.release().await;
                released.unwrap_or_else(|error| panic!("{nonsense:?}: {error}"));
            };
            timeout(12 * SECOND, calls).await.expect("law 6");
            let freed = timeout(WITHIN, lock.holds()).await;
            frees(freed.expect("it is free")).await;
        }
    }
    check_expiries(&server, &[]);
}

#[tokio::test]
async fn leases_that_cannot_be() {
    let (_server, lock) = a_lock().await;
    let nano = Duration::from_nanos(1);
    let (short, long) = (Lock::MIN_LEASE - nano, Lock::MAX_LEASE + nano);
    for lease in [Duration::ZERO, short, long, Duration::MAX] {
        let kept = lock.clone().lease(lease);
        let asked = [
            lock_error(lock.lock_for(lease).await),
            lock_error(kept.try_lock().await),
        ];
        assert_eq!(asked, [LockErrorKind::Lease; 2], "{lease:?}");
    }
    let guard = lock.lock_for(Lock::MAX_LEASE).await.expect("a lock");
    assert!(guard.is_held());
    frees(guard).await;
    drop(
        lock.lease(Lock::MAX_LEASE)
            .try_lock_for(Duration::MAX)
            .await,
    );
}

/// What a script of Redisson's has written is respected, and its message is heard, as is that of a
/// lock that is taken away.
#[tokio::test]
async fn redissons_holders_are_waited_for() {
    let (server, lock) = a_lock().await;
    for is_forced in [false, true] {
        run(&server, "HSET l 01234567-89ab-cdef-0123-456789abcdef:42 1");
        run(&server, "PEXPIRE l 3600000");
        assert!(lock.tries().await.is_none());
        let waiting = waiting(&lock);
        eventually("somebody listens", async || server.is_listened_to(CHANNEL)).await;
        let stopwatch = server.stopwatch();
        if is_forced {
            let other = lock_of_another(&server).await;
            assert!(other.force_unlock().await.expect("an answer"));
        } else {
            run(&server, "DEL l");
            run(&server, &format!("PUBLISH {CHANNEL} 0"));
        }
        let guard = waiting.await.expect("no panic");
        let waited = stopwatch.waited();
        assert!(waited < millis(500), "{waited:?}");
        frees(guard).await;
        eventually("nobody listens", async || !server.is_listened_to(CHANNEL)).await;
    }
}

/// The lease of a process that is gone ends without a message: then whoever waits asks, and not
/// when it would ask anyway, after a second.
#[tokio::test]
async fn a_holder_that_is_gone_has_the_lock_as_long_as_its_lease() {
    let (server, lock) = a_lock().await;
    let mut waited = Vec::new();
    for _ in 0..5 {
        run(&server, "HSET l somebody 1");
        run(&server, "PEXPIRE l 200");
        let began = Instant::now();
        let guard = lock.holds().await;
        waited.push(began.elapsed());
        frees(guard).await;
    }
    // The machine may be busy in some rounds.
    let least = waited.iter().min().expect("a round");
    assert!((millis(150)..millis(700)).contains(least), "{waited:?}");
}

/// Errors name the lock, so that a log of many locks can be read.
#[tokio::test]
async fn errors_name_the_lock() {
    let server = Redis::start();
    let lock = Lock::new(&handle(&server.url).await, "report");
    let lost = lock.holds().await;
    lock.force_unlock().await.expect("an answer");
    let lost = lost.release().await.err();
    let lease = lock.lock_for(Duration::ZERO).await.err();
    run(&server, "SET report text");
    let errors = [
        lost,
        lease,
        lock.lock().await.err(),
        lock.try_lock().await.err(),
        lock.try_lock_for(HICCUP).await.err(),
        lock.is_locked().await.err(),
        lock.remaining().await.err(),
        lock.force_unlock().await.err(),
    ];
    for error in errors {
        let text = error.expect("no hash, or it is lost").to_string();
        assert!(text.starts_with("lock \"report\": "), "{text}");
        assert!(!text.contains("limiter"), "{text}");
    }
}
