//! The same random history for the pure algorithms, the memory store and the Lua scripts: equal
//! decisions, whatever happens to time, costs, rules, refunds and resets.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::random::Random;
use proptest::prelude::*;
use tidegate::algorithm::{AlgorithmConfig, Count};
use tidegate::decision::Receipt;
use tidegate::rule::{Policy, Quotas};
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Decision, Key, MemoryStore, Quota, RedisStore, Rule, Store, Take};

use kit::store_on;

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
    /// So many units are charged, also above max; beyond that at most so many, or by default the
    /// max once more.
    Owe(u64, Option<u64>),
    /// One of the latest takes that were charged is given back, up to so many units of it.
    Refund(usize, u64),
    /// What counts is forgotten, and a microsecond passes.
    Reset,
    /// From now on other quotas.
    Quotas(Vec<Quota>),
    /// From now on other plans beside them.
    Plans(Vec<Vec<Quota>>),
    /// From now on the key is asked about under this plan, if there is one; beyond the plans, under
    /// the quotas of a plan that code gives.
    Plan(usize),
    /// From now on rules have such a lease, in milliseconds, or a shorter one.
    Lease(u64),
    /// From now on another algorithm, if the history is one of those that change it.
    Algorithm(AlgorithmConfig),
}

/// What is decided, from its beginning.
#[derive(Debug, Clone)]
struct History {
    quotas: Vec<Quota>,
    plans: Vec<Vec<Quota>>,
    algorithm: AlgorithmConfig,
    keeps_algorithm: bool,
    steps: Vec<Step>,
}

fn quota() -> impl Strategy<Value = Quota> {
    let windows = prop_oneof![
        6 => prop::sample::select(vec![1, 2, 3, 10, 1_000, 60_000]),
        1 => 1..100_000_u64,
    ];
    let max = prop_oneof![
        6 => 0..12_u64,
        2 => 20..200_u64,
        1 => Just(Quota::MAX_UNITS),
        1 => Just(Quota::MAX_UNITS - 6),
    ];
    let burst = prop_oneof![3 => Just(None), 1 => (1..20_u64).prop_map(Some)];
    (max, windows, burst).prop_map(|(max, millis, burst)| {
        let quota = Quota::new(Duration::from_millis(millis), max).expect("valid");
        burst.map_or(quota, |burst| quota.with_burst(burst).expect("valid"))
    })
}

fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    prop_oneof![2 => prop::collection::vec(quota(), 1), 1 => prop::collection::vec(quota(), 2..4)]
}

fn plans() -> impl Strategy<Value = Vec<Vec<Quota>>> {
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(quotas(), 1..3)]
}

fn counting() -> impl Strategy<Value = AlgorithmConfig> {
    prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(of)
}

/// An algorithm with some number of sub-windows.
fn of(algorithm: Algorithm) -> impl Strategy<Value = AlgorithmConfig> {
    let sub_windows = prop::sample::select(vec![1, 2, 7, 64, 64, 64, 1_024]);
    sub_windows.prop_map(move |number| AlgorithmConfig::from(algorithm).sub_windows(number))
}

fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => Just(1_u64),
        4 => 0..8_u64,
        1 => 50..150_u64,
        1 => Just(Quota::MAX_UNITS),
        1 => Just(u64::MAX),
    ]
}

fn owe_at_most() -> impl Strategy<Value = Option<u64>> {
    let units = prop_oneof![Just(0), 1..30_u64, Just(Quota::MAX_UNITS), Just(u64::MAX)];
    prop_oneof![2 => Just(None), 1 => units.prop_map(Some)]
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
        6 => (0..6_usize, prop_oneof![Just(1), Just(2), Just(u64::MAX)])
            .prop_map(|(which, units)| Step::Refund(which, units)),
        3 => (cost(), owe_at_most()).prop_map(|(units, at_most)| Step::Owe(units, at_most)),
        1 => Just(Step::Reset),
        2 => prop::collection::vec(cost(), 2..6).prop_map(Step::Batch),
        1 => (cost(), 2..30_usize).prop_map(|(cost, takes)| Step::Batch(vec![cost; takes])),
        2 => quotas().prop_map(Step::Quotas),
        1 => plans().prop_map(Step::Plans),
        4 => (0..5_usize).prop_map(Step::Plan),
        2 => counting().prop_map(Step::Algorithm),
        2 => prop::sample::select(vec![0, 1, 20, 1_000_000]).prop_map(Step::Lease),
        1 => pause.prop_map(Step::Back),
    ]
}

