//! Who is granted what of a limiter that callers of Redisson and of this crate use up together.
//!
//! `TIDEGATE_SHARES_SECONDS` says how long each contest lasts; `--nocapture` shows the shares.

use kit::Redis;
use kit::redisson::Java;
use tokio::time::{Instant, sleep_until};

use crate::*;

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
        let redis = [handle(&server.url).await, handle(&server.url).await];
        let of =
            |process: &tidegate::Redis| RateLimiter::new(process, "partner").shared_with_redisson();
        let limiter = of(&redis[0]);
        assert!(limiter.sets_first(overall(self.rate, self.interval)).await);
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
                        Err(wait) => timer.sleep(millis(wait)).await,
                    }
                }
            }));
        }
        for caller in 0..self.rust_callers {
            let (limiter, granted) = (of(&redis[caller as usize % 2]), Arc::clone(&granted));
            callers.push(tokio::spawn(async move {
                while !granted.is_over.load(Ordering::Relaxed) {
                    limiter.waits(1).await;
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
        interval: millis(200),
        java_callers,
        rust_callers,
        tick: millis(tick),
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
