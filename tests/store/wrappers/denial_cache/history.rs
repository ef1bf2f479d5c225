//! Random histories: the verdict of every cached denial is the store's own, at that instant.

use kit::random::config;
use proptest::prelude::*;
use tokio::time::{Instant, sleep_until};

use super::delayed::Delayed;
use super::*;

fn quota_of(window: u64) -> impl Strategy<Value = Quota> {
    let max = prop_oneof![4 => 1..8_u64, 1 => Just(0_u64)];
    (max, 1..9_u64).prop_map(move |(max, burst)| {
        let quota = Quota::new(millis(window), max).expect("valid");
        quota.with_burst(burst).expect("valid")
    })
}

/// The quotas of some rules, whose windows are the same: where a charge counts for a shorter time
/// under another rule of the path, the store itself says too much of the time until it is free.
fn quotas(rules: usize) -> impl Strategy<Value = Vec<Vec<Quota>>> {
    let window = || prop::sample::select(vec![3, 100, 997, 5_000]);
    let windows = prop_oneof![
        3 => prop::collection::vec(window(), 1),
        1 => prop::collection::vec(window(), 2)
    ];
    windows.prop_flat_map(move |windows| {
        let quotas: Vec<_> = windows.into_iter().map(quota_of).collect();
        prop::collection::vec(quotas, rules)
    })
}

/// A rule of the path that all rules of a history share.
fn rule_of(quotas: &[Quota], algorithm: Algorithm) -> Arc<Rule> {
    let names = quotas.iter().enumerate();
    let policies = names.map(|(at, quota)| Policy::new(&at.to_string(), *quota));
    let rule = Rule::with_policies("p", policies).expect("valid");
    Arc::new(rule.with_algorithm(algorithm))
}

/// What happens at one instant.
#[derive(Debug, Clone)]
enum Step {
    /// So many microseconds pass.
    Wait(u64),
    /// Nearly as long as the last denial said.
    Retry(u64),
    /// A take by one of the rules.
    Take(usize, u64),
    /// One of the latest charges is given back.
    Refund(usize),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::sample::select(vec![0, 0, 0, 1, 2]), 0..9_u64)
            .prop_map(|(rule, cost)| Step::Take(rule, cost)),
        8 => Just(Step::Take(0, 1)),
        4 => prop_oneof![Just(1), 1..2_000_u64, 1..3_000_000_u64].prop_map(Step::Wait),
        3 => (0..3_u64).prop_map(Step::Retry),
        1 => (0..4_usize).prop_map(Step::Refund),
        1 => Just(Step::Reset),
    ]
}

/// A store behind a cache, and a second one that is asked everything itself.
struct Twins {
    clock: ManualClock,
    cached: Resilient<MemoryStore>,
    bare: MemoryStore,
    answered_by_cache: usize,
}

impl Twins {
    fn new(max_age: Duration) -> Self {
        let clock = clock_at(1_800_000_000_000_777);
        let inner = MemoryStore::new().clock(clock.clone());
        let cached = Resilient::bare(inner).denial_cache(max_age);
        Self {
            cached: cached.clock(clock.clone()),
            bare: MemoryStore::new().clock(clock.clone()),
            clock,
            answered_by_cache: 0,
        }
    }

    fn take(&mut self, take: &Take) -> Result<(Decision, Decision), TestCaseError> {
        let told = self.cached.take(take).now_or_never().expect("memory");
        let own = self.bare.take(take).now_or_never().expect("memory");
        let (told, own) = (told.expect("room"), own.expect("room"));
        prop_assert_eq!(told.is_allowed(), own.is_allowed());
        if is_cached(&told) {
            self.answered_by_cache += 1;
            // What was charged at another cost makes the store's own longer.
            prop_assert!(told.retry_after() <= own.retry_after());
            prop_assert!(told.retry_after() != Some(Duration::ZERO));
            let never = told.retry_after().is_none();
            prop_assert_eq!(never, own.retry_after().is_none());
        } else {
            prop_assert_eq!(told.verdict(), own.verdict());
            prop_assert_eq!(told.quotas(), own.quotas());
        }
        Ok((told, own))
    }

    fn run(&mut self, rules: &[Arc<Rule>], steps: &[Step]) -> Result<(), TestCaseError> {
        let mut retry_after = 0;
        let mut charged = Vec::new();
        for step in steps {
            let now = self.clock.now();
            match *step {
                Step::Wait(micros) => self.clock.set(now + micros),
                Step::Retry(less) => self.clock.set(now + retry_after - less.min(retry_after)),
                Step::Take(rule, cost) => {
                    let take = Take::new(Arc::clone(&rules[rule]), Key::default()).with_cost(cost);
                    let (told, own) = self.take(&take)?;
                    let wait = own.retry_after().unwrap_or_default();
                    retry_after = u64::try_from(wait.as_micros()).expect("short");
                    let receipts = told.receipt().zip(own.receipt());
                    charged.extend(receipts.map(|(told, own)| (take, told, own)));
                }
                Step::Refund(which) => {
                    if let Some((take, told, own)) = charged.iter().rev().nth(which) {
                        let told = self.cached.refund(take, told).now_or_never();
                        let own = self.bare.refund(take, own).now_or_never();
                        let given_back = told.expect("memory").expect("answers");
                        prop_assert_eq!(given_back, own.expect("memory").expect("answers"));
                    }
                }
                Step::Reset => {
                    for store in [&self.cached as &dyn Store, &self.bare] {
                        let of_rule = Take::new(Arc::clone(&rules[0]), Key::default());
                        let reset = store.reset(&of_rule).now_or_never();
                        reset.expect("memory").expect("answers");
                    }
                    self.clock.set(now + 1);
                }
            }
        }
        Ok(())
    }
}

