//! Four processes that ask for more than there is, in every way that there is: no interval ever
//! holds more than the rate, nothing is left unused, and what they were told is what was granted.
//!
//! `TIDEGATE_FLEET_SECONDS` makes it so much longer.

use std::fmt::Write as _;

use tokio::time::Instant;

use crate::*;

const PROCESSES: u64 = 4;
const TASKS: u64 = 16;
const RATES: [u64; 4] = [1, 3, 10, 100];
const INTERVALS: [u64; 3] = [50, 300, 1_000];

fn limits() -> impl Iterator<Item = (u64, u64)> + Clone {
    INTERVALS
        .into_iter()
        .flat_map(|interval| RATES.map(|rate| (rate, interval)))
}

fn name((rate, interval): (u64, u64)) -> String {
    format!("{rate}/{interval}")
}

pub(crate) fn lasts() -> Duration {
    let more = std::env::var("TIDEGATE_FLEET_SECONDS").map(|text| text.parse::<u64>());
    Duration::from_secs(4 + more.map_or(0, |number| number.expect("a number")))
}

/// Whether what was granted is released at times. Of what is released, it may be the permits of
/// somebody who is gone and about to give them back; these come back after the interval.
fn releases(rate: u64) -> bool {
    rate == 3 || rate == 100
}

/// One way to ask at random, for as long as there is time, and how many permits were kept.
async fn ask(limiter: &RateLimiter, random: &mut Random, limit: (u64, u64)) -> u64 {
    let (rate, interval) = limit;
    let permits = 1 + random.below(rate.min(5));
    let short = Duration::from_micros(random.below(2 * interval * 1_000));
    let long = millis((20 * interval).min(3_000));
    let fair = limiter.clone().fair();
    let granted = match random.below(7) {
        0 => limiter.try_acquire(permits).await.map(Some),
        1 => limiter.try_acquire_for(permits, short).await.map(Some),
        2 => fair.try_acquire_for(permits, short).await.map(Some),
        // These are dropped while they wait, or while they are granted.
        way => {
            let patience = if way < 5 { short } else { long };
            let limiter = limiter.fair_if(way == 4 || way == 5);
            let acquired = timeout(patience, limiter.acquire(permits)).await;
            acquired.map_or(Ok(None), |it| it.map(|()| Some(true)))
        }
    };
    match granted.expect("an answer") {
        Some(true) if releases(rate) && random.below(10) == 0 => {
            let released = limiter.gives_back(permits).await;
            assert!(released <= permits);
            permits.wrapping_sub(released)
        }
        Some(true) => permits,
        Some(false) if short < millis(1) => {
            sleep(millis(1)).await;
            0
        }
        _ => 0,
    }
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_asks_in_every_way() {
    let Some(words) = instructions() else { return };
    let redis = handle(&words[0]).await;
    let process: u64 = words[1].parse().expect("a number");
    let until = Instant::now() + lasts();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let seed = process * TASKS + task;
            let all = limits().count() as u64;
            let limit = limits().nth((seed % all) as usize).expect("one of them");
            let limiter = RateLimiter::new(&redis, name(limit));
            let task = tokio::spawn(async move {
                let mut random = Random::new(seed + 1);
                let mut kept = 0_u64;
                while Instant::now() < until {
                    let asked = ask(&limiter, &mut random, limit).await;
                    kept = kept.wrapping_add(asked);
                }
                kept
            });
            (limit, task)
        })
        .collect();
    let mut lines = String::from("\n");
    for (limit, task) in tasks {
        let kept = task.await.expect("no panic");
        writeln!(lines, "kept {} {}", name(limit), kept).expect("a string takes all");
    }
    // What was dropped last is given back by then.
    sleep(millis(500)).await;
    print!("{lines}");
}

#[tokio::test]
async fn nothing_is_above_the_rate_and_nothing_is_left() {
    let server = kit::Redis::start();
    let redis = handle(&server.url).await;
    for limit in limits() {
        let limiter = RateLimiter::new(&redis, name(limit));
        let interval = millis(limit.1);
        assert!(limiter.sets_first(overall(limit.0, interval)).await);
    }
    let monitor = Monitor::start(&server.url);
    let outputs = {
        let worker = "fleet::worker_asks_in_every_way";
        let start = |at| start_worker(worker, &format!("{} {at}", server.url));
        let workers = (0..PROCESSES).map(start).collect();
        tokio::task::spawn_blocking(|| outputs(workers))
            .await
            .expect("no panic")
    };
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    let lines = outputs.iter().flat_map(|output| output.lines());
    for line in lines.filter_map(|line| line.strip_prefix("kept ")) {
        let (name, kept) = line.split_once(' ').expect("a number");
        let kept: u64 = kept.parse().expect("a number");
        let of = told.entry(name.to_owned()).or_default();
        *of = of.wrapping_add(kept);
    }
    let all = monitor.grants(&server.url);
    let mut count = 0;
    for (rate, interval) in limits() {
        let name = name((rate, interval));
        let grants = &all[&format!("{{{name}}}:permits")];
        grants.assert_stamps(true);
        let fullest = grants.fullest(interval * 1_000);
        assert!(fullest <= rate, "{fullest} of {name}");
        assert!(fullest * 100 >= rate * 95, "{fullest} of {name}");
        let told = told[&name];
        assert!(grants.kept() >= told, "{told} of {name}");
        // What has left by itself is not given back any more: on a busy machine that are a few.
        let is_given_back = interval >= 300 && !releases(rate);
        let lost = grants.kept() - told;
        let is_few = lost <= 3 + told / 10;
        assert!(is_few || !is_given_back, "{lost} beside {told} of {name}");
        count += grants.all.len();
        let used = grants.use_of(rate, interval * 1_000);
        println!("{name}: {} grants, {used} %", grants.all.len());
    }
    println!("{count} grants, none above a rate");
}

/// Plays one process of which each task waits for its turn once.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_waits_in_order() {
    let Some(words) = instructions() else { return };
    let redis = Redis::connect(&words[0]).await.expect("a running server");
    let limiter = RateLimiter::new(&redis, "fair").fair();
    let mut connection = kit::async_connection(&words[0]).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.waits(1).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
        let _: u64 = redis::cmd("INCR")
            .arg("served")
            .query_async(&mut connection)
            .await
            .expect("a number");
    }
}

/// Callers of several processes are served at the rate.
#[tokio::test]
async fn the_order_is_the_servers() {
    let server = kit::Redis::start();
    let redis = handle(&server.url).await;
    let limiter = RateLimiter::new(&redis, "fair");
    let interval = millis(100);
    assert!(limiter.sets_first(overall(5, interval)).await);
    let before = server.script_calls();
    let monitor = Monitor::start(&server.url);
    let start = |_| start_worker("fleet::worker_waits_in_order", &server.url);
    let workers = (0..PROCESSES).map(start).collect();
    let done = tokio::task::spawn_blocking(|| outputs(workers)).await;
    done.expect("no panic");
    let calls = server.script_calls() - before;
    assert!(calls <= 2 * PROCESSES * TASKS, "{calls}");
    let grants = monitor.grants_of(&server.url, "fair");
    assert_eq!(grants.all.len() as u64, PROCESSES * TASKS);
    let is_right = grants.all.is_sorted_by_key(|grant| grant.stamp);
    assert!(is_right, "{grants:?}");
    assert_eq!(grants.fullest(100_000), 5);
}