/// Reloads to and fro between a long window of few units, a short one that admits more, and a long
/// one of many units, which finds all that was admitted.
fn reloads() -> impl Strategy<Value = Vec<Step>> {
    let quotas = |max: std::ops::Range<u64>, millis| {
        let quota = (max, prop::sample::select(millis));
        quota.prop_map(|(max, millis)| {
            vec![Quota::new(Duration::from_millis(millis), max).expect("valid")]
        })
    };
    let few = quotas(2..5, vec![5, 10, 20]);
    let short = quotas(2..9, vec![1, 2]);
    let many = quotas(8..40, vec![5, 10, 20, 50]);
    let rules = (few, short, many).prop_map(|(few, short, many)| vec![few, short, many]);
    rules.prop_flat_map(|rules| {
        let most = rules[1][0].max().max(rules[2][0].max());
        let first = Step::Quotas(rules[0].clone());
        let reload = prop::sample::select(rules).prop_map(Step::Quotas);
        let step = prop_oneof![
            24 => prop_oneof![6 => 0..3_u64, 1 => Just(most)].prop_map(Step::Take),
            12 => prop_oneof![Just(1_000), 500..3_000_u64].prop_map(Step::Wait),
            3 => (0..20_usize, 1..3_u64).prop_map(|(which, units)| Step::Refund(which, units)),
            6 => reload,
            1 => step(),
        ];
        let steps = prop::collection::vec(step, 8..64);
        steps.prop_map(move |steps| [first.clone()].into_iter().chain(steps).collect())
    })
}

fn history(algorithm: Algorithm) -> impl Strategy<Value = History> {
    let steps = prop_oneof![2 => prop::collection::vec(step(), 1..32), 1 => reloads()];
    let keeps_algorithm = prop::bool::weighted(0.7);
    let parts = (quotas(), plans(), of(algorithm), keeps_algorithm, steps);
    parts.prop_map(
        |(quotas, plans, algorithm, keeps_algorithm, steps)| History {
            quotas,
            plans,
            algorithm,
            keeps_algorithm,
            steps,
        },
    )
}

struct Three {
    clock: ManualClock,
    /// Each algorithm has a state of its own.
    pure: HashMap<Algorithm, Count>,
    /// None once the clock went back: its own is monotonic.
    memory: Option<MemoryStore>,
    redis: RedisStore,
    path: String,
    quotas: Vec<Quota>,
    plans: Vec<Vec<Quota>>,
    plan: usize,
    lease: Duration,
}

impl Three {
    fn new(redis: &RedisStore, history: &History) -> Self {
        static HISTORIES: AtomicUsize = AtomicUsize::new(0);
        let clock = ManualClock::default();
        // Not far from the real time, so that Redis does not expire what is alive in the history.
        clock.set(1_800_000_000_000_000);
        Self {
            pure: HashMap::new(),
            memory: Some(MemoryStore::new().clock(clock.clone())),
            redis: redis.clone().clock(clock.clone()),
            path: format!("h{}", HISTORIES.fetch_add(1, Ordering::Relaxed)),
            clock,
            quotas: history.quotas.clone(),
            plans: history.plans.clone(),
            plan: 0,
            lease: Duration::ZERO,
        }
    }

    fn question(&self, algorithm: AlgorithmConfig) -> Take {
        // Names of their own, since two quotas may have the same window here.
        let named = |quotas: &[Quota]| -> Vec<_> {
            let policies = quotas.iter().enumerate();
            let named = |(at, quota): (usize, &Quota)| Policy::new(&at.to_string(), *quota);
            policies.map(named).collect()
        };
        let rule = Rule::with_policies(&self.path, named(&self.quotas)).expect("valid");
        let mut rule = rule.with_algorithm(algorithm);
        for (at, plan) in self.plans.iter().enumerate() {
            let quotas = Quotas::with_policies(named(plan)).expect("valid");
            let with_plan = rule.with_plan(&(at + 1).to_string(), quotas);
            rule = with_plan.expect("valid");
        }
        let leased = rule.clone().with_lease(self.lease);
        let rule = Arc::new(leased.unwrap_or(rule));
        if let Some(given) = self.plan.checked_sub(3)
            && given < self.plans.len()
        {
            let quotas = self
                .plans
                .iter()
                .map(|plan| Quotas::with_policies(named(plan)));
            let of_quotas = quotas.map(|quotas| rule.of_quotas(Arc::new(quotas.expect("valid"))));
            // All are in use before one is chosen.
            let all: Vec<_> = of_quotas.collect();
            let last = rule.of_quotas(Arc::new(
                Quotas::with_policies(named(&self.plans[given])).expect("valid"),
            ));
            drop(all);
            return Take::new(last, Key::default());
        }
        let of_plan = rule.of_plan(&self.plan.to_string());
        Take::new(of_plan.unwrap_or(rule), Key::default())
    }

