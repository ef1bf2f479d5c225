//! Leases: hostile settings beside the watchdog, leases that are lost, and bounds.

use crate::*;

const LEASE: Duration = millis(1_500);

/// Clones of a handle with hostile time-outs take, wait for and give back locks all the time; the
/// leases of the others are renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_beside_hostile_time_outs() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let kept = [
        Lock::new(&redis, "kept"),
        Lock::new(&redis, "owned").by(&Owner::new()),
    ];
    let mut guards = Vec::new();
    for lock in &kept {
        guards.push(lock.clone().lease(LEASE).holds().await);
    }
    let mut hostile = JoinSet::new();
    let time_outs = [
        Duration::ZERO,
        Duration::from_nanos(1),
        millis(2),
        Duration::from_secs(u64::MAX / 2),
        Duration::MAX,
    ];
    for (at, time_out) in time_outs.into_iter().cycle().take(15).enumerate() {
        let redis: Redis = redis.clone().timeout(time_out);
        let name = ["kept", "owned", "hostile"][at % 3];
        hostile.spawn(async move {
            let lock = Lock::new(&redis, name).lease(Lock::MAX_LEASE);
            let lock = lock.of((at % 2 == 0).then(Owner::new).as_ref());
            loop {
                if let Ok(Some(guard)) = lock.try_lock_for(millis(2)).await {
                    let _ = guard.release().await;
                }
                if let Ok(Ok(guard)) = timeout(millis(5), lock.lock()).await {
                    drop(guard);
                }
                let _ = timeout(millis(3), lock.try_lock_for(Duration::MAX)).await;
                sleep(millis(1)).await;
            }
        });
    }
    let began = Instant::now();
    while began.elapsed() < 5 * LEASE / 2 {
        sleep(millis(50)).await;
        assert!(
            guards.iter().all(|guard| guard.is_held()),
            "after {:?}",
            began.elapsed()
        );
        for lock in &kept {
            assert!(lock.is_taken().await);
        }
    }
    hostile.shutdown().await;
    for (guard, lock) in guards.into_iter().zip(&kept) {
        let (is_held, left) = (guard.is_held(), lock.remaining().await.expect("an answer"));
        let (is_still, asked) = (guard.is_held(), Instant::now());
        let released = guard.release().await;
        let took = asked.elapsed();
        let what = format!("held {is_held}, {is_still}, {left:?} left, released in {took:?}");
        released.unwrap_or_else(|error| panic!("{error}: {what}"));
    }
    is_free(&Lock::new(&redis, "hostile"), 5 * SECOND).await;
    // Everything that the hostile ones took is given back.
    for name in ["kept", "owned", "hostile"] {
        becomes_free(&Lock::new(&redis, name), 2 * SECOND).await;
    }
    check_expiries(&server, &[]);
}

/// Leases that cannot be are errors before anything is asked.
#[tokio::test]
async fn leases_at_their_ends() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let lock = Lock::new(&redis, "ends");
    let nano = Duration::from_nanos(1);
    let wrong = [
        Duration::ZERO,
        nano,
        Lock::MIN_LEASE - nano,
        Lock::MAX_LEASE + nano,
        Duration::MAX,
    ];
    for lease in wrong {
        let errors = [
            lock.lock_for(lease).await.err(),
            lock.clone().lease(lease).lock().await.err(),
            lock.clone().lease(lease).try_lock().await.err(),
            lock.clone()
                .lease(lease)
                .try_lock_for(Duration::MAX)
                .await
                .err(),
            lock.clone()
                .lease(lease)
                .by(&Owner::new())
                .lock()
                .await
                .err(),
        ];
        for error in errors {
            let error = error.unwrap_or_else(|| panic!("{lease:?} is none"));
            assert_eq!(error.kind(), LockErrorKind::Lease, "{lease:?}");
        }
        assert!(!lock.is_taken().await);
    }
    for lease in [Lock::MIN_LEASE, Lock::MAX_LEASE] {
        let guard = lock.clone().lease(lease).holds().await;
        // The shortest one may be over on a busy machine.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), LockErrorKind::NotHeld);
            assert_eq!(lease, Lock::MIN_LEASE);
        }
    }
    for wait in [Duration::ZERO, nano, HOUR, Duration::MAX] {
        let guard = lock.try_lock_for(wait).await.expect("an answer");
        guard.expect("free").release().await.expect("held");
    }
    // A shortest lease that nobody renews is over, and its guard knows before anybody else gets it.
    let short = lock.lock_for(Lock::MIN_LEASE).await.expect("free");
    let next = lock.lock().await.expect("over");
    assert!(!short.is_held());
    let seen = short.release().await.err().map(|error| error.kind());
    assert_eq!(seen, Some(LockErrorKind::NotHeld));
    assert!(next.is_held());
    frees(next).await;
}

