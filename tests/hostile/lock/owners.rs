//! Guards of one owner, and what they must not do to each other.

use crate::*;

const SOON: Duration = Duration::from_secs(2);

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
