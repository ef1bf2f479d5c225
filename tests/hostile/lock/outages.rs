//! Redis hangs or is away, and what those who wait hear of it.

use crate::*;

const TIMED_OUT: LockErrorKind = LockErrorKind::Store(StoreErrorKind::Timeout);

/// Law: that others have it is known from an answer, and from nothing else.
#[tokio::test]
async fn nobody_knows_who_has_it() {
    let server = Server::start();
    let redis = handle(&server.url).await.timeout(SECOND);
    let lock = Lock::new(&redis, "l");
    run(&server, "HSET l somebody:1 1");
    let stop = async {
        sleep(SECOND / 2).await;
        server.signal("STOP");
    };
    let began = Instant::now();
    let (taken, ()) = tokio::join!(lock.try_lock_for(SECOND + SECOND / 2), stop);
    let took = began.elapsed();
    server.signal("CONT");
    assert_eq!(taken.expect_err("no answer").kind(), TIMED_OUT);
    assert!(took < SECOND * 5 / 2 + HICCUP, "{took:?}");
}

/// Law: the time without an answer is counted from the latest answer. Outages that are each shorter than five seconds do not add up for who waits through them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_do_not_add_up() {
    let server = Server::start();
    let (redis, holder) = (by_default(&server.url).await, handle(&server.url).await);
    let holds = Lock::new(&holder, "outages")
        .lock_for(HOUR)
        .await
        .expect("free");
    let mut waiters = JoinSet::new();
    for at in 0..6 {
        let lock = Lock::new(&redis, "outages");
        let lock = lock.of((at % 2 == 0).then(Owner::new).as_ref());
        waiters.spawn(async move {
            if at % 3 == 0 {
                lock.try_lock_for(HOUR)
                    .await
                    .map(|guard| guard.expect("in time"))
            } else {
                lock.lock().await
            }
        });
    }
    for _ in 0..2 {
        server.signal("STOP");
        sleep(millis(2_800)).await;
        server.signal("CONT");
        sleep(millis(1_200)).await;
    }
    let is_right = waiters.try_join_next().is_none();
    assert!(is_right, "one has given up, or has it");
    frees(holds).await;
    let all = timeout(8 * SECOND, async {
        while let Some(ended) = waiters.join_next().await {
            let guard = ended.expect("no panic").expect("outages do not add up");
            frees(guard).await;
        }
    });
    all.await.expect("all are served");
}