    /// All three are asked; the answers are told if they are the same.
    async fn take(&mut self, take: &Take, costs: &[u64]) -> Result<Vec<Decision>, TestCaseError> {
        let takes: Vec<_> = costs
            .iter()
            .map(|cost| take.clone().with_cost(*cost))
            .collect();
        let (now, quotas) = (self.clock.now(), take.quotas());
        let algorithm = take.rule().algorithm();

        let state = self.pure.entry(algorithm.algorithm()).or_default();
        let pure = costs
            .iter()
            .map(|cost| state.take(algorithm, now, quotas, *cost));
        let pure: Vec<_> = pure.collect();
        let memory = match &self.memory {
            Some(memory) => Some(
                crate::ask_all(memory, &takes)
                    .await
                    .expect("memory decides"),
            ),
            None => None,
        };
        let redis = crate::ask_all(&self.redis, &takes)
            .await
            .expect("redis decides");
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
        Ok(pure)
    }

    async fn owe(&mut self, take: &Take, at_most: Option<u64>) -> Result<(), TestCaseError> {
        let rule = match at_most {
            Some(at_most) => Rule::clone(take.rule()).with_owe_at_most(at_most),
            None => Rule::clone(take.rule()),
        };
        let take = Take::new(Arc::new(rule), Key::default()).with_cost(take.cost());
        let (algorithm, any) = (take.rule().algorithm(), Receipt::new(0, 0, 1));
        let state = self.pure.entry(algorithm.algorithm()).or_default();
        let (now, quotas) = (self.clock.now(), take.quotas());
        let pure = state.owe(algorithm, now, quotas, take.cost(), at_most);
        if let Some(memory) = &self.memory {
            let memory = memory.owe(&take, &any).await.expect("memory answers");
            prop_assert_eq!(pure, memory, "memory, units owed");
        }
        let redis = self.redis.owe(&take, &any).await.expect("redis answers");
        prop_assert_eq!(pure, redis, "redis, units owed");
        Ok(())
    }

    async fn refund(&mut self, take: &Take, receipt: &Receipt) -> Result<(), TestCaseError> {
        let algorithm = take.rule().algorithm().algorithm();
        let state = self.pure.entry(algorithm).or_default();
        let pure = state.refund(self.clock.now(), receipt, take.cost());
        if let Some(memory) = &self.memory {
            let memory = memory.refund(take, receipt).await.expect("memory answers");
            prop_assert_eq!(pure, memory, "memory, refund");
        }
        let redis = self
            .redis
            .refund(take, receipt)
            .await
            .expect("redis answers");
        prop_assert_eq!(pure, redis, "redis, refund");
        Ok(())
    }

    /// Stores have no count of what was never charged. The microsecond passes since the memory
    /// store has none either of what was forgotten, as Redis and the pure algorithm do.
    async fn reset(&mut self, take: &Take) -> Result<(), TestCaseError> {
        let now = self.clock.now();
        let algorithm = take.rule().algorithm().algorithm();
        let state = self.pure.get_mut(&algorithm);
        let charged = state.filter(|state| state.forgotten_at() > 0);
        let pure = charged.is_some_and(|charged| charged.reset(now));
        if let Some(memory) = &self.memory {
            let memory = memory.reset(take).await.expect("memory answers");
            prop_assert_eq!(pure, memory, "memory, reset");
        }
        // It may still have what counts no longer.
        let redis = self.redis.reset(take).await.expect("redis answers");
        prop_assert!(redis || !pure, "redis, reset");
        self.clock.set(now + 1);
        Ok(())
    }
}

/// All but who decided.
fn facts(decision: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    let quotas = decision.quotas().to_vec();
    (decision.verdict(), quotas, decision.receipt())
}

