//! Plans at the ends of what a quota may be, beside one another on one key: no panic, no error, and
//! the same in memory and in Redis.

use super::*;

/// Units beyond 2^53 in a window of ten years, which a double does not hold. Not of a log: it
/// counts modulo 2^52 units, and other plans may charge more than its max.
#[tokio::test]
async fn the_largest_numbers_along_the_longest_window() {
    let stores = Stores::start().await;
    for algorithm in ALGORITHMS.into_iter().skip(1) {
        let most = Quota::MAX_UNITS;
        let rule = of_own("most", &[(most, millis(1))]).with_algorithm(algorithm);
        let plans: [(&str, Pairs<'_>); 3] = [
            ("a", &[(1, Quota::MAX_WINDOW)]),
            ("b", &[(most, Quota::MAX_WINDOW)]),
            ("c", &[(most, SECOND)]),
        ];
        let rules = all_of(with_plans(rule, &plans));
        for one in stores
            .all
            .iter()
            .filter(|one| !one.name.starts_with("wrapped"))
        {
            let case = format!("{}, {algorithm:?}", one.name);
            for round in 0..40 {
                let decision = ask(&*one.store, &rules[0], most).await;
                assert!(decision.is_allowed(), "{case} {round}: {decision:?}");
                one.advance(millis(2));
                for denied in [1, 2, 3] {
                    let decision = ask(&*one.store, &rules[denied], 1).await;
                    let is_free = denied == 3 && algorithm == Algorithm::FixedWindow;
                    let may_pass = is_free || algorithm == Algorithm::Gcra;
                    let is_right = may_pass || !decision.is_allowed();
                    assert!(is_right, "{case} {round}, plan {denied}: {decision:?}");
                }
                one.advance(millis(1));
            }
            let wait = ask(&*one.store, &rules[1], 1).await.retry_after();
            let wait = wait.unwrap_or_else(|| panic!("{case}: it is denied"));
            assert!(wait <= 2 * Quota::MAX_WINDOW, "{case}: {wait:?}");
            one.advance(wait);
            let then = ask(&*one.store, &rules[1], 1).await;
            assert!(then.is_allowed(), "{case}: {then:?}");
            one.advance(3 * Quota::MAX_WINDOW / 100);
        }
    }
    let ten_years = Quota::MAX_WINDOW.as_millis() as i64;
    for key in keys(&stores.server, "*") {
        let life: i64 = stores.server.connection().pttl(&key).expect("a time");
        let is_bounded = (0..=ten_years / 8 * 9 + 10_000).contains(&life);
        assert!(is_bounded, "law 4: {key} {life}");
    }
}

/// Nothing for one plan, much for the other; more at once than one plan can ever have.
#[tokio::test]
async fn max_0_and_costs_above_the_max() {
    for (_, one, algorithm) in Stores::start().await.cases() {
        let rule = of_own("none", &[(0, HOUR)]).with_algorithm(algorithm);
        let many: (&str, Pairs<'_>) = ("many", &[(1_000, HOUR), (2_000, 2 * HOUR)]);
        let rules = all_of(with_plans(rule, &[("few", &[(3, HOUR)]), many]));
        let [none, few, many] = &rules[..] else {
            panic!("three")
        };
        let ask = async |rule, cost| ask(&*one.store, rule, cost).await;
        for is_room in [true, false] {
            // Never stays never, also while there is no room.
            assert_eq!(ask(none, 1).await.verdict(), Verdict::Never);
            assert_eq!(ask(few, 4).await.verdict(), Verdict::Never);
            assert!(!is_room || ask(many, 500).await.is_allowed());
        }
        let denied = ask(few, 1).await.verdict();
        assert!(matches!(denied, Verdict::Denied { .. }));
        for (rule, left) in [(none, 0), (few, 0), (many, 500)] {
            assert_eq!(ask(rule, 0).await.remaining(), left, "{algorithm:?}");
        }
        one.advance(2_000 * HOUR);
    }
}

/// Bursts of plans: each bucket has its own size, however the others are used.
#[tokio::test]
async fn bursts() {
    let stores = Stores::start().await;
    for one in &stores.all {
        let burst = |max, size| quota((max, SECOND)).with_burst(size).expect("valid");
        let mut rule = Rule::new("burst", [burst(10, 1)]).expect("valid");
        rule = rule.with_algorithm(Algorithm::Gcra);
        for (name, quota) in [("pro", burst(10, 20)), ("slow", burst(1, 50))] {
            let quotas = Quotas::new([quota]).expect("valid");
            rule = rule.with_plan(name, quotas).expect("valid");
        }
        let rules = all_of(rule);
        let [own, pro, slow] = &rules[..] else {
            panic!("three")
        };
        let ask = async |rule, cost| ask(&*one.store, rule, cost).await;
        assert_eq!(ask(own, 2).await.verdict(), Verdict::Never);
        assert!(ask(pro, 20).await.is_allowed());
        assert!(!ask(pro, 1).await.is_allowed());
        assert!(!ask(own, 1).await.is_allowed());
        assert_eq!(ask(slow, 0).await.remaining(), 30, "{}", one.name);
        one.advance(millis(2_000));
        assert!(ask(pro, 20).await.is_allowed());
        assert_eq!(ask(slow, 0).await.remaining(), 12, "{}", one.name);
        // What others charge fills a bucket with no more than its max.
        one.advance(millis(1_000));
        let decision = ask(own, 1).await;
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
        for _ in 0..250 {
            let mut pairs: Vec<(u64, Duration)> = Vec::new();
            for _ in 0..=random.below(16) {
                let window = millis(1 << random.below(39)).min(Quota::MAX_WINDOW);
                let max = (1_u64 << random.below(51)).min(Quota::MAX_UNITS) - random.below(2);
                if pairs.iter().all(|(_, other)| *other != window) {
                    pairs.push((max, window));
                }
            }
            let rule = rule.under(&Plan::from(quotas(&pairs))).expect("it fits");
            let cost = 1 << random.below(52);
            let [memory, redis] = [&stores.all[0], &stores.all[1]];
            let first = ask(&*memory.store, &rule, cost).await;
            let second = ask(&*redis.store, &rule, cost).await;
            assert_eq!(first.verdict(), second.verdict(), "law 8, {algorithm:?}");
            assert_eq!(first.quotas(), second.quotas(), "law 8, {algorithm:?}");
            if let Some(wait) = first.retry_after() {
                assert!(wait <= 2 * Quota::MAX_WINDOW, "{algorithm:?}: {wait:?}");
            }
            let bits = random.below(46);
            let by = Duration::from_micros(random.below(1 << bits));
            memory.advance(by);
            redis.advance(by);
        }
    }
}
