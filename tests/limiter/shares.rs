//! Who is granted what of a limiter that callers of Redisson and of this crate use up together.
//!
//! `TIDEGATE_SHARES_SECONDS` says how long each contest lasts; `--nocapture` shows the shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kit::Redis;
use kit::random::Random;
use tidegate::limiter::{LimiterBackend, Rate, RateLimiter};
use tidegate::test_util::ManualClock;
use tokio::time::{Instant, sleep, sleep_until};

use crate::connect;
use crate::redisson::Java;

/// A `HashedWheelTimer` of Netty, which wakes a task at the end of the tick of its deadline.
#[derive(Clone, Copy)]
struct WheelTimer {
    started: Instant,
    tick: Duration,
}

impl WheelTimer {
    async fn sleep(self, time: Duration) {
        let deadline = self.started.elapsed() + time;
        let ticks = deadline.as_nanos() / self.tick.as_nanos() + 1;
        let ticks = u32::try_from(ticks).expect("a short test");
        sleep_until(self.started + self.tick * ticks).await;
    }
}

#[derive(Default)]
struct Granted {
    java: AtomicU64,
    rust: AtomicU64,
    is_over: AtomicBool,
}

/// Callers of one permit each that ask again as soon as they were granted one.
struct Contest {
    rate: u64,
    interval: Duration,
    java_callers: u64,
    tick: Duration,
    rust_callers: u64,
    seconds: f64,
}

#[derive(Debug)]
struct Outcome {
    java_share: f64,
    /// The part of the rate that was granted.
    used: f64,
}

