//! Law 9: callers that leave at every moment leave no permit, no waiter and no open charge.

use futures_util::poll;

use super::*;

/// A call of one of the forms, which works for some milliseconds.
async fn call_somehow(limits: Limits, form: u64) -> bool {
    let call = call(&limits).wait(PATIENT);
    let work = async || {
        sleep(millis(6)).await;
        true
    };
    let fails = async || {
        sleep(millis(6)).await;
        Err::<(), _>(())
    };
    match form % 4 {
        0 => call.run(work).await.is_ok(),
        1 => {
            let chain = ErrorCallbackChain::default();
            call.run_with(&chain, work).await.is_ok()
        }
        2 => call.try_run(fails).await.is_err(),
        _ => {
            let chain = ErrorCallbackChain::default();
            call.try_run_with(&chain, fails).await.is_err()
        }
    }
}

async fn leave_at_every_moment(limits: &Limits) {
    let mut sent = Vec::new();
    for round in 0..200 {
        let task = tokio::spawn(call_somehow(limits.clone(), round));
        sent.push(tokio::spawn(async move {
            sleep(millis(round % 40)).await;
            if round % 5 > 0 {
                task.abort();
            }
            task.await
        }));
        sleep(millis(1)).await;
    }
    let answers = kit::done(sent).await;
    assert!(answers.iter().flatten().all(|it| *it), "nobody was denied");
    let gone = answers.iter().filter(|it| it.is_err()).count();
    assert!((20..=160).contains(&gone), "{gone} have left");
}

/// Beside permits, a quota that is never used up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_leave_no_permit_and_no_waiter() {
    let (server, _proxy, stores) = stores().await;
    for store in stores {
        let limits = limits(both(100_000, 3), store);
        leave_at_every_moment(&limits).await;
        eventually("nobody waits", async || counted(&limits).waiting == 0).await;
        until_left(&limits, 3).await;
        assert_eq!(permits_held(&server), 0);
        // What failed was given back, and it is told how much of it is.
        assert!(limits.flush(PATIENT).await);
        let counted = counted(&limits);
        assert!(counted.refunds >= 20, "{} refunds", counted.refunds);
        assert_eq!(counted.refunds_lost, 0);
    }
}

/// A call that nobody polls asks nothing, and one that is dropped while it is asked runs nothing.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_awaited_does_nothing() {
    let store = Stub::listening(MemoryStore::new().tokio_clock());
    let store = store.capabilities_fn(|inner| inner.capabilities());
    let limits = limits(both(100_000, 1), store.clone());
    let ran = AtomicBool::new(false);
    let run = async || ran.store(true, Ordering::Relaxed);
    drop(call(&limits).run(run));
    drop(call(&limits));
    drop(limits.check("p", "k").into_future());
    assert_eq!(store.takes().len(), 0);
    let slow = Distant::new(MemoryStore::new().tokio_clock()).ways(1_000, 0);
    let slow = Stub::around(slow).capabilities_fn(|_| MemoryStore::new().capabilities());
    let limits = self::limits(both(100_000, 1), slow);
    {
        let asked = std::pin::pin!(call(&limits).run(run));
        assert!(poll!(asked).is_pending());
    }
    sleep(10 * SECOND).await;
    assert!(!ran.load(Ordering::Relaxed));
    let called = timeout(HOUR, call(&limits).run(run)).await;
    assert!(called.expect("no hang").is_ok(), "the permit is free");
    assert!(ran.load(Ordering::Relaxed));
}
