//! Leases: hostile settings beside the watchdog, and many that are renewed at once.

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
