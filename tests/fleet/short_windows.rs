//! Three processes with four tasks each ask for windows of 1 to 130 ms: by the stamps of the
//! receipts, no window holds more than max.
//!
//! Stamps are readings of the machine's real-time clock. If that steps back, windows of stamps may
//! hold more (see docs/guarantees.md). So each run compares the real-time clock with the monotonic
//! clock. A run in which the real-time clock steps back is printed, and does not count.
//!
//! `TIDEGATE_SHORT_WINDOWS` is the number of runs that count.

use std::thread::JoinHandle;
use std::time::SystemTime;

use kit::windows::{Grant, Limit, fullest_window, grants_of, lines_of, violation};

use crate::*;

const PROCESSES: usize = 3;
const TASKS: u64 = 4;
const LASTS: Duration = Duration::from_millis(700);

/// One limit for each algorithm, in the run with this number.
fn limits(run: u64) -> Vec<Limit> {
    let mut random = Random::new(run);
    let mut up_to = |most: [u64; 3]| {
        let most = most[usize::try_from(random.below(3)).expect("an index")];
        1 + random.below(most)
    };
    let limits = Algorithm::ALL.map(|algorithm| {
        let max = up_to([3, 20, 200]);
        Limit::new(algorithm, max, 1_000 * up_to([3, 20, 130]))
    });
    let mut limits = limits.to_vec();
    limits.retain(|limit| limit.algorithm != Algorithm::FixedWindow || !is_hasty(run));
    limits
}

/// Whether callers in this run give up after the default time-out. A grant that nobody hears of may
/// begin a fixed window, so such runs have no fixed window.
const fn is_hasty(run: u64) -> bool {
    run % 2 == 1
}

/// Asks for limits at random, and waits after some of the denials.
async fn ask(store: Arc<dyn Store>, run: u64, task: u64, until: Instant) -> Vec<(u64, Grant)> {
    let take = |limit: Limit| limit.take(&format!("{} {run}", limit.algorithm.name()));
    let takes: Vec<_> = limits(run).into_iter().map(take).collect();
    let mut random = Random::new(run * 1_000 + task);
    let mut grants = Vec::new();
    while Instant::now() < until {
        let limit = random.below(takes.len() as u64);
        let cost = 1 + random.below(3);
        let take = takes[limit as usize].clone().with_cost(cost);
        let decision = match store.take(&take).await {
            Ok(decision) => decision,
            Err(_) if is_hasty(run) => continue,
            Err(error) => panic!("{error}"),
        };
        if let Some(receipt) = decision.receipt() {
            let stamp = receipt.stamp();
            grants.push((limit, Grant { stamp, cost }));
        } else if random.is(20) {
            tokio::time::sleep(decision.retry_after().unwrap_or_default()).await;
        }
    }
    grants
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by another test"]
async fn worker_asks_for_short_windows() {
    let Some(words) = instructions() else { return };
    let [run, process] = numbers(&words);
    let mut store = store(&words[0]).await;
    if is_hasty(run) {
        store = Arc::new(RedisStore::connect(&words[0]).await.expect("a server"));
    }
    let until = Instant::now() + LASTS;
    let tasks = (0..TASKS).map(|task| process * TASKS + task);
    let tasks = tasks.map(|task| ask(store.clone(), run, task, until));
    print!("{}", lines_of(in_tasks(tasks).await.into_iter().flatten()));
}

/// Compares the machine's real-time clock with its monotonic clock in a thread.
struct ClockWatch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl ClockWatch {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (is_over, epoch) = (ends.clone(), Instant::now());
        let thread = std::thread::spawn(move || {
            let (mut steps, mut before) = (Vec::new(), difference(epoch));
            loop {
                let is_last = is_over.load(Ordering::Acquire);
                let after = difference(epoch);
                // Each difference is exact to ten microseconds. A smaller step hardly matters.
                if after < before - 20_000 {
                    let (by, at) = (before - after, SystemTime::UNIX_EPOCH.elapsed());
                    steps.push(format!("{by} ns before {at:?}"));
                }
                before = after;
                if is_last {
                    return steps;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { ends, thread }
    }

    /// Stops watching. Returns the steps back.
    fn end(self) -> Vec<String> {
        self.ends.store(true, Ordering::Release);
        self.thread.join().expect("no panic")
    }
}

/// The real time minus the elapsed time, in nanoseconds, both read within ten microseconds.
fn difference(epoch: Instant) -> i128 {
    let nanos = |time: Duration| i128::try_from(time.as_nanos()).expect("not so long");
    for _ in 0..100_000 {
        let before = epoch.elapsed();
        let real = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        if epoch.elapsed() - before < Duration::from_micros(10) {
            return nanos(real) - nanos(before);
        }
    }
    panic!("clocks take too long to read");
}

/// Law 1 in the shortest windows, where a microsecond matters.
#[test]
fn no_short_window_is_ever_above_its_quota() {
    let _machine = MACHINE.blocking_lock();
    let server = Redis::start();
    let runs: u64 = from_env("TIDEGATE_SHORT_WINDOWS", 3);
    let (mut run, mut good, mut full, mut all) = (0, 0, 0, 0);
    while good < runs {
        assert!(run < 10 + 2 * runs, "the clock goes back all the time");
        let watch = ClockWatch::start();
        let worker = "short_windows::worker_asks_for_short_windows";
        let workers = start_workers(worker, PROCESSES, |process| {
            format!("{} {run} {process}", server.url)
        });
        let mut grants = grants_of(&outputs(workers));
        let steps = watch.end();
        let mut broken = Vec::new();
        for (index, limit) in (0..).zip(limits(run)) {
            let grants = grants.remove(&index).unwrap_or_default();
            let violation = violation(limit, &grants);
            broken.extend(violation.map(|found| format!("{found}, {limit:?}, run {run}")));
            full += u64::from(fullest_window(&grants, limit.window) >= limit.max);
            all += grants.len();
        }
        if steps.is_empty() {
            assert!(broken.is_empty(), "the clock did not go back: {broken:?}");
            good += 1;
        } else {
            println!("the clock went back: {steps:?}, {broken:?}");
        }
        run += 1;
    }
    println!("{runs} runs, {all} grants, {full} limits were reached");
    assert!(full >= runs, "{full}: this test asked for too little");
}
