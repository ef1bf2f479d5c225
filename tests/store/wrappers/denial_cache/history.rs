//! Random histories over a network: the verdict of every cached denial is the store's own, at that
//! instant. `tests/histories` plays a cache beside its store.

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

/// The quotas of a rule.
fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let window = || prop::sample::select(vec![3, 100, 997, 5_000]);
    let windows = prop_oneof![
        3 => prop::collection::vec(window(), 1),
        1 => prop::collection::vec(window(), 2)
    ];
    windows.prop_flat_map(|mut windows| {
        windows.sort_unstable();
        windows.dedup();
        windows.into_iter().map(quota_of).collect::<Vec<_>>()
    })
}

fn rule_of(quotas: &[Quota], algorithm: Algorithm) -> Arc<Rule> {
    let rule = Rule::new("p", quotas.iter().copied()).expect("valid");
    Arc::new(rule.with_algorithm(algorithm))
}

fn number_of_histories() -> u32 {
    let number = std::env::var("TIDEGATE_HISTORIES");
    number.map_or(400, |number| number.parse().expect("a number"))
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
        quotas(),
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
                rule: rule_of(&quotas, algorithm),
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
