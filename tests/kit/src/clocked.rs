//! Stores whose time a test moves: memory, Redis, and both in wrappers.

use std::sync::Arc;
use std::time::Duration;

use crate::Redis;
use tidegate::rule::Share;
use tidegate::test_util::{ManualClock, conformance};
use tidegate::{Algorithm, Key, MemoryStore, Quota, RedisStore, Resilient, Rule, Store, Take};

use crate::PATIENT;

/// A store, and the clock that it reads.
pub struct Clocked {
    pub name: &'static str,
    pub store: Arc<dyn Store>,
    pub clock: ManualClock,
}

impl Clocked {
    pub fn new(name: &'static str, make: impl FnOnce(ManualClock) -> Arc<dyn Store>) -> Self {
        let clock = clock_at(1_800_000_000_000_777);
        let store = make(clock.clone());
        Self { name, store, clock }
    }

    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).expect("a short time");
        self.clock.set(self.clock.now() + by);
    }

    /// What is left, as the store says.
    pub async fn remaining(&self, take: &Take) -> u64 {
        remaining(&*self.store, take).await
    }

    /// A take that is allowed.
    pub async fn charge(&self, take: &Take) -> tidegate::store::Charge {
        charge(&self.store, take).await
    }
}

impl conformance::Context for Clocked {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

/// A clock that a test moves; it stands at this time.
pub fn clock_at(micros: u64) -> ManualClock {
    let clock = ManualClock::default();
    clock.set(micros);
    clock
}

pub async fn remaining(store: &dyn Store, take: &Take) -> u64 {
    store.peek(take).await.expect("a decision").remaining()
}

pub async fn charge(store: &Arc<dyn Store>, take: &Take) -> tidegate::store::Charge {
    let decision = store.take(take).await.expect("a decision");
    let receipt = decision.receipt();
    let receipt = receipt.unwrap_or_else(|| panic!("{take:?} is not charged: {decision:?}"));
    tidegate::store::Charge::new(Arc::clone(store), take.clone(), receipt)
}

/// All of them; the servers are gone when it is dropped.
pub struct Stores {
    pub all: Vec<Clocked>,
    pub server: Redis,
    _other: Redis,
}

impl Stores {
    pub async fn start() -> Self {
        let (server, other) = (Redis::start(), Redis::start());
        let plain = store(&server.url).await;
        let wrapped = store(&other.url).await;
        let around = |store, clock| {
            let share = Share::of_processes(1);
            Resilient::new(store).fallback(share).clock(clock)
        };
        let all = vec![
            Clocked::new("memory", |clock| Arc::new(MemoryStore::new().clock(clock))),
            Clocked::new("redis", |clock| Arc::new(plain.clock(clock))),
            Clocked::new("wrapped redis", |clock| {
                let inner: Arc<dyn Store> = Arc::new(wrapped.clock(clock.clone()));
                around(inner, clock).build()
            }),
            Clocked::new("wrapped memory", |clock| {
                let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
                around(inner, clock).in_flight(100_000).build()
            }),
        ];
        Self {
            all,
            server,
            _other: other,
        }
    }

    /// All of them under each of these algorithms, and what to call each case.
    pub fn cases_of<const N: usize>(
        &self,
        algorithms: [Algorithm; N],
    ) -> impl Iterator<Item = (String, &Clocked, Algorithm)> {
        self.all.iter().flat_map(move |clocked| {
            let name = move |algorithm| format!("{} {algorithm:?}", clocked.name);
            algorithms.map(|algorithm| (name(algorithm), clocked, algorithm))
        })
    }

    /// The same for all algorithms.
    pub fn cases(&self) -> impl Iterator<Item = (String, &Clocked, Algorithm)> {
        self.cases_of(Algorithm::ALL)
    }
}

async fn store(url: &str) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    store.timeout(PATIENT)
}

/// A rule of one quota.
pub fn by(algorithm: Algorithm, path: &str, max: u64, window: Duration) -> Arc<Rule> {
    let quota = Quota::new(window, max).expect("a valid quota");
    let rule = Rule::new(path, [quota]).expect("a valid rule");
    Arc::new(rule.with_algorithm(algorithm))
}

pub fn take_of(rule: &Arc<Rule>, key: &Key, cost: u64) -> Take {
    Take::new(Arc::clone(rule), key.clone()).with_cost(cost)
}

/// What a store on a real clock has, or gives back: under GCRA a unit drains from the first
/// microsecond on, and what has begun to drain is not given back.
pub fn assert_units(algorithm: Algorithm, got: u64, expected: u64) {
    let drained = u64::from(algorithm == Algorithm::Gcra && expected > 0);
    let is_right = (expected - drained..=expected).contains(&got);
    assert!(is_right, "{algorithm:?}: {got} units, expected {expected}");
}
