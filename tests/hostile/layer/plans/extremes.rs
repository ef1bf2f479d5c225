//! Plans at the ends of what a quota may be, beside one another on one key: no panic, no error, and
//! the same in memory and in Redis.

use std::sync::Arc;
use std::time::Duration;

use kit::random::Random;
use redis::Commands;
use tidegate::decision::Verdict;
use tidegate::{Algorithm, Decision, Key, Quota, Rule, Store, Take};

use super::{ALGORITHMS, all_of, of_own, quota, quotas, with_plans};
use kit::clocked::Stores;
use kit::{HOUR, millis};

async fn ask(store: &dyn Store, rule: &Arc<Rule>, cost: u64) -> Decision {
    let take = Take::new(Arc::clone(rule), Key::from("x")).with_cost(cost);
    store.take(&take).await.expect("a decision")
}

/// Units beyond 2^53 in a window of ten years, which a double does not hold.
async fn the_largest_numbers(algorithms: impl IntoIterator<Item = Algorithm>) {
    let stores = Stores::start().await;
    for algorithm in algorithms {
        let most = Quota::MAX_UNITS;
        let rule = of_own("most", &[(most, millis(1))]).with_algorithm(algorithm);
        let rules = all_of(with_plans(
            rule,
            &[
                ("a", &[(1, Quota::MAX_WINDOW)]),
                ("b", &[(most, Quota::MAX_WINDOW)]),
                ("c", &[(most, Duration::from_secs(1))]),
            ],
        ));
        for one in stores
            .all
            .iter()
            .filter(|one| !one.name.starts_with("wrapped"))
        {
            for round in 0..40 {
                let decision = ask(&*one.store, &rules[0], most).await;
                assert!(
                    decision.is_allowed(),
                    "{}, {algorithm:?} {round}: {decision:?}",
                    one.name
                );
                one.advance(millis(2));
                for denied in [1, 2, 3] {
                    let decision = ask(&*one.store, &rules[denied], 1).await;
                    let is_free = denied == 3 && algorithm == Algorithm::FixedWindow;
                    let is_gcra = algorithm == Algorithm::Gcra;
                    let is_allowed = decision.is_allowed();
                    assert!(
                        !is_allowed || is_free || is_gcra,
                        "{}, {algorithm:?} {round}, plan {denied}: {decision:?}",
                        one.name
                    );
                }
                one.advance(millis(1));
            }
            let wait = ask(&*one.store, &rules[1], 1).await.retry_after();
            let wait = wait.unwrap_or_else(|| panic!("{algorithm:?}: it is denied"));
            assert!(wait <= 2 * Quota::MAX_WINDOW, "{algorithm:?}: {wait:?}");
            one.advance(wait);
            let then = ask(&*one.store, &rules[1], 1).await;
            assert!(then.is_allowed(), "{}, {algorithm:?}: {then:?}", one.name);
            one.advance(3 * Quota::MAX_WINDOW / 100);
        }
    }
    let mut connection = stores.server.connection();
    let keys: Vec<String> = connection.keys("*").expect("keys");
    for key in keys {
        let life: i64 = connection.pttl(&key).expect("a time");
        let ten_years = Quota::MAX_WINDOW.as_millis() as i64;
        assert!(
            (0..=ten_years / 8 * 9 + 10_000).contains(&life),
            "law 4: {key} {life}"
        );
    }
}

/// Not of a log: it counts modulo 2^52 units, and other plans may charge more than its max.
#[tokio::test]
async fn the_largest_numbers_along_the_longest_window() {
    the_largest_numbers(ALGORITHMS.into_iter().skip(1)).await;
}

