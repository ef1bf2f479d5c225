//! One Rust process, which does what the Java driver does.

use std::time::{Duration, Instant};

use kit::workers::{instructions, numbers};
use kit::{handle, in_tasks, millis};
use tidegate::Redis;
use tidegate::limiter::RateLimiter;
use tidegate::lock::Lock;

use super::calls::{Calls, logged};
use super::random::Caller;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by other tests"]
async fn plays() {
    let Some(words) = instructions() else { return };
    let redis = handle(&words[0]).await;
    println!("\nready");
    if words[1] != "serve" {
        let line = std::io::stdin().read_line(&mut String::new());
        line.expect("a line");
    }
    match &*words[1] {
        "serve" => serve(&redis).await,
        "contend" => contend(&redis, &words[2], numbers(&words)).await,
        "saturate" => saturate(&redis, &words[2], numbers(&words)).await,
        "random" => {
            let [seed, tasks, left] = numbers(&words);
            let callers = (0..tasks).map(|task| Caller::new(&redis, seed, task, left));
            in_tasks(callers.map(Caller::run)).await;
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
                    let numbers = words[2..].iter().map(|it| it.parse().expect("a number"));
                    let numbers: Vec<u64> = numbers.collect();
                    let line = logged(&mut own, words[0], words[1], &numbers).await;
                    println!("{thread}\t{line}");
                }
            });
            queue
        });
        queue.send(call.to_owned()).expect("it listens");
    }
}

async fn contend(redis: &Redis, name: &str, [tasks, lasts, hold_micros]: [u64; 3]) {
    let end = Instant::now() + millis(lasts);
    let tasks = (0..tasks).map(|_| {
        let lock = Lock::new(redis, name);
        async move {
            let (mut holds, mut longest) = (0_u64, Duration::ZERO);
            while Instant::now() < end {
                let asked = Instant::now();
                let guard = lock.lock().await.expect("a lock");
                longest = longest.max(asked.elapsed());
                holds += 1;
                pause(hold_micros).await;
                guard.release().await.expect("it was held");
            }
            (holds, longest.as_micros())
        }
    });
    let (holds, longest): (Vec<_>, Vec<_>) = in_tasks(tasks).await.into_iter().unzip();
    println!("holds {}", holds.iter().sum::<u64>());
    println!("longest {}", longest.iter().max().expect("a task"));
}

async fn saturate(redis: &Redis, name: &str, [tasks, lasts]: [u64; 2]) {
    let end = Instant::now() + millis(lasts);
    let tasks = (0..tasks).map(|_| {
        let limiter = RateLimiter::new(redis, name);
        async move {
            let mut granted = 0;
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                let is_granted = limiter.try_acquire_for(1, left).await;
                granted += u64::from(is_granted.expect("an answer"));
            }
            granted
        }
    });
    println!("granted {}", in_tasks(tasks).await.iter().sum::<u64>());
}

/// To the microsecond, unlike the runtime's timer: as a thread of Java sleeps.
pub(crate) async fn pause(micros: u64) {
    if micros > 0 {
        let pause = move || std::thread::sleep(Duration::from_micros(micros));
        tokio::task::spawn_blocking(pause).await.expect("no panic");
    }
}
