//! From one holder to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::Redis;
use redis::cmd;
use tidegate::lock::{Lock, Owner};
use tokio::sync::Mutex;

use crate::{HICCUP, process};

/// Law: never two at once, and tokens rise from holder to holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time() {
    let server = Redis::start();
    let inside = Arc::new(AtomicU64::new(0));
    let highest = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let redis = process(&server).await;
        for _ in 0..8 {
            let lock = Lock::new(&redis, "l");
            let (inside, highest) = (inside.clone(), highest.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = lock.lock().await.expect("a lock");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    let token = guard.fencing_token();
                    assert!(highest.swap(token, Ordering::SeqCst) < token);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.expect("it was held");
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// Those who wait in one process are served in the order in which they came, and one of them asks.
#[tokio::test]
async fn first_come_first_served() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    let guard = lock.lock().await.expect("a lock");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for at in 0..200 {
        let (lock, served) = (lock.clone(), served.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.expect("a lock");
            served.lock().await.push(at);
            guard.release().await.expect("it was held");
        }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut admin = server.connection();
    let before = calls(&mut admin);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(calls(&mut admin) - before <= 3, "they all ask");
    guard.release().await.expect("it was held");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(*served.lock().await, (0..200).collect::<Vec<_>>());
}

/// Law: a waiter that nobody polls costs the others a second, and no lock.
#[tokio::test]
async fn a_waiter_that_is_not_polled() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    let guard = lock.lock().await.expect("a lock");
    let mut pinned = Box::pin(lock.lock());
    assert!(
        tokio::time::timeout(Duration::from_millis(100), &mut pinned)
            .await
            .is_err()
    );
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.expect("a lock") }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.release().await.expect("it was held");
    let guard = tokio::time::timeout(Duration::from_secs(1) + HICCUP, waiting).await;
    let guard = guard.expect("it does not wait for the other one");
    drop(guard.expect("no panic"));
    drop(pinned.await.expect("a lock"));
}

/// Law: what is free is granted to whoever asks, and those who wait do not all ask.
#[tokio::test]
async fn a_thousand_waiters() {
    let server = Redis::start();
    let redis = process(&server).await;
    let other = process(&server).await;
    let theirs = Lock::new(&other, "l").lock().await.expect("a lock");
    let lock = Lock::new(&redis, "l");
    let waiting: Vec<_> = (0..1_000)
        .map(|at| {
            let lock = lock.clone();
            tokio::spawn(async move {
                match at % 2 {
                    0 => Some(lock.lock().await.expect("a lock")),
                    _ => lock
                        .try_lock_for(Duration::from_secs(60))
                        .await
                        .expect("an answer"),
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut admin = server.connection();
    let before = calls(&mut admin);
    theirs.release().await.expect("it was held");
    let mut served = 0;
    for task in waiting {
        drop(task.await.expect("no panic").expect("it came in time"));
        served += 1;
    }
    let calls = calls(&mut admin) - before;
    println!("{calls} calls for {served} hand-overs");
    assert!(calls <= 5 * 1_000, "{calls} calls for {served} hand-overs");
}

fn calls(admin: &mut redis::Connection) -> u64 {
    let info: redis::InfoDict = cmd("INFO").arg("commandstats").query(admin).expect("stats");
    let stats: String = info.get("cmdstat_evalsha").expect("calls");
    let calls = stats.split(['=', ',']).nth(1).expect("a number");
    calls.parse().expect("a number")
}

/// Who has it does not stand behind those who wait for its release.
#[tokio::test]
async fn an_owner_does_not_wait_for_itself() {
    let server = Redis::start();
    let redis = process(&server).await;
    let lock = Lock::new(&redis, "l");
    let mine = lock.by(&Owner::new());
    let outer = mine.lock().await.expect("a lock");
    let other = tokio::spawn(async move { lock.lock().await.expect("a lock") });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let inner = tokio::time::timeout(Duration::from_secs(1), mine.lock()).await;
    let inner = inner.expect("no waiting").expect("a lock");
    inner.release().await.expect("it was held");
    outer.release().await.expect("it was held");
    other
        .await
        .expect("no panic")
        .release()
        .await
        .expect("it was held");
}

/// How long it takes from a release in one process to the lock in another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_over_is_quick() {
    let server = Redis::start();
    let processes = [process(&server).await, process(&server).await];
    let mut times = Vec::new();
    for round in 0..300 {
        let [one, other] = [0, 1].map(|at| Lock::new(&processes[(round + at) % 2], "l"));
        let guard = one.lock().await.expect("a lock");
        let waiting = tokio::spawn(async move {
            let guard = other.lock().await.expect("a lock");
            (guard, Instant::now())
        });
        tokio::time::sleep(Duration::from_millis(3)).await;
        let began = Instant::now();
        guard.release().await.expect("it was held");
        let (guard, got) = waiting.await.expect("no panic");
        times.push(got.saturating_duration_since(began));
        guard.release().await.expect("it was held");
    }
    times.sort();
    let of = |share: f64| times[(times.len() as f64 * share) as usize];
    println!(
        "hand-over: p50 {:?}, p99 {:?}, most {:?}",
        of(0.5),
        of(0.99),
        of(0.9999)
    );
    assert!(of(0.99) < Duration::from_millis(300), "{:?}", of(0.99));
}
