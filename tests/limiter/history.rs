//! The same random history in memory and on Redis: equal answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tidegate::Redis;
use tidegate::limiter::{LimiterBackend, LimiterError, MemoryLimiters, Rate, RateLimiter};
use tidegate::test_util::ManualClock;

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Back(u64),
    Acquire(u64),
    /// For as long as waiting costs nothing.
    Reserve(u64),
    Release(u64),
    Available,
    Keep(u64, u64),
    Set(u64, u64),
}

fn interval() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(7), Just(50), Just(1_000)]
}

fn step() -> impl Strategy<Value = Step> {
    let micros = prop_oneof![
        0..3_000_u64,
        Just(1_000),
        Just(999),
        Just(50_000),
        0..2_000_000_u64
    ];
    prop_oneof![
        8 => (1..12_u64).prop_map(Step::Acquire),
        8 => micros.clone().prop_map(Step::Wait),
        3 => (1..6_u64).prop_map(Step::Release),
        3 => (1..6_u64).prop_map(Step::Reserve),
        3 => Just(Step::Available),
        1 => micros.prop_map(Step::Back),
        1 => (1..12_u64, interval()).prop_map(|(rate, interval)| Step::Keep(rate, interval)),
        1 => (1..12_u64, interval()).prop_map(|(rate, interval)| Step::Set(rate, interval)),
    ]
}

/// See the stores' histories: what took longer may have met with an expiry.
const KEPT: Duration = Duration::from_millis(900);

async fn play(redis: &Redis, rate: (u64, u64), steps: &[Step]) -> Result<(), TestCaseError> {
    loop {
        let began = Instant::now();
        let played = play_once(redis, rate, steps).await;
        if played.is_ok() || began.elapsed() < KEPT {
            return played;
        }
    }
}

async fn play_once(redis: &Redis, rate: (u64, u64), steps: &[Step]) -> Result<(), TestCaseError> {
    static HISTORIES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("h{}", HISTORIES.fetch_add(1, Ordering::Relaxed));
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    let memory = MemoryLimiters::with_clock(clock.clone());
    let both = [
        RateLimiter::new(
            LimiterBackend::redis_with_clock(redis, clock.clone()),
            &*name,
        ),
        RateLimiter::new(memory, &*name),
    ];
    for limiter in &both {
        limiter.set(of(rate)).await.expect("is set");
    }
    // A value that is worked out anew after a change forgets what has left at another moment than
    // memory does, which only a clock that goes back can tell.
    let mut is_changed = false;
    for (at, step) in steps.iter().enumerate() {
        is_changed |= matches!(step, Step::Keep(..));
        match step {
            Step::Back(_) if is_changed => {}
            Step::Wait(micros) => clock.set(clock.now() + micros),
            Step::Back(micros) => clock.set(clock.now() - micros),
            step => {
                let redis = answer(&both[0], step).await;
                let memory = answer(&both[1], step).await;
                prop_assert_eq!(redis, memory, "step {}: {:?}", at, step);
            }
        }
    }
    Ok(())
}

fn of((permits, millis): (u64, u64)) -> Rate {
    Rate::overall(permits, Duration::from_millis(millis)).expect("valid")
}

async fn answer(limiter: &RateLimiter, step: &Step) -> Result<u64, String> {
    let yes_or_no = |answer: Result<bool, LimiterError>| answer.map(u64::from);
    let answer = match step {
        Step::Wait(_) | Step::Back(_) => Ok(0),
        Step::Acquire(permits) => yes_or_no(limiter.try_acquire(*permits).await),
        Step::Reserve(permits) => {
            // Long enough to be asked with, too short for any wait.
            let none = Duration::from_nanos(1);
            yes_or_no(limiter.clone().fair().try_acquire_for(*permits, none).await)
        }
        Step::Release(permits) => limiter.release(*permits).await,
        Step::Available => limiter.available_permits().await,
        Step::Keep(permits, millis) => {
            yes_or_no(limiter.update_keeping(of((*permits, *millis))).await)
        }
        Step::Set(permits, millis) => limiter.set(of((*permits, *millis))).await.map(|()| 0),
    };
    answer.map_err(|error| format!("{:?}", error.kind()))
}

#[test]
fn memory_and_redis_decide_alike() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = test_support::Redis::start();
    let redis = runtime.block_on(crate::connect(&server));
    let histories = std::env::var("TIDEGATE_HISTORIES");
    let histories = histories.map_or(600, |number| number.parse().expect("a number"));
    let config = test_support::random::config(histories);
    let steps = prop::collection::vec(step(), 1..40);
    proptest!(config, |(rate in (1..12_u64, interval()), steps in steps)| {
        runtime.block_on(play(&redis, rate, &steps))?;
    });
}
