//! Law 1 and each caller's own answer, with callers that are alone now and in a crowd then, in
//! several runtimes, over several connections.

use tokio::sync::Barrier;

use super::*;

/// Threads with a runtime and a store of their own, and some that share one, each alone in it most
/// of the time: exactly as many are allowed as the quota has.
#[test]
fn several_stores_and_runtimes() {
    const MAX: u64 = 700;
    let server = Redis::start();
    let main = still_runtime();
    for algorithm in Algorithm::ALL {
        // So long that a unit of GCRA takes a day to come back.
        let rule = by(algorithm, "exact", MAX, 24 * HOUR * MAX as u32);
        let home = runtime();
        let shared = home.block_on(connect(&server.url, PATIENT));
        let callers = (0..6).map(|at| {
            let (url, rule, shared) = (server.url.clone(), Arc::clone(&rule), shared.clone());
            std::thread::spawn(move || {
                still_runtime().block_on(async {
                    let store = match at % 2 {
                        0 => shared,
                        _ => connect(&url, PATIENT).await,
                    };
                    let (mine, mut allowed) = (take(&rule, "x"), 0);
                    for round in 0..200 {
                        // Some of them leave, and may be charged.
                        if at == 0 && round % 5 == 0 {
                            drop(polled_once(&store, &mine));
                        }
                        allowed += u64::from(is_allowed(&store.take(&mine).await));
                    }
                    allowed
                })
            })
        });
        let callers: Vec<_> = callers.collect();
        let callers = callers.into_iter();
        let allowed: u64 = callers.map(|caller| caller.join().expect("no panic")).sum();
        let charged = main.block_on(async {
            let store = connect(&server.url, PATIENT).await;
            charged(&store, &take(&rule, "x")).await
        });
        assert_eq!(charged, MAX, "law 14: {algorithm:?}");
        assert!(allowed <= MAX, "law 1: {algorithm:?}, {allowed}");
        assert!(allowed >= MAX - 40, "{algorithm:?}: {allowed} allowed");
        kit::run(&server, "FLUSHALL");
    }
}

/// 64 tasks ask for a hot key and for a key of their own, one of them in one round and all in the
/// next: each has its own answers, and each unit of the hot key is told to one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_and_in_a_crowd() {
    const TASKS: u64 = 64;
    const ROUNDS: u64 = 96;
    let (_server, proxy, store) = far(millis(1)).await;
    let steady = Steady::watch(&proxy).await;
    let barrier = Arc::new(Barrier::new(TASKS as usize));
    let hot = take(&rule("hot", MAX, HOUR), "x");
    let each = (store.clone(), Arc::clone(&barrier), hot.clone());
    let tasks = spawn_each(0..TASKS, each, |at, (store, barrier, hot)| async move {
        let mut own = Bystander::with_cost(&format!("own-{at}"), at + 1);
        let mut told = Vec::new();
        for round in 0..ROUNDS {
            barrier.wait().await;
            let is_alone = round % 2 == 0;
            if is_alone && round / 2 % TASKS != at {
                continue;
            }
            match (round + at) % 3 {
                0 => own.ask(&store).await,
                1 => {
                    let decision = decide(&store, &hot).await;
                    told.push(MAX - decision.remaining());
                }
                _ => {
                    let (decision, ()) = tokio::join!(store.take(&hot), own.ask(&store));
                    told.push(MAX - decision.expect("a decision").remaining());
                }
            }
        }
        told
    });
    let mut told = done(tasks).await.concat();
    told.sort_unstable();
    let each: Vec<_> = (1..=told.len() as u64).collect();
    assert_eq!(told, each, "each unit of the hot key is told once");
    assert_eq!(charged(&store, &hot).await, told.len() as u64);
    steady.check();
}