/// Nothing for one plan, much for the other; more at once than one plan can ever have.
#[tokio::test]
async fn max_0_and_costs_above_the_max() {
    let stores = Stores::start().await;
    for one in &stores.all {
        for algorithm in ALGORITHMS {
            let rule = of_own("none", &[(0, HOUR)]).with_algorithm(algorithm);
            let rules = all_of(with_plans(
                rule,
                &[
                    ("few", &[(3, HOUR)]),
                    ("many", &[(1_000, HOUR), (2_000, 2 * HOUR)]),
                ],
            ));
            let [none, few, many] = &rules[..] else {
                panic!("three")
            };
            assert_eq!(ask(&*one.store, none, 1).await.verdict(), Verdict::Never);
            assert_eq!(ask(&*one.store, few, 4).await.verdict(), Verdict::Never);
            assert!(ask(&*one.store, many, 500).await.is_allowed());
            // Never stays never, also while there is no room.
            assert_eq!(ask(&*one.store, none, 1).await.verdict(), Verdict::Never);
            assert_eq!(ask(&*one.store, few, 4).await.verdict(), Verdict::Never);
            assert!(matches!(
                ask(&*one.store, few, 1).await.verdict(),
                Verdict::Denied { .. }
            ));
            assert_eq!(ask(&*one.store, none, 0).await.remaining(), 0);
            assert_eq!(ask(&*one.store, few, 0).await.remaining(), 0);
            assert_eq!(
                ask(&*one.store, many, 0).await.remaining(),
                500,
                "{algorithm:?}"
            );
            one.advance(2_000 * HOUR);
        }
    }
}

/// Bursts of plans: each bucket has its own size, however the others are used.
#[tokio::test]
async fn bursts() {
    let stores = Stores::start().await;
    for one in &stores.all {
        let burst = |max, burst| quota((max, Duration::from_secs(1))).with_burst(burst);
        let of = |max, size| tidegate::rule::Quotas::new([burst(max, size).expect("valid")]);
        let rule = Rule::new("burst", [burst(10, 1).expect("valid")]).expect("valid");
        let rule = rule.with_algorithm(Algorithm::Gcra);
        let rule = rule
            .with_plan("pro", of(10, 20).expect("valid"))
            .expect("valid");
        let rule = rule
            .with_plan("slow", of(1, 50).expect("valid"))
            .expect("valid");
        let rules = all_of(rule);
        let [own, pro, slow] = &rules[..] else {
            panic!("three")
        };
        assert_eq!(ask(&*one.store, own, 2).await.verdict(), Verdict::Never);
        assert!(ask(&*one.store, pro, 20).await.is_allowed());
        assert!(!ask(&*one.store, pro, 1).await.is_allowed());
        assert!(!ask(&*one.store, own, 1).await.is_allowed());
        assert_eq!(
            ask(&*one.store, slow, 0).await.remaining(),
            30,
            "{}",
            one.name
        );
        one.advance(millis(2_000));
        assert!(ask(&*one.store, pro, 20).await.is_allowed());
        assert_eq!(
            ask(&*one.store, slow, 0).await.remaining(),
            12,
            "{}",
            one.name
        );
        // What others charge fills a bucket with no more than its max.
        one.advance(millis(1_000));
        let decision = ask(&*one.store, own, 1).await;
        assert!(decision.is_allowed(), "{}: {decision:?}", one.name);
    }
}

/// Quotas of all sizes at random, from code, on one key: memory and Redis agree, and neither fails.
#[tokio::test]
async fn any_quotas_on_one_key() {
    let stores = Stores::start().await;
    let mut random = Random::new(0xe0);
    for algorithm in ALGORITHMS {
        let rule = Arc::new(of_own("any", &[(1, HOUR)]).with_algorithm(algorithm));
        let mut allowed = 0;
        for _ in 0..250 {
            let mut pairs: Vec<(u64, Duration)> = Vec::new();
            for _ in 0..=random.below(16) {
                let window = Duration::from_millis(1 << random.below(39)).min(Quota::MAX_WINDOW);
                let max = (1_u64 << random.below(51)).min(Quota::MAX_UNITS) - random.below(2);
                if pairs.iter().all(|(_, other)| *other != window) {
                    pairs.push((max, window));
                }
            }
            let rule = rule.of_quotas(Arc::new(quotas(&pairs)));
            let cost = 1 << random.below(52);
            let (memory, redis) = (&stores.all[0], &stores.all[1]);
            let [first, second] = [
                ask(&*memory.store, &rule, cost).await,
                ask(&*redis.store, &rule, cost).await,
            ];
            assert_eq!(first.verdict(), second.verdict(), "law 8, {algorithm:?}");
            assert_eq!(first.quotas(), second.quotas(), "law 8, {algorithm:?}");
            if let Some(wait) = first.retry_after() {
                assert!(wait <= 2 * Quota::MAX_WINDOW, "{algorithm:?}: {wait:?}");
            }
            allowed += u64::from(first.is_allowed());
            let bits = random.below(46);
            let by = Duration::from_micros(random.below(1 << bits));
            memory.advance(by);
            redis.advance(by);
        }
        println!("{algorithm:?}: {allowed}");
    }
}
