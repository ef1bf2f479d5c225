//! How long it takes from a release to the lock in another task, of 64 tasks in 4 processes.
//!
//! For figures: `bash tests/run.sh --release --test hostile_lock handover_fleet -- --nocapture`.

use std::time::{SystemTime, UNIX_EPOCH};

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
            let lock = Lock::new(&redis, "turns");
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

#[tokio::test]
async fn the_lock_passes_quickly_between_processes() {
    let server = kit::Redis::start();
    let worker = "handover_fleet::worker_takes_turns";
    let workers = (0..PROCESSES).map(|_| start_worker(worker, &server.url));
    let workers: Vec<_> = workers.collect();
    let outputs = tokio::task::spawn_blocking(|| outputs(workers)).await;
    let outputs = outputs.expect("no panic");
    let lines = outputs.iter().flat_map(|output| output.lines());
    let mut held: Vec<((), u64, u64)> = lines
        .filter_map(|line| line.strip_prefix("held ")?.split_once(' '))
        .map(|(got, released)| {
            let number = |text: &str| text.parse().expect("a number");
            ((), number(got), number(released))
        })
        .collect();
    let overlaps = overlaps(&mut held);
    let mut gaps: Vec<u64> = held
        .windows(2)
        .map(|two| two[1].1.saturating_sub(two[0].2))
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
    assert!(overlaps.is_empty(), "two at a time: {overlaps:?}");
}
