//! Leases: hostile settings beside the watchdog.

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
