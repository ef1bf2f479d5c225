//! One key under several plans on a clock of the test, in memory and in Redis, bare and wrapped:
//! more of them than `tests/histories` draws, and what was broken once.

use kit::clocked::Clocked;

use super::oracle::Oracle;
use super::*;

async fn ask(store: &dyn Store, rule: &Arc<Rule>, key: &str, cost: u64) -> Decision {
    let take = Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost);
    store.take(&take).await.expect("a decision")
}

/// What comes next in a history: which rule is asked, for how many units, after what time.
async fn step(
    (stores, oracle): (&[&Clocked], &mut Oracle),
    (rule, quotas): (&Arc<Rule>, &[Quota]),
    (key, cost): (&str, u64),
) -> Decision {
    let now = stores[0].clock.now();
    let mut first: Option<Decision> = None;
    for one in stores {
        let decision = ask(&*one.store, rule, key, cost).await;
        let states = |it: &Decision| (it.verdict(), it.quotas().to_vec(), it.receipt().is_some());
        match &first {
            None => first = Some(decision),
            Some(first) => assert_eq!(states(first), states(&decision), "law 8: {}", one.name),
        }
    }
    let decision = first.expect("there is a store");
    if decision.is_allowed() && cost > 0 {
        oracle.charge(now, cost, quotas);
        oracle.check_allowed(now, quotas, &decision);
    }
    decision
}

/// A wrapped store may answer a denial from its cache: compared are the bare ones.
fn bare(stores: &Stores) -> Vec<&Clocked> {
    let all = stores.all.iter();
    all.filter(|one| !one.name.starts_with("wrapped")).collect()
}

/// Nearly as many windows as a count has counters: never laxer, and no denial for ever.
#[tokio::test]
async fn thirty_plans_of_thirty_windows() {
    let stores = Stores::start().await;
    let stores = bare(&stores);
    let mut random = Random::new(0x91a6);
    for history in 0..24_u64 {
        let algorithm = ALGORITHMS[(history % 4) as usize];
        let mut rule = of_own(&format!("f{history}"), &[(3, millis(100))]);
        for plan in 0..30_u64 {
            let window = millis(70 + 130 * plan + random.below(100));
            let max = 1 + random.below(30);
            let pairs = [(max, window)];
            rule = with_plans(rule, &[(&*format!("p{plan}"), &pairs)]);
        }
        let rules = all_of(rule.with_algorithm(algorithm));
        let mut oracle = Oracle::new(algorithm);
        let mut allowed = 0;
        for _ in 0..100 {
            let by = Duration::from_micros(1_001 + random.below(200_000));
            stores.iter().for_each(|one| one.advance(by));
            let rule = &rules[random.below(31) as usize];
            let of = (rule, rule.quotas());
            let cost = 1 + random.below(2);
            let decision = step((&stores, &mut oracle), of, ("x", cost)).await;
            allowed += u64::from(decision.is_allowed());
        }
        assert!(allowed > 10, "{algorithm:?}: {allowed}");
        // All of it passes: the longest window is below 6 s, and a bucket of 100 units drains at a
        // rate of 1 in 6 s.
        stores
            .iter()
            .for_each(|one| one.advance(Duration::from_secs(1_500)));
        for rule in &rules {
            let decision = ask(&*stores[0].store, rule, "x", 0).await;
            let max = rule.quotas()[0].max();
            assert_eq!(decision.remaining(), max, "{algorithm:?}: {rule:?}");
        }
    }
}

/// What was charged under a long window outlives thousands of others that take turns on the key.
#[tokio::test]
async fn a_long_window_outlives_thousands_of_short_ones() {
    let stores = Stores::start().await;
    for one in bare(&stores) {
        for algorithm in ALGORITHMS {
            let rule = of_own("long", &[(1_000_000, millis(200))]).with_algorithm(algorithm);
            let rule = Arc::new(rule);
            let under = |of: Pairs<'_>| rule.under(&Plan::from(quotas(of))).expect("it fits");
            let long = under(&[(5, Duration::from_secs(3_600))]);
            // In one instant: a bucket of 5 an hour does not drain much.
            for _ in 0..5 {
                let decision = ask(&*one.store, &long, "x", 1).await;
                assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
            }
            for at in 0..3_000_u64 {
                let short = under(&[(100_000 + at, millis(100 + at % 90))]);
                let decision = ask(&*one.store, &short, "x", u64::from(at % 3 == 0)).await;
                // A bucket that is new for a key in heavy use begins full.
                let may_deny = algorithm == Algorithm::Gcra;
                let is_right = decision.is_allowed() || may_deny;
                assert!(is_right, "{algorithm:?}: {decision:?}");
                one.advance(millis(1));
            }
            let decision = ask(&*one.store, &long, "x", 1).await;
            let is_so = !decision.is_allowed();
            assert!(is_so, "{}, {algorithm:?}: {decision:?}", one.name);
            one.advance(Duration::from_secs(50 * 24 * 3_600));
        }
    }
}
