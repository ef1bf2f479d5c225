//! What a function finds of its charge: its own, whatever else runs in its task, and once.

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::*;

fn found() -> u64 {
    let charges = Charges::current();
    assert!(charges.len() <= 1);
    charges.iter().map(|it| it.receipt().units()).sum()
}

fn call(limits: &Limits, cost: u64) -> Call {
    limits.call("p").key("k").cost(cost)
}

/// Costs that nobody else has, in a task with others, that moves between threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn each_finds_its_own() {
    let (_server, _proxy, stores) = stores().await;
    for store in stores {
        let limits = limits(hourly(1_000_000), store);
        let one = |limits: Limits, cost: u64| async move {
            let work = call(&limits, cost).run(async || {
                assert_eq!(found(), cost);
                yield_now().await;
                let inner = call(&limits, 1_000 + cost).run(async || {
                    sleep(millis(cost % 3)).await;
                    assert_eq!(found(), 1_000 + cost);
                    Charges::current().settle(1).await.expect("an answer")
                });
                let beside = async {
                    for _ in 0..9 {
                        assert_eq!(found(), cost);
                        yield_now().await;
                    }
                };
                join(inner, beside).await.0.expect("room");
                assert_eq!(found(), cost);
                assert_eq!(tokio::spawn(async { found() }).await.expect("no panic"), 0);
                let settled = Charges::current().settle(1).await;
                assert_eq!(settled.expect("an answer").given_back, cost - 1);
            });
            work.await.expect("room");
            assert_eq!(found(), 0);
        };
        let tasks = (0..6).map(|task| {
            let limits = limits.clone();
            async move {
                let calls = (1..=10).map(|at| one(limits.clone(), 10 * task + at));
                if task % 2 == 0 {
                    join_all(calls).await;
                } else {
                    let calls = FuturesUnordered::from_iter(calls);
                    calls.collect::<Vec<()>>().await;
                }
                assert_eq!(found(), 0);
            }
        });
        kit::in_tasks(tasks).await;
        assert_eq!(left_at_last(&limits).await, 1_000_000 - 120);
    }
}

/// What a function returns, and a callback in its place, run no function.
#[tokio::test(start_paused = true)]
async fn the_function_and_nothing_behind_it() {
    let limits = paused(hourly(100));
    let later = call(&limits, 7).run(async || async { found() }).await;
    assert_eq!(later.expect("room").await, 0);
    let denied = call(&limits, 200).run(async || 1).await;
    let denied = denied.expect_err("used up");
    let answer = denied.answer_by(async |_| found(), async |_| 1);
    assert_eq!(answer.await, 0);
    // A check has its charge in its answer.
    let check = call(&limits, 7).run(async || {
        let admitted = limits.check("p", "k").cost(3).await.expect("room");
        (admitted.charge.expect("charged").receipt().units(), found())
    });
    assert_eq!(check.await.expect("room"), (3, 7));
}

struct Last(Arc<Mutex<Vec<u64>>>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.lock().expect("no panic").push(found());
    }
}

/// What is dropped with a function finds its charge, or none: no other call's.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_finds_no_other_charge() {
    let limits = paused(hourly(1_000));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hangs = || {
        let last = Last(Arc::clone(&seen));
        call(&limits, 7).run(async || {
            let _last = last;
            sleep(HOUR).await;
        })
    };
    assert!(timeout(millis(1), hangs()).await.is_err());
    let outer = call(&limits, 9).run(async || {
        assert!(timeout(millis(1), hangs()).await.is_err());
        found()
    });
    assert_eq!(outer.await.expect("room"), 9);
    let seen = seen.lock().expect("no panic");
    assert!(seen.iter().all(|it| [0, 7].contains(it)), "{seen:?}");
}

/// A panic ends what its function finds, and its caller finds its own charge again.
#[tokio::test(start_paused = true)]
async fn panics_leave_nothing() {
    let limits = paused(hourly(1_000));
    let check_panic = async |at: u64| {
        let work = call(&limits, 7).run(async move || {
            yield_now().await;
            assert!(at > 5, "in the function");
        });
        assert!(panics(work).await);
    };
    check_panic(1).await;
    assert_eq!(found(), 0);
    let never = || -> std::future::Ready<()> { panic!("at once") };
    assert!(panics(call(&limits, 7).run(never)).await);
    assert_eq!(found(), 0);
    let outer = call(&limits, 9).run(async || {
        check_panic(2).await;
        let here = found();
        let inner = call(&limits, 3).run(async || found()).await;
        (here, inner.expect("room"))
    });
    assert_eq!(outer.await.expect("room"), (9, 3));
}

/// A function that is no future yet runs as a function of the call, too.
#[tokio::test(start_paused = true)]
async fn the_part_that_is_no_future_yet() {
    let limits = paused(hourly(1_000));
    let at_once = || call(&limits, 7).run(|| std::future::ready(found()));
    assert_eq!(at_once().await.expect("room"), 7);
    let outer = call(&limits, 9).run(async || at_once().await.expect("room"));
    assert_eq!(outer.await.expect("room"), 7);
}
