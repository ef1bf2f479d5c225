//! Law 10: foreign and broken values under a lock's keys, and names that are hard to bear.

use crate::*;

const WITHIN: Duration = Duration::from_secs(3);

/// Tokens that are no numbers, or the last ones: a typed error or a fresh start, and no lock is
/// left behind by who got an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_make_no_sense() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let mut wrong = Vec::new();
    let tokens = [
        "x",
        "",
        "-1",
        "-9223372036854775808",
        "1.5",
        "9223372036854775806",
        "9223372036854775807",
        "99999999999999999999",
        "1e400",
        "nan",
        " 1",
    ];
    for token in tokens {
        for is_owned in [false, true] {
            run(&server, "DEL x redisson_lock_token:{x}");
            let key = "redisson_lock_token:{x}";
            let mut set = redis::cmd("SET");
            set.arg(key).arg(token);
            set.exec(&mut server.connection()).expect("is written");
            let lock = Lock::new(&redis, "x");
            let lock = lock.of((is_owned).then(Owner::new).as_ref());
            let mut before = 0;
            for _ in 0..3 {
                match timeout(WITHIN, lock.try_lock()).await.expect("law 6") {
                    Ok(Some(guard)) => {
                        if guard.fencing_token() <= before {
                            wrong.push(format!(
                                "{token:?}: {before}, then {}",
                                guard.fencing_token()
                            ));
                        }
                        before = guard.fencing_token();
                        if let Err(error) = guard.release().await {
                            wrong.push(format!("{token:?}: {error:?}"));
                        }
                    }
                    Ok(None) => wrong.push(format!("{token:?}: locked by nobody")),
                    Err(error) => wrong.push(format!("{token:?}: {error:?}")),
                }
            }
            if lock.is_taken().await {
                wrong.push(format!("{token:?}: is left locked"));
            }
        }
    }
    assert!(wrong.is_empty(), "law 10: {}: {wrong:#?}", wrong.len());
    check_expiries(&server, &[]);
}

/// Hold counts that make no sense: the guards there are decide, and the lock is free after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_make_no_sense() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let owner = Owner::new();
    let lock = Lock::new(&redis, "x").by(&owner);
    for count in [
        "x",
        "",
        "0",
        "-7",
        "1.5",
        "9223372036854775807",
        "99999999999999999999",
    ] {
        let guard = lock.holds().await;
        let field: Vec<String> = redis::cmd("HKEYS")
            .arg("x")
            .query(&mut server.connection())
            .expect("the holder");
        let mut set = redis::cmd("HSET");
        set.arg("x").arg(&field[0]).arg(count);
        set.exec(&mut server.connection()).expect("is written");
        let calls = async {
            let again = lock.tries().await;
            let is_right = again.is_some_and(|again| again.is_held());
            assert!(is_right, "{count:?}: an owner's own");
            let other = Lock::new(&redis, "x").tries().await;
            assert!(other.is_none(), "{count:?}: it is held");
            guard
                .release()
                .await
                .unwrap_or_else(|error| panic!("{count:?}: {error}"));
        };
        timeout(12 * SECOND, calls).await.expect("law 6");
        is_free(&Lock::new(&redis, "x"), WITHIN).await;
    }
    check_expiries(&server, &[]);
}

/// Names of all kinds are locks of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_all_kinds() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let mut guards = Vec::new();
    for name in kit::odd_names() {
        let lock = Lock::new(&redis, &name);
        let guard = lock
            .try_lock()
            .await
            .unwrap_or_else(|error| panic!("{name:?}: {error}"));
        guards.push((lock, guard.unwrap_or_else(|| panic!("{name:?} is its own"))));
    }
    let mut late = Vec::new();
    for (lock, guard) in guards {
        let waits = lock.clone();
        let waits = tokio::spawn(async move { is_free(&waits, 5 * SECOND).await });
        sleep(millis(20)).await;
        assert!(lock.is_taken().await);
        let freed = Instant::now();
        frees(guard).await;
        waits.await.expect("is served");
        late.extend((freed.elapsed() > millis(700)).then(|| freed.elapsed()));
    }
    // Who misses the message of the release asks again after a second.
    assert!(late.len() <= 3, "not woken by the release: {late:?}");
    check_expiries(&server, &[]);
}