async fn run(redis: &RedisStore, history: &History) -> Result<(), TestCaseError> {
    let mut three = Three::new(redis, history);
    let mut take = three.question(history.algorithm);
    let mut retry_after = 0;
    let mut receipts = Vec::new();
    for step in &history.steps {
        let now = three.clock.now();
        let decisions = match step {
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
            Step::Quotas(quotas) => {
                three.quotas.clone_from(quotas);
                take = three.question(take.rule().algorithm());
                continue;
            }
            Step::Lease(millis) => {
                three.lease = Duration::from_millis(*millis);
                take = three.question(take.rule().algorithm());
                continue;
            }
            Step::Plans(plans) => {
                three.plans.clone_from(plans);
                take = three.question(take.rule().algorithm());
                continue;
            }
            Step::Plan(plan) => {
                three.plan = *plan;
                take = three.question(take.rule().algorithm());
                continue;
            }
            Step::Algorithm(algorithm) => {
                if !history.keeps_algorithm {
                    take = three.question(*algorithm);
                }
                continue;
            }
            Step::Refund(which, units) => {
                // Each once.
                if let Some(at) = receipts.len().checked_sub(1 + which) {
                    let (algorithm, receipt) = receipts.remove(at);
                    let take = three.question(algorithm);
                    three.refund(&take.with_cost(*units), &receipt).await?;
                }
                continue;
            }
            Step::Owe(units, at_most) => {
                three.owe(&take.clone().with_cost(*units), *at_most).await?;
                continue;
            }
            Step::Reset => {
                three.reset(&take).await?;
                continue;
            }
            Step::Take(cost) => three.take(&take, &[*cost]).await?,
            Step::Batch(costs) => three.take(&take, costs).await?,
        };
        let charged = decisions.iter().filter_map(Decision::receipt);
        receipts.extend(charged.map(|receipt| (take.rule().algorithm(), receipt)));
        let last = decisions.last().expect("at least one cost");
        let wait = last.retry_after().unwrap_or_default();
        retry_after = i64::try_from(wait.as_micros()).expect("ten years of microseconds");
    }
    Ok(())
}

/// Redis forgets keys by the real time, whatever the history's clock shows: what took this long
/// proves nothing, since a machine that is busy otherwise may have let a key go that still counts.
const KEPT: Duration = Duration::from_millis(900);

/// Once more, if it was too slow to fail.
async fn run_in_time(redis: &RedisStore, history: &History) -> Result<(), TestCaseError> {
    loop {
        let began = Instant::now();
        let outcome = run(redis, history).await;
        if outcome.is_ok() || began.elapsed() < KEPT {
            return outcome;
        }
    }
}

/// So many histories run at once, so that their calls share round trips.
const AT_ONCE: usize = 64;

fn decide_alike(algorithm: Algorithm) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let server = Redis::start();
    let redis = runtime.block_on(store_on(&server));
    let histories = std::env::var("TIDEGATE_HISTORIES");
    let histories: usize = histories.map_or(2_000, |number| number.parse().expect("a number"));
    let cases = u32::try_from(histories.div_ceil(AT_ONCE)).expect("not that many");
    let config = ProptestConfig {
        max_shrink_iters: 4_000,
        ..kit::random::config(cases)
    };
    proptest!(config, |(histories in prop::collection::vec(history(algorithm), 1..=AT_ONCE))| {
        let outcomes = histories.iter().map(|history| run_in_time(&redis, history));
        let outcomes = runtime.block_on(join_all(outcomes));
        outcomes.into_iter().collect::<Result<(), _>>()?;
    });
}

#[test]
fn sliding_logs_decide_alike() {
    decide_alike(Algorithm::SlidingLog);
}

#[test]
fn sliding_windows_decide_alike() {
    decide_alike(Algorithm::SlidingWindow);
}

#[test]
fn gcras_decide_alike() {
    decide_alike(Algorithm::Gcra);
}

#[test]
fn fixed_windows_decide_alike() {
    decide_alike(Algorithm::FixedWindow);
}

/// So many refunds, in any order, that it is not exactly known any more what was given back.
#[test]
fn many_refunds_decide_alike() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Redis::start();
    let redis = runtime.block_on(store_on(&server));
    // Long windows: this takes seconds, and Redis forgets keys by the real time.
    let quota = |seconds, max| Quota::new(Duration::from_secs(seconds), max).expect("valid");
    for (round, algorithm) in Algorithm::ALL.into_iter().cycle().take(8).enumerate() {
        let mut numbers = Random::new(round as u64);
        // One step in so many refunds a take that was charged a long or a short while ago.
        let (kept, depth) = [(40, 2_000), (5, 400)][round / 4];
        let quotas = match round / 4 {
            0 => vec![quota(60, 400)],
            _ => vec![quota(60, 700), quota(6, 100)],
        };
        let mut steps = Vec::new();
        for step in 0..3_000_u64 {
            steps.push(Step::Take(1 + numbers.below(3)));
            if step % 3 == 0 {
                steps.push(Step::Wait(numbers.below(100_000)));
            }
            if numbers.below(kept) > 0 {
                let which = numbers.below(depth) as usize;
                steps.push(Step::Refund(which, u64::MAX));
            }
        }
        let history = History {
            quotas,
            plans: Vec::new(),
            algorithm: algorithm.into(),
            keeps_algorithm: true,
            steps,
        };
        let outcome = runtime.block_on(run_in_time(&redis, &history));
        outcome.unwrap_or_else(|error| panic!("{algorithm:?}, round {round}: {error}"));
    }
}