impl Contest {
    async fn run(&self) -> Outcome {
        let server = Redis::start();
        let redis = [connect(&server).await, connect(&server).await];
        let of =
            |process: &tidegate::Redis| RateLimiter::new(process, "partner").shared_with_redisson();
        let limiter = of(&redis[0]);
        let set = limiter.try_set_rate(Rate::overall(self.rate, self.interval).expect("valid"));
        assert!(set.await.expect("an answer"));
        let granted = Arc::new(Granted::default());
        let started = Instant::now();
        let mut callers = Vec::new();
        for seed in 0..self.java_callers {
            let (mut java, granted) = (Java::connect(&server).await, Arc::clone(&granted));
            let timer = WheelTimer {
                started,
                tick: self.tick,
            };
            callers.push(tokio::spawn(async move {
                let mut random = Random::new(seed + 1);
                while !granted.is_over.load(Ordering::Relaxed) {
                    match java.acquire(1, &mut random).await {
                        Ok(()) => drop(granted.java.fetch_add(1, Ordering::Relaxed)),
                        Err(wait) => timer.sleep(Duration::from_millis(wait)).await,
                    }
                }
            }));
        }
        for caller in 0..self.rust_callers {
            let (limiter, granted) = (of(&redis[caller as usize % 2]), Arc::clone(&granted));
            callers.push(tokio::spawn(async move {
                while !granted.is_over.load(Ordering::Relaxed) {
                    limiter.acquire(1).await.expect("an answer");
                    granted.rust.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        // The first intervals are over before anything is counted.
        sleep(10 * self.interval).await;
        let (began, counts) = (Instant::now(), granted.counts());
        sleep(Duration::from_secs_f64(self.seconds)).await;
        let (lasted, now) = (began.elapsed(), granted.counts());
        granted.is_over.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.expect("no panic");
        }
        let (java, rust) = (now.0 - counts.0, now.1 - counts.1);
        let outcome = Outcome {
            java_share: java / (java + rust),
            used: (java + rust) / (self.rate as f64 * lasted.div_duration_f64(self.interval)),
        };
        println!(
            "{} in {:?}, {} and {} callers, ticks of {:?}: Java {:.0} %, Rust {:.0} %, {:.3} of the rate",
            self.rate,
            self.interval,
            self.java_callers,
            self.rust_callers,
            self.tick,
            100.0 * outcome.java_share,
            100.0 * (1.0 - outcome.java_share),
            outcome.used
        );
        outcome
    }
}

impl Granted {
    fn counts(&self) -> (f64, f64) {
        let count = |it: &AtomicU64| it.load(Ordering::Relaxed) as f64;
        (count(&self.java), count(&self.rust))
    }
}

fn seconds() -> f64 {
    let seconds = std::env::var("TIDEGATE_SHARES_SECONDS").ok();
    seconds.map_or(2.0, |it| it.parse().expect("seconds"))
}

/// 50 permits in 200 ms, and 8 callers of each side.
async fn contest(java_callers: u64, rust_callers: u64, tick: u64) -> Outcome {
    let contest = Contest {
        rate: 50,
        interval: Duration::from_millis(200),
        java_callers,
        rust_callers,
        tick: Duration::from_millis(tick),
        seconds: seconds(),
    };
    contest.run().await
}

/// Callers of Redisson come back at the next tick of their timer, which are 10 to 100 ms apart.
#[tokio::test]
async fn each_side_has_a_share() {
    for tick in [10, 100] {
        let outcome = contest(8, 8, tick).await;
        assert!(outcome.java_share > 0.2, "{outcome:?}");
        assert!(outcome.java_share < 0.8, "{outcome:?}");
        assert!(outcome.used > 0.7, "{outcome:?}");
    }
}

#[tokio::test]
#[ignore = "shows more shares; TIDEGATE_SHARES_SECONDS=20 and --nocapture"]
async fn each_sides_share_at_length() {
    for (java_callers, rust_callers) in [(8, 8), (1, 8), (8, 1), (0, 8)] {
        for tick in [1, 10, 100] {
            contest(java_callers, rust_callers, tick).await;
        }
    }
}

/// Takes one permit after the other. Returns how many were granted.
async fn take_all(limiter: &RateLimiter) -> u64 {
    let mut granted = 0;
    let short = Duration::from_millis(10);
    while limiter.try_acquire_for(1, short).await.expect("an answer") {
        granted += 1;
    }
    granted
}

const MINUTE: Duration = Duration::from_secs(60);

async fn set(limiter: &RateLimiter) {
    let set = limiter
        .set_rate(Rate::overall(50, MINUTE).expect("valid"))
        .await;
    set.expect("an answer");
}

/// A limiter of another process, which knows nothing yet.
async fn process(server: &Redis, is_fair: bool) -> RateLimiter {
    let redis = connect(server).await;
    let limiter = RateLimiter::new(redis, "partner").shared_with_redisson();
    match is_fair {
        true => limiter.fair(),
        false => limiter,
    }
}

#[tokio::test]
async fn what_redisson_uses_and_a_little_more_is_left_to_it() {
    let server = Redis::start();
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    for is_fair in [false, true] {
        let limiter = process(&server, is_fair).await;
        set(&limiter).await;
        for _ in 0..6 {
            java.acquire(1, &mut random).await.expect("a permit");
        }
        // A third and a fiftieth of the rate more: 9.
        assert_eq!(take_all(&limiter).await, 41);
        assert_eq!(limiter.available_permits().await.expect("an answer"), 3);
        for _ in 0..3 {
            java.acquire(1, &mut random).await.expect("a permit");
        }
        // Redisson has more than a third.
        let limiter = process(&server, is_fair).await;
        set(&limiter).await;
        java.acquire(25, &mut random).await.expect("permits");
        assert_eq!(take_all(&limiter).await, 25);
        // The request could never be granted otherwise.
        set(&limiter).await;
        java.acquire(6, &mut random).await.expect("permits");
        assert!(limiter.try_acquire(44).await.expect("an answer"));
    }
}

#[tokio::test]
async fn nothing_is_left_to_redisson_once_it_is_gone() {
    let server = Redis::start();
    let limiter = process(&server, false).await;
    let interval = Duration::from_millis(500);
    let set = limiter
        .set_rate(Rate::overall(50, interval).expect("valid"))
        .await;
    set.expect("an answer");
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    java.acquire(10, &mut random).await.expect("permits");
    let began = Instant::now();
    take_all(&limiter).await;
    sleep_until(began + 3 * interval).await;
    // A machine that is so slow that permits come back meanwhile says nothing.
    let (began, granted) = (Instant::now(), take_all(&limiter).await);
    // One is left to a client of Redisson that was granted nothing yet.
    assert!(granted >= 49 || began.elapsed() > interval / 2, "{granted}");
}

/// A denied caller is told when it can be granted its permits, which is not when the first permit
/// of Redisson expires: what is left to Redisson stays the same then.
#[tokio::test]
async fn a_wait_counts_what_is_left_to_redisson() {
    const BEGIN: u64 = 1_800_000_000_000;
    let server = Redis::start();
    let clock = ManualClock::default();
    let at = |second: u64, millis: u64| clock.set((BEGIN + second * 1_000 - millis) * 1_000);
    at(0, 0);
    let process = async || {
        let redis = connect(&server).await;
        let backend = LimiterBackend::redis_with_clock(&redis, clock.clone());
        RateLimiter::new(backend, "partner").shared_with_redisson()
    };
    set(&process().await).await;
    for second in 0..12 {
        let grant = [&[16][..], &[b'r'; 15], &[second as u8], &[1, 0, 0, 0]].concat();
        let score = BEGIN + second * 1_000;
        let added = redis::Cmd::zadd("{partner}:permits", grant, score);
        let _: () = added.query(&mut server.connection()).expect("is added");
    }
    at(12, 0);
    // A third of the rate: 16.
    assert_eq!(take_all(&process().await).await, 34);
    let denied = process().await.try_acquire_permit(1).await;
    let wait = denied.expect("an answer").expect_err("4 are left");
    assert_eq!(wait, Duration::from_secs(49));
    at(61, 1);
    assert!(!process().await.try_acquire(1).await.expect("an answer"));
    at(61, 0);
    assert!(process().await.try_acquire(1).await.expect("an answer"));
}

/// Who was granted nothing is not seen. So one permit in four times 50 is left to clients of
/// Redisson, at the same time by all processes.
#[tokio::test]
async fn a_client_of_redisson_that_has_nothing_gets_its_first_permit() {
    let server = Redis::start();
    let clock = ManualClock::default();
    let redis = connect(&server).await;
    let limiter = || {
        let backend = LimiterBackend::redis_with_clock(&redis, clock.clone());
        RateLimiter::new(backend, "partner").shared_with_redisson()
    };
    for minute in 0..8 {
        clock.set((28_000_000 + minute) * 60_000_000);
        set(&limiter()).await;
        let left = if minute % 4 == 0 { 1 } else { 0 };
        assert_eq!(take_all(&limiter()).await, 50 - left, "{minute}");
        let available = limiter().available_permits().await.expect("an answer");
        assert_eq!(available, left);
    }
    // A rate so low that a permit would be much of it.
    clock.set(28_000_000 * 60_000_000);
    let rate = limiter()
        .set_rate(Rate::overall(19, MINUTE).expect("valid"))
        .await;
    rate.expect("an answer");
    assert_eq!(take_all(&limiter()).await, 19);
}

/// What Redisson used lately is still known, and the server has lost all grants.
#[tokio::test]
async fn grants_that_are_lost_leave_a_share() {
    let server = Redis::start();
    let limiter = process(&server, false).await;
    set(&limiter).await;
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    java.acquire(6, &mut random).await.expect("permits");
    assert!(limiter.try_acquire(20).await.expect("an answer"));
    let lost = ["{partner}:permits", "{partner}:value"];
    let _: u64 = redis::Commands::del(&mut server.connection(), &lost).expect("keys");
    // A third and a fiftieth of the rate more than 6 are left: 9.
    assert!(limiter.try_acquire(41).await.expect("an answer"));
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
}

/// Neither another process nor a fair caller is taken for Redisson, nor is a loss.
#[tokio::test]
async fn a_fleet_of_this_crate_alone_leaves_nothing() {
    let server = Redis::start();
    let redis = [connect(&server).await, connect(&server).await];
    let limiters = redis
        .each_ref()
        .map(|redis| RateLimiter::new(redis, "partner").shared_with_redisson());
    set(&limiters[0]).await;
    for number in 0..30 {
        let limiter = limiters[number % 2].clone();
        let limiter = if number < 15 { limiter } else { limiter.fair() };
        let short = Duration::from_millis(10);
        assert!(limiter.try_acquire_for(1, short).await.expect("an answer"));
    }
    // Ten permits that nobody was granted.
    let mut connection = server.connection();
    let _: () = redis::Commands::decr(&mut connection, "{partner}:value", 10).expect("a number");
    let granted = take_all(&limiters[0]).await + take_all(&limiters[1]).await;
    // One in every fourth minute.
    assert!((9..=10).contains(&granted), "{granted}");
}

/// Of a limiter that does not say that it is shared, nothing is left.
#[tokio::test]
async fn only_a_shared_limiter_gives_way() {
    let server = Redis::start();
    let redis = connect(&server).await;
    let limiter = RateLimiter::new(&redis, "partner");
    set(&limiter).await;
    let (mut java, mut random) = (Java::connect(&server).await, Random::new(1));
    java.acquire(6, &mut random).await.expect("permits");
    assert_eq!(take_all(&limiter).await, 44);
}
