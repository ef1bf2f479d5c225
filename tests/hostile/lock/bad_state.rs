//! Law 10: names that are hard to bear.

use crate::*;

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
