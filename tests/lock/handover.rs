//! From one holder to the next.

use kit::lock_oracle::Ledger;

use crate::*;

/// Law: never two at once, and tokens rise from holder to holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_at_a_time() {
    let server = Redis::start();
    let ledger = Ledger::default();
    let mut locks = Vec::new();
    for _ in 0..3 {
        locks.push(lock_of_another(&server).await);
    }
    crowd(24, |at| {
        let (lock, ledger) = (locks[at as usize % 3].clone(), ledger.clone());
        async move {
            for _ in 0..20 {
                let guard = lock.holds().await;
                ledger.pass(&guard).await;
                frees(guard).await;
            }
        }
    })
    .await;
    assert_eq!(ledger.entries(), 24 * 20);
}

/// Those who wait in one process are served in the order in which they came, and one of them asks.
#[tokio::test]
async fn first_come_first_served() {
    let (server, lock) = a_lock().await;
    let guard = lock.holds().await;
    let served = Arc::<Mutex<Vec<u64>>>::default();
    let all = crowd(200, |at| {
        let (lock, served) = (lock.clone(), Arc::clone(&served));
        async move {
            let guard = lock.holds().await;
            served.lock().expect("no panic").push(at);
            frees(guard).await;
        }
    });
    let frees_late = async {
        sleep(millis(300)).await;
        let before = server.script_calls();
        sleep(millis(1_100)).await;
        assert!(server.script_calls() - before <= 3, "they all ask");
        frees(guard).await;
    };
    tokio::join!(all, frees_late);
    assert_eq!(*served.lock().expect("no panic"), Vec::from_iter(0..200));
}

/// Law: a waiter that nobody polls costs the others a second, and no lock.
#[tokio::test]
async fn a_waiter_that_is_not_polled() {
    let (server, lock) = a_lock().await;
    let guard = lock.holds().await;
    let mut pinned = Box::pin(lock.holds());
    assert!(timeout(millis(100), &mut pinned).await.is_err());
    let waiting = waiting(&lock);
    sleep(millis(100)).await;
    frees(guard).await;
    let stopwatch = server.stopwatch();
    let guard = timeout(PATIENT, waiting).await;
    let guard = guard.expect("it does not wait for the other one");
    assert!(stopwatch.waited() < SECOND + HICCUP);
    drop(guard.expect("no panic"));
    drop(pinned.await);
}

/// Law: what is free is granted to whoever asks, and those who wait do not all ask.
#[tokio::test]
async fn a_thousand_waiters() {
    let (server, lock) = a_lock().await;
    let theirs = lock_of_another(&server).await.holds().await;
    let all = crowd(1_000, |at| {
        let lock = lock.clone();
        async move {
            match at % 2 {
                0 => Some(lock.holds().await),
                _ => lock.try_lock_for(60 * SECOND).await.expect("an answer"),
            }
            .expect("it came in time")
            .fencing_token()
        }
    });
    let frees_late = async {
        sleep(millis(1_000)).await;
        let before = server.script_calls();
        frees(theirs).await;
        before
    };
    let (served, before) = tokio::join!(all, frees_late);
    let (calls, served) = (server.script_calls() - before, served.len());
    println!("{calls} calls for {served} hand-overs");
    assert!(calls <= 5 * 1_000, "{calls} calls for {served} hand-overs");
}

/// Who has it does not stand behind those who wait for its release.
#[tokio::test]
async fn an_owner_does_not_wait_for_itself() {
    let (server, lock) = a_lock().await;
    let mine = lock.by(&Owner::new());
    let outer = mine.holds().await;
    let other = waiting(&lock);
    sleep(millis(50)).await;
    let stopwatch = server.stopwatch();
    let inner = timeout(PATIENT, mine.holds()).await.expect("no waiting");
    assert!(stopwatch.waited() < SECOND);
    frees(inner).await;
    frees(outer).await;
    frees(other.await.expect("no panic")).await;
}
