//! The same random history for the pure algorithm, the memory store and the Lua script: equal
//! decisions, whatever happens to time, costs and rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Decision, Key, ManualClock, MemoryStore, Policy, Quota, RedisStore, Rule, SlidingLog, Store,
    Take,
};

use crate::support::Redis;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// So many microseconds pass.
    Wait(u64),
    /// Exactly as long as the last denial said, give or take a microsecond.
    Retry(i64),
    /// The clock goes back.
    Back(u64),
    Take(u64),
    /// Several takes in one call.
    Batch(Vec<u64>),
    /// From now on another rule.
    Rule(Vec<Quota>),
}

fn quota() -> impl Strategy<Value = Quota> {
    let windows = prop_oneof![
        Just(1),
        Just(2),
        Just(3),
        Just(10),
        Just(1_000),
        Just(60_000)
    ];
    let max = prop_oneof![
        6 => 0..12_u64,
        2 => 20..200_u64,
        1 => Just(Quota::LARGEST_MAX),
    ];
    (max, windows)
        .prop_map(|(max, millis)| Quota::new(max, Duration::from_millis(millis)).expect("valid"))
}

fn rule() -> impl Strategy<Value = Vec<Quota>> {
    prop::collection::vec(quota(), 1..4)
}

fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(1_u64), 4 => 0..8_u64, 1 => 50..150_u64, 1 => Just(Quota::LARGEST_MAX)]
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        Just(1),
        Just(300),
        Just(999),
        Just(1_000),
        1..5_000_u64,
        1..2_000_000_u64,
        Just(59_999_999)
    ];
    prop_oneof![
        20 => cost().prop_map(Step::Take),
        10 => pause.clone().prop_map(Step::Wait),
        6 => (-1..=1_i64).prop_map(Step::Retry),
        3 => prop::collection::vec(cost(), 2..6).prop_map(Step::Batch),
        2 => rule().prop_map(Step::Rule),
        1 => pause.prop_map(Step::Back),
    ]
}

struct Three {
    clock: ManualClock,
    pure: SlidingLog,
    /// None once the clock went back: its own is monotonic.
    memory: Option<MemoryStore>,
    redis: RedisStore,
    path: String,
}

impl Three {
    async fn new(redis: &RedisStore) -> Self {
        static HISTORIES: AtomicUsize = AtomicUsize::new(0);
        let clock = ManualClock::default();
        // Not far from the real time, so that Redis does not expire what is alive in the history.
        clock.set(1_800_000_000_000_000);
        Self {
            pure: SlidingLog::default(),
            memory: Some(MemoryStore::new().clock(clock.clone())),
            redis: redis.clone().clock(clock.clone()),
            path: format!("h{}", HISTORIES.fetch_add(1, Ordering::Relaxed)),
            clock,
        }
    }

    /// All three are asked; the answers are told if they are the same.
    async fn take(&mut self, quotas: &[Quota], costs: &[u64]) -> Result<Decision, TestCaseError> {
        // Names of their own, since two quotas may have the same window here.
        let policies = quotas.iter().enumerate();
        let policies = policies.map(|(at, quota)| Policy::new(&at.to_string(), *quota));
        let rule = Rule::with_policies(&self.path, policies).expect("valid");
        let take = Take::new(Arc::new(rule), Key::default());
        let takes: Vec<_> = costs.iter().map(|cost| take.clone().cost(*cost)).collect();
        let now = self.clock.now();

        let pure = costs.iter().map(|cost| self.pure.take(now, quotas, *cost));
        let pure: Vec<_> = pure.collect();
        let memory = match &self.memory {
            Some(memory) => Some(memory.take(&takes).await.expect("memory decides")),
            None => None,
        };
        let redis = self.redis.take(&takes).await.expect("redis decides");
        for (at, pure) in pure.iter().enumerate() {
            if let Some(memory) = &memory {
                prop_assert_eq!(
                    facts(pure),
                    facts(&memory[at]),
                    "memory, cost {}",
                    costs[at]
                );
            }
            prop_assert_eq!(facts(pure), facts(&redis[at]), "redis, cost {}", costs[at]);
        }
        Ok(pure.last().expect("at least one cost").clone())
    }
}

/// All but who decided.
fn facts(decision: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    (decision.verdict(), decision.quotas().to_vec())
}

async fn run(redis: &RedisStore, first: Vec<Quota>, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut three = Three::new(redis).await;
    let mut quotas = first;
    let mut retry_after = 0;
    for step in steps {
        let now = three.clock.now();
        let decision = match step {
            Step::Wait(micros) => {
                three.clock.set(now + micros);
                continue;
            }
            Step::Back(micros) => {
                three.clock.set(now - micros);
                three.memory = None;
                continue;
            }
            Step::Retry(give_or_take) => {
                three
                    .clock
                    .set(now.saturating_add_signed((retry_after + give_or_take).max(0)));
                continue;
            }
            Step::Rule(rule) => {
                quotas = rule;
                continue;
            }
            Step::Take(cost) => three.take(&quotas, &[cost]).await?,
            Step::Batch(costs) => three.take(&quotas, &costs).await?,
        };
        let wait = decision.retry_after().unwrap_or_default();
        retry_after = i64::try_from(wait.as_micros()).expect("ten years of microseconds");
    }
    Ok(())
}

#[test]
fn pure_memory_and_redis_decide_alike() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Redis::start();
    let redis = runtime.block_on(server.store());
    let cases = std::env::var("TIDEGATE_HISTORIES").map_or(2_000, |n| n.parse().expect("a number"));
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(first in rule(), steps in prop::collection::vec(step(), 1..60))| {
        runtime.block_on(run(&redis, first, steps))?;
    });
}