fn number_of_histories() -> u32 {
    let number = std::env::var("TIDEGATE_HISTORIES");
    number.map_or(400, |number| number.parse().expect("a number"))
}

#[test]
fn cached_verdicts_are_the_stores_own() {
    let ages = [100 * MICROSECOND, millis(100), Duration::MAX];
    let history = (
        prop::sample::select(Algorithm::ALL.to_vec()),
        prop::sample::select(ages.to_vec()),
        quotas(3),
        prop::collection::vec(step(), 1..60),
    );
    let answered = std::cell::Cell::new(0);
    let config = config(number_of_histories());
    proptest!(config, |((algorithm, max_age, quotas, steps) in history)| {
        let quotas = quotas.iter().map(|of_rule| match algorithm {
            // How long a charge counts depends on the rate.
            Algorithm::Gcra => &quotas[0],
            _ => of_rule,
        });
        let rules: Vec<_> = quotas.map(|quotas| rule_of(quotas, algorithm)).collect();
        let mut twins = Twins::new(max_age);
        twins.run(&rules, &steps)?;
        answered.set(answered.get() + twins.answered_by_cache);
    });
    let least = number_of_histories() as usize / 4;
    assert!(answered.get() > least, "{}", answered.get());
}

/// What one of many callers does. Times are in microseconds.
#[derive(Debug, Clone)]
struct Call {
    at: u64,
    there: u64,
    back: u64,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Take(u64),
    /// A take whose charge is given back at once.
    TakeAndRefund(u64),
    Reset,
}

const MAX_WAY: u64 = 40_000;

fn call() -> impl Strategy<Value = Call> {
    let what = prop_oneof![
        20 => prop_oneof![3 => Just(1), 1 => 1..5_u64].prop_map(What::Take),
        2 => (1..3_u64).prop_map(What::TakeAndRefund),
        1 => Just(What::Reset),
    ];
    let way = || prop_oneof![Just(0), 1..MAX_WAY];
    (0..3_000_000_u64, way(), way(), what).prop_map(|(at, there, back, what)| Call {
        at,
        there,
        back,
        what,
    })
}

struct Fleet {
    delayed: Delayed,
    store: Resilient<Stub>,
    rule: Arc<Rule>,
    began: Instant,
}

impl Fleet {
    async fn sleep_until(&self, micros: u64) {
        sleep_until(self.began + Duration::from_micros(micros)).await;
    }

    /// Returns how many answers came from the cache.
    async fn run(&self, call: &Call) -> Result<usize, TestCaseError> {
        self.sleep_until(call.at).await;
        let ways = [call.there, call.back].map(Duration::from_micros);
        self.delayed.set(ways[0], ways[1]);
        let (What::Take(cost) | What::TakeAndRefund(cost)) = call.what else {
            let of_rule = Take::new(Arc::clone(&self.rule), Key::default());
            let reset = self.store.reset(&of_rule).await;
            reset.expect("answers");
            return Ok(0);
        };
        let take = Take::new(Arc::clone(&self.rule), Key::default()).with_cost(cost);
        let mut pending = self.store.take(&take);
        let told = match pending.poll_now() {
            Some(told) => told.expect("decided"),
            None => {
                let receipt = pending.await.expect("decided").receipt();
                if let (What::TakeAndRefund(_), Some(receipt)) = (&call.what, receipt) {
                    self.store.refund(&take, &receipt).await.expect("answers");
                }
                return Ok(0);
            }
        };
        let own = ask(&*self.delayed.memory, &take).await;
        prop_assert!(
            is_cached(&told) && !own.is_allowed(),
            "{:?} {:?}",
            told,
            own
        );
        let way_back = Duration::from_micros(MAX_WAY);
        prop_assert!(told.retry_after() <= own.retry_after().map(|own| own + way_back));
        Ok(1)
    }
}

/// Questions and answers overtake each other.
#[test]
fn cached_verdicts_are_the_stores_own_over_a_network() {
    let history = (
        prop::sample::select(Algorithm::ALL.to_vec()),
        prop::sample::select(vec![10 * MILLISECOND, Duration::MAX]),
        quotas(1),
        prop::collection::vec(call(), 20..120),
    );
    let answered = std::cell::Cell::new(0);
    let config = config(number_of_histories() / 4);
    proptest!(config, |((algorithm, max_age, quotas, calls) in history)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let outcomes = runtime.expect("a runtime").block_on(async {
            let delayed = Delayed::new(Duration::ZERO, Duration::ZERO);
            let fleet = Fleet {
                store: Resilient::bare(delayed.store.clone()).denial_cache(max_age),
                delayed,
                rule: rule_of(&quotas[0], algorithm),
                began: Instant::now(),
            };
            join_all(calls.iter().map(|call| fleet.run(call))).await
        });
        for outcome in outcomes {
            answered.set(answered.get() + outcome?);
        }
    });
    let least = number_of_histories() as usize / 4;
    assert!(answered.get() > least, "{}", answered.get());
}
