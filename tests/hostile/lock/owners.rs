//! Owners: reentry, guards of one owner, and what they must not do to each other.

use crate::*;

const SOON: Duration = Duration::from_secs(2);

/// An owner that has the lock takes it again at once, whoever waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reentry_before_those_who_wait() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    let mut waiters = JoinSet::new();
    let owner = Owner::new();
    let mine = Lock::new(&redis, "reentry").by(&owner);
    let first = mine.holds().await;
    for at in 0..20 {
        let lock = Lock::new(if at % 2 == 0 { &redis } else { &abroad }, "reentry");
        let lock = lock.of((at % 4 < 2).then(Owner::new).as_ref());
        waiters.spawn(async move { is_free(&lock, 10 * SECOND).await });
    }
    sleep(millis(100)).await;
    let mut guards = vec![first];
    for _ in 0..5 {
        let again = timeout(SOON, async {
            let all = [mine.lock().await, mine.lock_for(HOUR).await];
            let tried = mine.tries().await.expect("mine");
            let waited = mine.try_lock_for(millis(300)).await;
            (all, tried, waited.expect("an answer").expect("mine"))
        });
        let (all, tried, waited) = again.await.expect("no deadlock");
        guards.extend(all.map(|guard| guard.expect("mine")));
        guards.extend([tried, waited]);
    }
    assert_eq!(mine.count(&owner).await, 21);
    let tokens: Vec<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    let releases = join_all(guards.into_iter().map(|guard| guard.release())).await;
    assert!(releases.iter().all(Result::is_ok), "{releases:?}");
    while let Some(ended) = waiters.join_next().await {
        ended.expect("all others are served");
    }
    check_expiries(&server, &[]);
}

/// Guards of one owner, taken, dropped, released and given up by many tasks: the count is right
/// in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_owner_in_many_tasks() {
    let (_server, _proxy, redis) = far_server(millis(2)).await;
    let owner = Owner::new();
    let lock = Lock::new(&redis, "many").by(&owner);
    let outer = lock.holds().await;
    let tasks = (0..300_u64).map(|at| {
        let lock = lock.clone();
        tokio::spawn(async move {
            sleep(Duration::from_micros(at * 400)).await;
            let patience = Duration::from_micros(at * 97 % 5_000);
            let guard = match at % 3 {
                0 => timeout(patience, lock.lock()).await,
                1 => timeout(patience, lock.lock_for(HOUR)).await,
                _ => Ok(lock.lock().await),
            };
            let guard = guard.ok()?.expect("mine");
            match at % 4 {
                0 => return Some(guard),
                1 => drop(guard),
                2 => frees(guard).await,
                _ => drop(timeout(patience, guard.release()).await),
            }
            None
        })
    });
    let guards = join_all(tasks).await.into_iter();
    let kept: Vec<_> = guards
        .filter_map(|guard| guard.expect("no panic"))
        .collect();
    let mut count = 0;
    for _ in 0..100 {
        count = lock.count(&owner).await;
        if count == kept.len() as u64 + 1 {
            break;
        }
        sleep(millis(20)).await;
    }
    assert_eq!(count, kept.len() as u64 + 1, "holds and guards");
    assert!(outer.is_held());
    drop(kept);
    frees(outer).await;
    becomes_free(&lock, millis(1_000)).await;
    is_free(&Lock::new(&redis, "many"), SOON).await;
}

/// A guard of a hold that was lost does not free what the same owner has taken since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_guards() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let owner = Owner::new();
    let lock = Lock::new(&redis, "stale").by(&owner);
    let losses = [
        "DEL stale",
        "DEL stale redisson_lock_token:{stale}",
        "FLUSHALL",
    ];
    for loss in losses {
        for is_dropped in [false, true] {
            let old = lock.holds().await;
            let older = lock.holds().await;
            let before = old.fencing_token();
            run(&server, loss);
            let new = timeout(SOON, lock.lock())
                .await
                .expect("free")
                .expect("free");
            assert!(new.fencing_token() > before, "{loss}: the tokens rise");
            if is_dropped {
                drop((old, older));
            } else {
                for stale in [old, older] {
                    let error = stale.release().await.expect_err("it was lost");
                    assert_eq!(error.kind(), LockErrorKind::NotHeld, "{loss}");
                }
            }
            sleep(millis(100)).await;
            assert_eq!(lock.count(&owner).await, 1, "{loss}");
            assert!(new.is_held(), "{loss}");
            assert!(Lock::new(&redis, "stale").tries().await.is_none());
            new.release()
                .await
                .unwrap_or_else(|error| panic!("{loss}: {error}"));
            assert!(!lock.is_taken().await);
        }
    }
}

/// An inner hold for a fixed time neither stretches nor cuts the lease of the outer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inner_leases() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let lease = 2 * SECOND;
    let inner = async |inner: Duration, name: &str, is_released: bool| {
        let owner = Owner::new();
        let lock = Lock::new(&redis, name).lease(lease).by(&owner);
        let outer = lock.holds().await;
        let inner = lock.lock_for(inner).await.expect("mine");
        let inner = if is_released {
            frees(inner).await;
            None
        } else {
            Some(inner)
        };
        sleep(millis(2_300)).await;
        assert!(outer.is_held(), "{name}: the outer hold is renewed");
        assert!(lock.is_taken().await, "{name}");
        drop(inner);
        sleep(millis(1_000)).await;
        let left = lock.remaining().await.expect("an answer").expect("is held");
        assert!(left <= lease, "{name}: {left:?} left");
        outer
            .release()
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        becomes_free(&lock, millis(500)).await;
    };
    tokio::join!(
        inner(HOUR, "long", true),
        inner(HOUR, "long, kept", false),
        inner(Lock::MIN_LEASE, "short", true),
        inner(Lock::MIN_LEASE, "short, kept", false),
    );
}

/// What remembers requests of owners is gone soon after the release, however long the lease is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_are_short_lived() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let owner = Owner::new();
    let lock = Lock::new(&redis, "latched").lease(HOUR).by(&owner);
    for at in 0..60 {
        let outer = lock.holds().await;
        let inner = lock.holds().await;
        if at % 2 == 0 {
            frees(inner).await;
            frees(outer).await;
        }
    }
    sleep(millis(300)).await;
    let mut connection = server.connection();
    let latches: Vec<String> = redis::cmd("KEYS")
        .arg("redisson_unlock_latch*")
        .query(&mut connection)
        .expect("the keys");
    for latch in latches {
        let left = redis::cmd("PTTL").arg(&latch).query::<i64>(&mut connection);
        let left = left.expect("a time");
        let is_right = (-2..=60_000).contains(&left) && left != -1;
        assert!(is_right, "law 4: {latch} for {left} ms");
    }
    check_expiries(&server, &[]);
}
