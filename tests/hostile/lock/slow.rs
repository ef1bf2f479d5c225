//! Processes that are slow themselves: each turn of their runtime is longer than the time-out. What
//! they owe is sent all the same, however late they come to it.

use kit::log::Log;

use crate::*;

/// A lock of a process that is slow in such a way.
async fn a_lock(server: &Server, time_out: Duration) -> Lock {
    Lock::new(&handle(&server.url).await.timeout(time_out), "slow")
}

fn is_free(server: &Server) -> bool {
    holds_soon(|| server.run::<u64>("EXISTS slow") == 0)
}

/// In runtimes that are slow in each of these ways.
fn in_slow_runtimes(test: impl AsyncFn(Arc<Server>, Duration, Duration) + Sync) {
    let test = &test;
    std::thread::scope(|threads| {
        for (turn, time_out) in SLOW {
            threads.spawn(move || {
                let server = Arc::new(Server::start());
                still_runtime().block_on(test(server, turn, time_out));
            });
        }
    });
}

/// Does this at the beginning of the first turn, and returns after how many the lock is free.
async fn turns_until_free(
    server: &Arc<Server>,
    turn: Duration,
    act: impl FnOnce() + Send + 'static,
) -> u64 {
    let (server, mut act) = (Arc::clone(server), Some(act));
    let holds = move |passed| {
        act.take().into_iter().for_each(|act| act());
        passed > 1 && is_free(&server)
    };
    turns_until(turn, holds).await
}

#[test]
fn a_guard_is_released_within_two_turns() {
    in_slow_runtimes(async |server, turn, time_out| {
        let guard = a_lock(&server, time_out).await.holds().await;
        let turns = turns_until_free(&server, turn, || drop(guard)).await;
        assert!(turns <= 2, "{turns} turns of {turn:?}");
    });
}

/// Its caller leaves when Redis has not executed it yet.
#[test]
fn a_request_is_given_up_within_two_turns() {
    in_slow_runtimes(async |server, turn, time_out| {
        let lock = a_lock(&server, time_out).await;
        frees(lock.holds().await).await;
        server.signal("STOP");
        let mut asked = Box::pin(async move { lock.lock().await });
        assert!(futures_util::poll!(&mut asked).is_pending());
        // It is sent, and not answered.
        for _ in 0..20 {
            yield_now().await;
        }
        let stopped = Arc::clone(&server);
        let leaves = move || {
            drop(asked);
            stopped.signal("CONT");
        };
        let turns = turns_until_free(&server, turn, leaves).await;
        assert!(turns <= 2, "{turns} turns of {turn:?}");
    });
}

#[test]
fn a_release_that_is_awaited_is_sent() {
    in_slow_runtimes(async |server, turn, time_out| {
        let guard = a_lock(&server, time_out).await.holds().await;
        let released = tokio::spawn(guard.release());
        turns_until_free(&server, turn, || ()).await;
        released.await.expect("no panic").expect("it was held");
    });
}

#[test]
fn leases_are_renewed() {
    in_slow_runtimes(async |server, turn, time_out| {
        // A busy machine makes short turns longer.
        let lease = (12 * turn).max(3 * SECOND);
        let guard = a_lock(&server, time_out).await.lease(lease).holds().await;
        let began = Instant::now();
        let two_leases = move |passed| {
            let is_held = guard.is_held() && server.run::<u64>("EXISTS slow") == 1;
            assert!(is_held, "turn {passed}, after {:?}", began.elapsed());
            began.elapsed() > 2 * lease + lease / 2
        };
        turns_until(turn, two_leases).await;
    });
}

/// What cannot have been sent is not asked about afterwards.
#[tokio::test]
async fn calls_that_were_never_sent_leave_nothing() {
    let mut server = Server::start();
    let redis = handle(&server.url).await;
    let lock = Lock::new(&redis, "slow").lease(Lock::MAX_LEASE);
    let impatient = Lock::new(&redis.timeout(Duration::ZERO), "slow").lease(Lock::MAX_LEASE);
    frees(lock.holds().await).await;
    let (tasks, calls) = (alive_tasks(), server.script_calls());
    for _ in 0..2_000 {
        let asked = impatient.try_lock().await;
        asked.expect_err("there is no time");
    }
    assert_eq!((alive_tasks(), server.script_calls()), (tasks, calls));
    server.kill();
    eventually("it is away", async || {
        lock.try_lock()
            .await
            .is_err_and(|error| error.kind() == LockErrorKind::Store(StoreErrorKind::Unavailable))
    })
    .await;
    let tasks = alive_tasks();
    for _ in 0..2_000 {
        lock.try_lock().await.expect_err("it is away");
    }
    assert!(alive_tasks() <= tasks + 1, "{} tasks", alive_tasks());
}

/// The end of a process: what was dropped is waited for, or counted.
#[test]
fn the_end_of_a_runtime_counts_what_is_lost() {
    let server = Server::start();
    let log = Log::start();
    for is_flushed in [true, false] {
        let runtime = still_runtime();
        runtime.block_on(async {
            let redis = handle(&server.url).await;
            let locks = ["a", "b", "slow"].map(|name| Lock::new(&redis, name));
            drop(join_all(locks.iter().map(LockCalls::holds)).await);
            if is_flushed {
                assert!(redis.flush(PATIENT).await);
            }
        });
        drop(runtime);
        assert_eq!(is_free(&server), is_flushed);
        let lines = log.lines().join("\n");
        let is_told = lines.contains("had no answer when their runtime ended");
        assert_eq!(is_told && lines.contains("calls=3"), !is_flushed, "{lines}");
    }
}

/// Time-outs of 0 to 5 ms, and callers that leave at any moment: they leave no tasks, and no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_of_impatient_callers() {
    let calls: u64 = from_env("TIDEGATE_CALLS", 10_000);
    let server = Server::start();
    let redis = handle(&server.url).await;
    let lock = Lock::new(&redis, "slow").lease(HOUR);
    frees(lock.holds().await).await;
    let ledger = kit::lock_oracle::Ledger::default();
    let tasks = alive_tasks();
    for round in 0..calls / 100 {
        crowd(100, |at| {
            let mut random = Random::new(round * 100 + at);
            let redis = redis.clone().timeout(millis(random.below(6)));
            let lock = Lock::new(&redis, "slow").lease(HOUR);
            let ledger = ledger.clone();
            async move {
                let patience = Duration::from_micros(random.below(8_000));
                let asked = timeout(patience, async {
                    match random.below(3) {
                        0 => lock.try_lock().await,
                        1 => lock.lock().await.map(Some),
                        _ => lock.try_lock_for(millis(random.below(6))).await,
                    }
                });
                if let Ok(Ok(Some(guard))) = asked.await {
                    ledger.pass(&guard).await;
                }
            }
        })
        .await;
    }
    let left = alive_tasks();
    println!(
        "{} had it, {} tasks more",
        ledger.entries(),
        left as i64 - tasks as i64
    );
    crate::is_free(&lock, 3 * SECOND).await;
    assert!(left <= tasks + 64, "{left} tasks, {tasks} before");
    assert!(ledger.entries() > 0);
    // One makes the calls that no caller waits for, and one listens to channels.
    eventually("the tasks end", async || alive_tasks() <= tasks + 2).await;
}
