//! How long it takes from a release to the lock in another task, of 64 tasks in 4 processes.
//!
//! For figures: `bash tests/run.sh --release --test hostile_lock handover_fleet -- --nocapture`.

use std::time::{SystemTime, UNIX_EPOCH};

use kit::cluster::Plan;
use kit::lock_oracle::overlaps;
use tokio::time::Instant;

use crate::*;

const PROCESSES: usize = 4;
const TASKS: usize = 16;

fn lasts() -> Duration {
    let seconds = std::env::var("TIDEGATE_HANDOVER_SECONDS");
    Duration::from_secs(seconds.map_or(2, |seconds| seconds.parse().expect("a number")))
}

fn micros() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("later than 1970").as_micros()
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_takes_turns() {
    let Some(words) = instructions() else { return };
    let redis = Redis::connect(&words[0]).await.expect("a running server");
    let redis = redis.timeout(20 * SECOND);
    let until = Instant::now() + lasts();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let lock = Lock::new(&redis, &words[1]);
            tokio::spawn(async move {
                let mut held = Vec::new();
                while Instant::now() < until {
                    let guard = lock.holds().await;
                    let got = micros();
                    sleep(millis(1)).await;
                    held.push((got, micros()));
                    frees(guard).await;
                }
                held
            })
        })
        .collect();
    for task in tasks {
        for (got, released) in task.await.expect("no panic") {
            println!("\nheld {got} {released}");
        }
    }
}

/// Each hold of `processes` that want this lock: when it began and ended in microseconds, and which
/// process had it, in order.
async fn holds(url: &str, lock: &str, processes: usize) -> Vec<(u64, u64, usize)> {
    let worker = "handover_fleet::worker_takes_turns";
    let words = format!("{url} {lock}");
    let workers = start_workers(worker, processes, |_| words.clone());
    let outputs = tokio::task::spawn_blocking(|| outputs(workers)).await;
    let outputs = outputs.expect("no panic");
    let of_process = |(process, output): (usize, &String)| {
        let held = kit::workers::lines_of(std::slice::from_ref(output), "held");
        let held = held.map(|times| (times[0], times[1], process));
        held.collect::<Vec<_>>()
    };
    let mut held: Vec<_> = outputs.iter().enumerate().flat_map(of_process).collect();
    held.sort_unstable();
    let mut all: Vec<_> = held.iter().map(|held| ((), held.0, held.1)).collect();
    let overlaps = overlaps(&mut all);
    assert!(overlaps.is_empty(), "two at a time: {overlaps:?}");
    held
}

#[tokio::test]
async fn the_lock_passes_quickly_between_processes() {
    let server = kit::Redis::start();
    let held = holds(&server.url, "turns", PROCESSES).await;
    let mut gaps: Vec<u64> = held
        .windows(2)
        .map(|two| two[1].0.saturating_sub(two[0].1))
        .collect();
    gaps.sort_unstable();
    let of = |percent: usize| gaps[gaps.len() * percent / 100] as f64 / 1_000.0;
    println!(
        "64 waiters in 4 processes: {} holds, hand-over p50 {:.2} ms, p99 {:.2} ms",
        held.len(),
        of(50),
        of(99)
    );
    assert!(held.len() > 100, "{}", held.len());
    assert!(of(99) < 500.0, "{}", of(99));
}

/// Two processes take turns at a lock, on one server and at whichever master: each has half of the
/// holds, in runs of at most 16 holds or 30 ms, except for those of a busy machine.
#[tokio::test]
async fn processes_take_turns_at_each_master_of_a_cluster() {
    let (server, cluster) = (kit::Redis::start(), Cluster::start(&Plan::default()));
    let of_master = |master| (cluster.url(), cluster.key_at(master, "turns"));
    let alone = (server.url.clone(), "alone".to_owned());
    for (url, lock) in [alone].into_iter().chain((0..3).map(of_master)) {
        let held = holds(&url, &lock, 2).await;
        // While both want it.
        let (first, last) = (held[0].2, held[held.len() - 1].2);
        let from = held.iter().position(|held| held.2 != first);
        let until = held.iter().rposition(|held| held.2 != last);
        let held = &held[from.expect("both")..=until.expect("both")];
        let runs = held.chunk_by(|one, next| one.2 == next.2);
        let lengths = runs.map(|run| (run.len(), run[run.len() - 1].1 - run[0].0));
        let lengths: Vec<_> = lengths.collect();
        let is_long = |run: &&(usize, u64)| run.0 > 16 && run.1 > 30_000;
        let (runs, long) = (lengths.len(), lengths.iter().filter(is_long).count());
        let of_first = held.iter().filter(|held| held.2 == 0).count();
        let (holds, share) = (held.len(), 100 * of_first / held.len());
        let most = lengths.iter().map(|run| run.0).max().expect("a run");
        let longest = lengths.iter().map(|run| run.1).max().expect("a run");
        println!(
            "{lock}: {holds} holds, {share} % by one; {runs} runs, of up to {most} holds and \
             {longest} us, {long} too long"
        );
        assert!((30..=70).contains(&share), "{share} %");
        assert!(runs >= 20 && long * 10 <= runs, "{lengths:?}");
    }
}