/// What a double cannot hold: buckets of nearly 10^15 units, at instants that divide nothing.
#[test]
fn large_buckets_drain_alike() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Redis::start();
    let redis = runtime.block_on(store_on(&server));
    for millis in [7, 997, 59_999, 3_600_001] {
        let quota = Quota::new(Duration::from_millis(millis), Quota::MAX_UNITS - 6);
        let quotas = vec![quota.expect("valid")];
        let waits = (0..60).map(|step| Step::Wait(1 + millis * 1_000 * (step % 7) / 101));
        let takes = [1, 77, 1_000_003, Quota::MAX_UNITS / 3];
        let takes = takes.iter().cycle().map(|cost| Step::Take(*cost));
        let steps = takes.zip(waits).flat_map(|(take, wait)| [wait, take]);
        let history = History {
            quotas,
            plans: Vec::new(),
            algorithm: Algorithm::Gcra.into(),
            keeps_algorithm: true,
            steps: [Step::Take(Quota::MAX_UNITS - 6)]
                .into_iter()
                .chain(steps)
                .collect(),
        };
        let outcome = runtime.block_on(run_in_time(&redis, &history));
        outcome.expect("equal decisions");
    }
}

/// A rule with a lease charged something in what is the future now. Its mark follows the clock with
/// the next charge, and ends as early.
#[test]
fn leases_end_alike_after_the_clock_went_back() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Redis::start();
    let redis = runtime.block_on(store_on(&server));
    for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow] {
        let quota = Quota::new(Duration::from_secs(60), 12);
        let history = History {
            quotas: vec![quota.expect("valid")],
            plans: Vec::new(),
            algorithm: algorithm.into(),
            keeps_algorithm: true,
            steps: vec![
                // Of 1.2 s: a fiftieth of the window.
                Step::Lease(1_000_000),
                Step::Take(1),
                Step::Back(30_000_000),
                Step::Lease(0),
                Step::Take(1),
                Step::Wait(1_000_000),
                Step::Take(1),
                Step::Wait(60_500_000),
                Step::Take(1),
            ],
        };
        let outcome = runtime.block_on(run_in_time(&redis, &history));
        outcome.expect("equal decisions");
    }
}

/// 10 a day, for a moment 10 a second, then 15 a day: all that was admitted in the day counts.
#[test]
fn a_longer_window_that_comes_back_finds_what_was_admitted_meanwhile() {
    let (day, few) = (86_400, [1; 20]);
    let reloads = [(10, day), (10, 1), (15, day), (25, day)].map(|it| (it, &few[..]));
    admitted_after_reloads(&reloads, &[10, 10, 0, 5]);
}

/// The same of more than sums can hold.
#[test]
fn a_longer_window_that_comes_back_finds_the_largest_quotas_used() {
    let (day, all) = (86_400, Quota::MAX_UNITS);
    for seconds in 4..8 {
        let (one, whole) = ([1], [all]);
        let mut reloads = vec![((1, day), &one[..])];
        reloads.extend(vec![((all, 1), &whole[..]); seconds]);
        reloads.push(((all, day), &one));
        let mut admitted = vec![1; seconds + 1];
        admitted.push(0);
        admitted_after_reloads(&reloads, &admitted);
    }
}

/// How many takes are admitted after each reload, by max and seconds of the new quota, with these
/// costs. Two seconds later comes the next reload.
fn admitted_after_reloads(reloads: &[((u64, u64), &[u64])], expected: &[usize]) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Redis::start();
    let redis = runtime.block_on(store_on(&server));
    for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow] {
        let history = History {
            quotas: Vec::new(),
            plans: Vec::new(),
            algorithm: algorithm.into(),
            keeps_algorithm: true,
            steps: Vec::new(),
        };
        let mut three = Three::new(&redis, &history);
        let admitted = reloads.iter().map(|((max, seconds), costs)| {
            let quota = Quota::new(Duration::from_secs(*seconds), *max).expect("valid");
            three.quotas = vec![quota];
            let take = three.question(algorithm.into());
            let decisions = runtime.block_on(three.take(&take, costs));
            three.clock.set(three.clock.now() + 2_000_000);
            let decisions = decisions.expect("equal decisions").into_iter();
            decisions.filter(Decision::is_allowed).count()
        });
        let admitted: Vec<_> = admitted.collect();
        assert_eq!(admitted, expected, "{algorithm:?}");
    }
}