/// Taken away by force: the next is woken, the former holder is told, and its guard is harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_away_by_force() {
    let server = Server::start();
    let (redis, abroad) = (handle(&server.url).await, handle(&server.url).await);
    let lock = Lock::new(&redis, "forced").lease(LEASE);
    for round in 0..3 {
        let guard = lock.holds().await;
        let waits = lock.clone();
        let waits = tokio::spawn(async move { waits.lock().await });
        sleep(millis(100)).await;
        let began = Instant::now();
        if round == 0 {
            run(&server, "DEL forced");
        } else {
            assert!(
                Lock::new(&abroad, "forced")
                    .force_unlock()
                    .await
                    .expect("an answer")
            );
            assert!(
                !Lock::new(&abroad, "nobody's")
                    .force_unlock()
                    .await
                    .expect("an answer")
            );
        }
        let next = timeout(millis(2_500), waits)
            .await
            .expect("the next is served");
        let next = next.expect("no panic").expect("free");
        println!("served {:?} after round {round}", began.elapsed());
        timeout(LEASE, guard.lost())
            .await
            .expect("told with the next renewal");
        assert!(!guard.is_held() && next.is_held());
        assert!(next.fencing_token() > guard.fencing_token());
        let error = guard.release().await.expect_err("it was taken away");
        assert_eq!(error.kind(), LockErrorKind::NotHeld);
        assert!(lock.tries().await.is_none(), "law 15: the next has it");
        frees(next).await;
    }
}

/// The server is stopped for longer than the lease: the holder knows before anybody else has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_longer_than_the_lease() {
    let server = Server::start();
    let redis = Redis::connect(&*server.url).await.expect("a server");
    let lock = Lock::new(&redis, "paused").lease(LEASE);
    let guard = lock.holds().await;
    sleep(millis(100)).await;
    server.signal("STOP");
    let began = Instant::now();
    let lost = timeout(LEASE + millis(500), guard.lost()).await;
    let is_held = guard.is_held();
    server.signal("CONT");
    lost.expect("told when the lease is over");
    assert!(!is_held, "after {:?}", began.elapsed());
    let next = timeout(3 * SECOND, lock.lock()).await.expect("over");
    let next = next.expect("free");
    assert!(next.fencing_token() > guard.fencing_token());
    drop(guard);
    sleep(millis(200)).await;
    let lock = Lock::new(&redis.timeout(PATIENT), "paused");
    assert!(next.is_held() && lock.is_taken().await, "law 15");
    frees(next).await;
    check_expiries(&server, &[]);
}

/// Ten thousand when asked for, see the environment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_renews_them_all() {
    let number =
        std::env::var("TIDEGATE_LOCKS").map_or(1_000, |text| text.parse().expect("a number"));
    let server = Server::start();
    let redis = handle(&server.url).await;
    let lease = Duration::from_secs(5);
    let began = Instant::now();
    let taken = (0..number).map(|at| {
        let lock = Lock::new(&redis, &format!("l{at}")).lease(lease);
        async move { lock.holds().await }
    });
    let guards: Vec<LockGuard> = futures_util::future::join_all(taken).await;
    println!("{number} locks taken in {:?}", began.elapsed());
    let mut shortest = lease;
    while began.elapsed() < 2 * lease {
        for at in 0..number {
            let left = server.life(&format!("l{at}"));
            assert!(left > 0, "lock {at} has expired");
            shortest = shortest.min(millis(left.unsigned_abs()));
        }
        sleep(millis(10)).await;
    }
    println!("the shortest that was left of {lease:?}: {shortest:?}");
    assert!(guards.iter().all(LockGuard::is_held));
    let released = Instant::now();
    drop(guards);
    let are_free = async || server.run::<Vec<String>>("KEYS l*").is_empty();
    eventually("all are free", are_free).await;
    println!(
        "{number} locks dropped, and free after {:?}",
        released.elapsed()
    );
}
