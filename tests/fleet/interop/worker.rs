//! One Rust process, which does what the Java driver does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::workers::instructions;
use tidegate::Redis;
use tidegate::limiter::RateLimiter;
use tidegate::lock::Lock;
use tokio::task::JoinSet;

use super::calls::{Calls, logged};
use super::random::Caller;

#[test]
#[ignore = "is started by other tests"]
fn plays() {
    let Some(words) = instructions() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(play(&words));
}

async fn play(words: &[String]) {
    let redis = Redis::connect(&words[0]).await.expect("a running server");
    let redis = redis.timeout(Duration::from_secs(20));
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    println!("\nready");
    match &*words[1] {
        "serve" => serve(&redis).await,
        "contend" => {
            wait_for_line();
            contend(&redis, &words[2], number(3), millis(number(4)), number(5)).await;
        }
        "saturate" => {
            wait_for_line();
            saturate(&redis, &words[2], number(3), millis(number(4))).await;
        }
        "random" => {
            wait_for_line();
            let callers =
                (0..number(3)).map(|task| Caller::new(&redis, number(2), task, number(4)));
            let mut all: JoinSet<_> = callers.map(Caller::run).collect();
            while all
                .join_next()
                .await
                .transpose()
                .expect("no panic")
                .is_some()
            {}
        }
        mode => panic!("{mode}"),
    }
}

/// Lines "thread call name numbers..." until the input ends; calls of a thread run in order.
async fn serve(redis: &Redis) {
    let mut threads = std::collections::HashMap::new();
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok);
        lines.map_while(|line| sender.send(line).ok()).count()
    });
    while let Some(line) = lines.recv().await {
        let (thread, call) = line.split_once(' ').expect("a call");
        let queue = threads.entry(thread.to_owned()).or_insert_with(|| {
            let (queue, mut calls) = tokio::sync::mpsc::unbounded_channel::<String>();
            let (redis, thread) = (redis.clone(), thread.to_owned());
            tokio::spawn(async move {
                let mut own = Calls::new(&redis);
                while let Some(call) = calls.recv().await {
                    let words: Vec<_> = call.split(' ').collect();
                    let numbers: Vec<u64> = words[2..]
                        .iter()
                        .map(|it| it.parse().expect("a number"))
                        .collect();
                    let line = logged(&mut own, words[0], words[1], &numbers).await;
                    println!("{thread}\t{line}");
                }
            });
            queue
        });
        queue.send(call.to_owned()).expect("it listens");
    }
}

async fn contend(redis: &Redis, name: &str, tasks: u64, lasts: Duration, hold_micros: u64) {
    let (holds, longest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let end = Instant::now() + lasts;
    let mut all = JoinSet::new();
    for _ in 0..tasks {
        let lock = Lock::new(redis, name);
        let (holds, longest) = (Arc::clone(&holds), Arc::clone(&longest));
        all.spawn(async move {
            while Instant::now() < end {
                let asked = Instant::now();
                let guard = lock.lock().await.expect("a lock");
                let waited = u64::try_from(asked.elapsed().as_micros()).expect("a short wait");
                longest.fetch_max(waited, Ordering::Relaxed);
                holds.fetch_add(1, Ordering::Relaxed);
                pause(hold_micros).await;
                guard.release().await.expect("it was held");
            }
        });
    }
    while all
        .join_next()
        .await
        .transpose()
        .expect("no panic")
        .is_some()
    {}
    println!("holds {}", holds.load(Ordering::Relaxed));
    println!("longest {}", longest.load(Ordering::Relaxed));
}

async fn saturate(redis: &Redis, name: &str, tasks: u64, lasts: Duration) {
    let granted = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + lasts;
    let mut all = JoinSet::new();
    for _ in 0..tasks {
        let limiter = RateLimiter::new(redis, name);
        let granted = Arc::clone(&granted);
        all.spawn(async move {
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                if limiter.try_acquire_for(1, left).await.expect("an answer") {
                    granted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while all
        .join_next()
        .await
        .transpose()
        .expect("no panic")
        .is_some()
    {}
    println!("granted {}", granted.load(Ordering::Relaxed));
}

/// To the microsecond, unlike the runtime's timer: as a thread of Java sleeps.
pub(crate) async fn pause(micros: u64) {
    if micros > 0 {
        let pause = move || std::thread::sleep(Duration::from_micros(micros));
        tokio::task::spawn_blocking(pause).await.expect("no panic");
    }
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn wait_for_line() {
    std::io::stdin()
        .read_line(&mut String::new())
        .expect("a line");
}
