//! Who waits for a lock gets it in bounded time, whatever other waiters do.

use kit::lock_oracle::Ledger;

use crate::*;

/// A waiter that gives up just when it is its turn does not swallow the wake-up of the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_for_who_has_just_left() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    let lock = Lock::new(&redis, "woken");
    let mut longest = Duration::ZERO;
    for round in 0..40_u64 {
        let guard = Lock::new(&abroad, "woken").holds().await;
        let hasty: Vec<_> = (0..3)
            .map(|at| {
                let lock = lock.clone();
                let patience = millis(37) + Duration::from_micros(round * 190 + at * 40);
                tokio::spawn(async move { drop(timeout(patience, lock.lock()).await) })
            })
            .collect();
        sleep(millis(5)).await;
        let patient = lock.clone();
        let patient = tokio::spawn(async move {
            let guard = patient.holds().await;
            let served = Instant::now();
            frees(guard).await;
            served
        });
        sleep(millis(35)).await;
        let freed = Instant::now();
        frees(guard).await;
        let served = timeout(5 * SECOND, patient).await;
        let served = served.expect("law 13").expect("no panic");
        longest = longest.max(served.saturating_duration_since(freed));
        for hasty in hasty {
            hasty.await.expect("no panic");
        }
    }
    println!("served within {longest:?}");
    assert!(longest < millis(800), "a wake-up is lost: {longest:?}");
    check_expiries(&server, &[]);
}

/// Patient waiters among hasty ones, in two processes: one at a time, and all are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patient_waiters_among_hasty_ones() {
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    let ledger = Ledger::default();
    let mut hasty = JoinSet::new();
    for at in 0..12_u64 {
        let lock = Lock::new(&handles[at as usize % 2], "hasty");
        let ledger = ledger.clone();
        hasty.spawn(async move {
            for round in 0_u64.. {
                let patience = Duration::from_micros((at * 131 + round * 977) % 12_000);
                if let Ok(guard) = timeout(patience, lock.lock()).await {
                    let guard = guard.expect("an answer");
                    ledger.enter(&guard);
                    ledger.leave();
                }
                sleep(millis(10)).await;
            }
        });
    }
    let mut patient = JoinSet::new();
    for at in 0..8 {
        let (lock, ledger) = (Lock::new(&handles[at % 2], "hasty"), ledger.clone());
        patient.spawn(async move {
            for _ in 0..4 {
                let guard = lock.holds().await;
                ledger.enter(&guard);
                sleep(millis(3)).await;
                ledger.leave();
                frees(guard).await;
            }
        });
    }
    let all = timeout(20 * SECOND, async {
        while let Some(ended) = patient.join_next().await {
            ended.expect("one at a time");
        }
    });
    all.await.expect("law 13: the patient are served");
    hasty.shutdown().await;
    is_free(&Lock::new(&handles[0], "hasty"), 3 * SECOND).await;
    check_expiries(&server, &[]);
}

/// Law 13: waiters with hostile time-outs stand before those with sane ones, which are served all
/// the same, and told in time that Redis hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_hostile_time_outs() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    for time_out in [
        Duration::ZERO,
        Duration::from_nanos(1),
        millis(1),
        Duration::MAX,
    ] {
        let holds = Lock::new(&abroad, "hostile").holds().await;
        let mut hostile = JoinSet::new();
        for _ in 0..6 {
            let lock = Lock::new(&redis.clone().timeout(time_out), "hostile");
            hostile.spawn(async move {
                loop {
                    drop(lock.lock().await);
                    sleep(millis(1)).await;
                }
            });
        }
        sleep(millis(50)).await;
        let sane = (0..4).map(|_| {
            let lock = Lock::new(&redis, "hostile");
            tokio::spawn(async move { is_free(&lock, PATIENT).await })
        });
        let sane: Vec<_> = sane.collect();
        sleep(millis(100)).await;
        server.signal("STOP");
        let bounded = Lock::new(&redis.clone().timeout(millis(200)), "hostile");
        let asked = Instant::now();
        let answer = timeout(5 * SECOND, bounded.try_lock_for(millis(100))).await;
        server.signal("CONT");
        let answer = answer.unwrap_or_else(|_| panic!("law 6, behind {time_out:?}"));
        assert!(answer.is_err(), "behind {time_out:?}");
        let took = asked.elapsed();
        assert!(took < 3 * SECOND, "law 6: {took:?}");
        frees(holds).await;
        for sane in sane {
            sane.await
                .unwrap_or_else(|_| panic!("law 13, behind {time_out:?}"));
        }
        hostile.shutdown().await;
    }
    check_expiries(&server, &[]);
}
