//! Steps of the store's clock: how many more requests are admitted, in windows of stamps and of
//! elapsed time, and how long a full limit stays closed. docs/guarantees.md has these bounds.
//!
//! `tests/histories` checks the bounds on random histories of the pure algorithms.

use kit::windows::{Grant, fullest_window};

use crate::prelude::*;

const MAX: u64 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Microseconds.
const STEPS: [u64; 5] = [1, 999, 1_000, 50_000, 90_000_000];

/// A limit of a store whose clock steps.
struct Playing<'a> {
    store: &'a dyn Store,
    take: Take,
    clock: &'a ManualClock,
    elapsed: u64,
    /// Of each admission the stamp, the elapsed time and the cost.
    admitted: Vec<(u64, u64, u64)>,
}

impl Playing<'_> {
    async fn ask(&mut self, cost: u64) -> Decision {
        let decision = ask(self.store, &self.take.clone().with_cost(cost)).await;
        if let Some(receipt) = decision.receipt() {
            assert_eq!(receipt.stamp(), self.clock.now());
            self.admitted.push((receipt.stamp(), self.elapsed, cost));
        }
        decision
    }

    fn path(&self) -> &str {
        self.take.rule().path()
    }

    fn wait(&mut self, micros: u64) {
        self.clock.set(self.clock.now() + micros);
        self.elapsed += micros;
    }

    /// The most units in any window of stamps, and in any window of elapsed time.
    fn fullest(&self) -> (u64, u64) {
        let fullest = |at: fn(&(u64, u64, u64)) -> u64| {
            let grants = self.admitted.iter().map(|one| Grant {
                stamp: at(one),
                cost: one.2,
            });
            let mut grants: Vec<_> = grants.collect();
            grants.sort_unstable_by_key(|grant| grant.stamp);
            fullest_window(&grants, micros(WINDOW))
        };
        (fullest(|one| one.0), fullest(|one| one.1))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a short time")
}

/// For every algorithm, step, and store.
async fn for_each_step(law: impl AsyncFn(&mut Playing<'_>, u64)) {
    let clock = ManualClock::default();
    let server = Redis::start();
    let redis = store_on(&server).await.clock(clock.clone());
    let memory = MemoryStore::new().clock(clock.clone());
    let stores: [&dyn Store; 2] = [&redis, &memory];
    for store in stores {
        for (algorithm, step) in Algorithm::ALL.map(|at| STEPS.map(|by| (at, by))).concat() {
            clock.set(1_800_000_000_000_777);
            let quota = Quota::new(WINDOW, MAX).expect("valid");
            let path = format!("{} {step}", algorithm.name());
            let rule = Rule::new(&path, [quota]).expect("valid");
            let rule = Arc::new(rule.with_algorithm(algorithm));
            let mut playing = Playing {
                store,
                take: Take::new(rule, Key::default()),
                clock: &clock,
                elapsed: 0,
                admitted: Vec::new(),
            };
            law(&mut playing, step).await;
        }
    }
}

/// It looks like a lost limit: stamps show 19 of 10. By elapsed time there are 10.
#[tokio::test]
async fn a_step_back_admits_more_by_the_stamps_alone() {
    for_each_step(async |playing, step| {
        assert!(playing.ask(MAX - 1).await.is_allowed());
        playing.clock.set(playing.clock.now() - step);
        assert!(playing.ask(1).await.is_allowed());
        playing.wait(micros(WINDOW) - 1);
        assert!(!playing.ask(MAX).await.is_allowed());
        playing.wait(1);
        assert!(playing.ask(MAX).await.is_allowed());
        assert_eq!(playing.fullest(), (19, 10), "{}", playing.path());
    })
    .await;
}

/// Denials write nothing, so the limit does not learn of the step. A reset opens it.
#[tokio::test]
async fn a_full_limit_stays_closed_until_the_clock_has_caught_up() {
    for_each_step(async |playing, step| {
        assert!(playing.ask(MAX).await.is_allowed());
        playing.clock.set(playing.clock.now() - step);
        let denied = playing.ask(MAX).await;
        let wait = WINDOW + Duration::from_micros(step);
        assert_eq!(denied.retry_after(), Some(wait), "{}", playing.path());
        playing.wait(micros(wait) - 1);
        assert!(!playing.ask(MAX).await.is_allowed());
        playing.wait(1);
        assert!(playing.ask(MAX).await.is_allowed());
        assert_eq!(playing.fullest(), (10, 10), "{}", playing.path());

        playing.clock.set(playing.clock.now() - step);
        assert!(!playing.ask(1).await.is_allowed());
        assert!(playing.store.reset(&playing.take).await.expect("a reset"));
        assert!(playing.ask(MAX).await.is_allowed());
    })
    .await;
}

/// Admissions leave their window too early, by the length of the step.
#[tokio::test]
async fn a_step_forward_admits_one_quota_more() {
    for_each_step(async |playing, step| {
        assert!(playing.ask(MAX).await.is_allowed());
        playing.wait(micros(WINDOW).saturating_sub(step));
        assert!(!playing.ask(MAX).await.is_allowed());
        playing.clock.set(playing.clock.now() + step);
        assert!(playing.ask(MAX).await.is_allowed());
        assert!(!playing.ask(1).await.is_allowed());
        assert_eq!(playing.fullest(), (10, 20), "{}", playing.path());
    })
    .await;
}
