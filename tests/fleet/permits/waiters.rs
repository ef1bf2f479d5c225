//! What a thousand requests cost that wait for one permit, and whose turn it is.

use std::sync::Mutex;

use axum::extract::Path;
use kit::workers::lines_of;
use tokio::time::Instant;

use super::*;

/// Of all processes.
const WAITERS: usize = 1_000;
const LEASE: Duration = Duration::from_secs(15);
/// While no permit is free.
const CALLS_A_SECOND: f64 = 5.0;
const WORKER: &str = "permits::waiters::worker_has_waiters";

/// Script calls in a second, for a while.
async fn calls_a_second(redis: &Redis) -> f64 {
    let (before, began) = (redis.script_calls(), Instant::now());
    sleep(Duration::from_secs(4)).await;
    (redis.script_calls() - before) as f64 / began.elapsed().as_secs_f64()
}

/// Requests of one process that wait for a permit of the same key.
struct Process {
    limits: Limits,
    app: Router,
    /// The number of each request in the order in which they were served, and when.
    served: Arc<Mutex<Vec<(usize, u64)>>>,
}

impl Process {
    async fn start(url: &str, max: u64) -> Self {
        let limits = Limits::new([rule(max, LEASE)]).store(store(url).await);
        let layer = limits.layer(PATH).wait(Duration::MAX);
        let layer = layer.max_waiting(4 * WAITERS);
        let served = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&served);
        let handler = move |Path(number): Path<usize>| async move {
            all.lock().expect("no panic").push((number, unix_micros()));
            sleep(millis(1)).await;
        };
        let app = Router::new().route("/{number}", get(handler).layer(layer));
        Self {
            limits,
            app,
            served,
        }
    }

    /// So many requests arrive, and wait until all are served.
    async fn wait(&self, waiters: usize) {
        let asked = (0..waiters).map(|at| kit::http::start(&self.app, 0, &format!("/{at}"), ""));
        for answer in kit::done(asked).await {
            assert_eq!(answer.status, 200);
        }
    }

    async fn all_wait(&self, waiters: usize) {
        while self.limits.snapshot().rules[0].waiting < waiters as u64 {
            sleep(millis(5)).await;
        }
    }

    fn served(&self) -> Vec<(usize, u64)> {
        self.served.lock().expect("no panic").clone()
    }
}

/// As many as all permits, until this is dropped.
async fn holders(process: &Process, max: u64) -> Vec<impl Sized> {
    let asked = (0..max).map(|_| process.limits.check(PATH, Key::default()).into_future());
    let held = join_all(asked).await;
    held.into_iter().map(|it| it.expect("a permit")).collect()
}

/// Has so many wait while all permits are held, and then serves them: calls in a second until then,
/// and calls for each grant.
async fn play<T>(
    redis: &Redis,
    process: &Process,
    max: u64,
    waiters: usize,
    others: impl Future<Output = T>,
) -> (T, f64, f64) {
    let held = holders(process, max).await;
    let look = async {
        process.all_wait(waiters).await;
        let others = others.await;
        // Messages of denials on their way.
        sleep(millis(100)).await;
        let rate = calls_a_second(redis).await;
        drop(held);
        (others, rate, redis.script_calls())
    };
    let ((others, rate, before), ()) = tokio::join!(look, process.wait(waiters));
    (
        others,
        rate,
        (redis.script_calls() - before) as f64 / WAITERS as f64,
    )
}

/// Plays another process, of which half of them are.
#[tokio::test]
#[ignore = "is started by another test"]
async fn worker_has_waiters() {
    let Some(words) = instructions() else { return };
    let process = Process::start(&words[0], 1).await;
    let told = async {
        process.all_wait(WAITERS / 2).await;
        println!("\nall wait");
    };
    tokio::join!(told, process.wait(WAITERS / 2));
    for (number, at) in process.served() {
        println!("served {number} {at}");
    }
}

#[tokio::test]
async fn waiters_of_two_processes_make_progress() {
    let _machine = MACHINE.lock().await;
    let redis = Redis::start();
    let process = Process::start(&redis.url, 1).await;
    // They begin when all permits are held.
    let others = async {
        let mut worker = crate::process::Process::of(WORKER, start_worker(WORKER, &redis.url));
        let started = tokio::task::spawn_blocking(move || {
            worker.line(|line| line == "all wait");
            worker
        });
        started.await.expect("no panic")
    };
    let (worker, rate, _) = play(&redis, &process, 1, WAITERS / 2, others).await;
    let theirs = tokio::task::spawn_blocking(|| worker.rest()).await;
    let theirs = lines_of(&theirs.expect("no panic"), "served")
        .map(|numbers| (numbers[0] as usize, numbers[1]))
        .collect::<Vec<_>>();
    let ours = process.served();
    let last = |served: &[(usize, u64)]| served.last().expect("all").1;
    let first_over = last(&ours).min(last(&theirs));
    let until = |served: &[(usize, u64)]| served.iter().filter(|(_, at)| *at <= first_over).count();
    let (ours_until, theirs_until) = (until(&ours), until(&theirs));
    println!("two processes: {rate:.1} calls a second; {ours_until} and {theirs_until} at the end");
    for served in [&ours, &theirs] {
        assert_eq!(served.len(), WAITERS / 2);
        let numbers = served.iter().map(|(number, _)| *number).enumerate();
        let farthest = numbers.map(|(at, number)| at.abs_diff(number)).max();
        println!("farthest from its turn: {farthest:?}");
        assert!(farthest < Some(10), "{served:?}");
        // Whoever gets its own permit back asks first: the other one gets 3 to 25, the fewer the faster.
        let makes_progress = until(served) > 0;
        assert!(makes_progress, "one process is served before the other");
    }
    assert!(rate <= 2.0 * CALLS_A_SECOND, "{rate}");
}
