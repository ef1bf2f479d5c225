//! Law 9: callers that leave at every moment leave no permit, no waiter and no open charge.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::{join, join_all};
use futures_util::poll;
use tokio::time::timeout;

use super::*;
use kit::distant::Distant;
use kit::stub::Stub;

/// A call of one of the forms, which works for some milliseconds.
async fn call(limits: Limits, form: u64) -> bool {
    let call = limits.call("p").key("k").wait(PATIENT);
    let work = async || {
        sleep(millis(6)).await;
        true
    };
    let fails = async || {
        sleep(millis(6)).await;
        Err(())
    };
    match form % 4 {
        0 => call.run(work).await.is_ok(),
        1 => {
            let call = call.degrade(async |_| false).on_error(async |_| false);
            call.run(work).await
        }
        2 => call
            .try_run(async || Err::<(), _>(fails().await))
            .await
            .is_err(),
        _ => {
            let call = call.degrade(async |_| Ok(())).on_error(async |_| Ok(()));
            call.try_run(async || fails().await).await.is_err()
        }
    }
}

async fn leave_at_every_moment(limits: &Limits) {
    let mut sent = Vec::new();
    for round in 0..200_u64 {
        let task = tokio::spawn(call(limits.clone(), round));
        sent.push(tokio::spawn(async move {
            sleep(Duration::from_micros(round % 40 * 1_000)).await;
            if round % 5 > 0 {
                task.abort();
            }
            task.await
        }));
        sleep(millis(1)).await;
    }
    let answers = join_all(sent).await.into_iter();
    let answers: Vec<_> = answers.map(|it| it.expect("no panic")).collect();
    assert!(answers.iter().flatten().all(|it| *it), "nobody was denied");
    let gone = answers.iter().filter(|it| it.is_err()).count();
    assert!((20..=160).contains(&gone), "{gone} have left");
}

/// A quota that is never used up, beside the permits.
fn both(max: u64) -> Rule {
    let rule = hourly(100_000).with_max_concurrent(max).expect("valid");
    refunding(rule.with_permit_lease(DAY).expect("valid"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_leave_no_permit_and_no_waiter() {
    let server = Redis::start();
    let (_proxy, stores) = stores(&server).await;
    for store in stores {
        let limits = limits(both(3), store);
        leave_at_every_moment(&limits).await;
        until("nobody waits", async || counted(&limits).waiting == 0).await;
        until("all permits are back", async || left(&limits).await == 3).await;
        assert_eq!(held(&server), 0);
        // What failed was given back, and it is told how much of it is.
        assert!(limits.flush(PATIENT).await);
        let counted = counted(&limits);
        assert!(counted.refunds >= 20, "{} refunds", counted.refunds);
        assert_eq!(counted.refunds_lost, 0);
    }
}

/// A function that is dropped gives nothing back, as one that has ended well does not. Whoever waits
/// is denied at its time, since other processes may give back.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_stays_charged() {
    for drops in [true, false] {
        let limits = paused(refunding(hourly(1)));
        let running = tokio::spawn({
            let call = limits.call("p").key("k");
            async move {
                let work = async || {
                    sleep(millis(300)).await;
                    Ok::<_, ()>(())
                };
                call.try_run(work).await.is_ok()
            }
        });
        tokio::task::yield_now().await;
        let began = Instant::now();
        let wait = limits.call("p").key("k").wait(2 * SECOND);
        let leave = async {
            sleep(millis(200)).await;
            if drops {
                running.abort();
            }
        };
        let (waited, ()) = join(wait.run(async || ()), leave).await;
        assert!(waited.is_err(), "the charge stays");
        assert_eq!(began.elapsed().as_millis() / 10, 200, "dropped: {drops}");
        assert_eq!(
            (left_at_last(&limits).await, counted(&limits).waiting),
            (0, 0)
        );
    }
}

/// The same for one that fails: it gives back, and the waiter runs.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_what_a_failed_function_gives_back() {
    let limits = paused(refunding(hourly(1)));
    let fails = async || {
        sleep(millis(300)).await;
        Err::<(), _>(())
    };
    let call = || limits.call("p").key("k");
    let began = Instant::now();
    let waits = async {
        sleep(millis(1)).await;
        let waited = call().wait(20 * SECOND).run(async || 7).await;
        (waited.ok(), began.elapsed().as_millis() / 10)
    };
    let (_, waited) = join(call().try_run(fails), waits).await;
    assert_eq!(waited, (Some(7), 30));
}

/// A call that nobody polls asks nothing, and one that is dropped while it is asked runs nothing.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_awaited_does_nothing() {
    let store = Stub::listening(MemoryStore::new().tokio_clock());
    let store = store.capabilities_fn(|inner| inner.capabilities());
    let limits = limits(both(1), store.clone());
    let ran = AtomicBool::new(false);
    let run = async || ran.store(true, Ordering::Relaxed);
    drop(limits.call("p").key("k").run(run));
    drop(limits.call("p").key("k"));
    drop(limits.check("p", "k").into_future());
    assert_eq!(store.takes().len(), 0);
    let slow = Distant::new(MemoryStore::new().tokio_clock()).ways(1_000, 0);
    let slow = Stub::around(slow).capabilities_fn(|_| MemoryStore::new().capabilities());
    let limits = self::limits(both(1), slow);
    {
        let asked = std::pin::pin!(limits.call("p").key("k").run(run));
        assert!(poll!(asked).is_pending());
    }
    sleep(10 * SECOND).await;
    assert!(!ran.load(Ordering::Relaxed));
    let call = limits.call("p").key("k").run(run);
    assert!(
        timeout(HOUR, call).await.expect("no hang").is_ok(),
        "the permit is free"
    );
    assert!(ran.load(Ordering::Relaxed));
}

/// Dropped while a callback answers: nothing is held meanwhile, nor afterwards.
#[tokio::test(start_paused = true)]
async fn callers_that_leave_in_a_callback() {
    let limits = paused(both(1));
    let in_callback = AtomicUsize::new(0);
    let hang = async || {
        in_callback.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>().await;
    };
    let call = || {
        let call = limits.call("p").key("k");
        call.degrade(async |_| hang().await)
            .on_error(async |_| hang().await)
    };
    // Each of these is denied while the first one runs, and hangs.
    let first = call().run(async || {
        let many = (0..50).map(|_| timeout(SECOND, call().run(async || ())));
        let hung = join_all(many).await.iter().filter(|it| it.is_err()).count();
        assert_eq!(hung, 50);
    });
    first.await;
    assert_eq!(in_callback.load(Ordering::Relaxed), 50);
    assert_eq!((left(&limits).await, counted(&limits).waiting), (1, 0));
    call().run(async || ()).await;
}
