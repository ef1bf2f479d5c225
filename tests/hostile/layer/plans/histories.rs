//! Histories of one key under several plans on a clock of the test, in memory and in Redis, bare
//! and wrapped: laws 1, 2, 3, 8 and 14 by an oracle that only adds up.

use std::sync::Arc;
use std::time::Duration;

use kit::random::Random;
use tidegate::rule::Quotas;
use tidegate::{Algorithm, Decision, Key, Quota, Rule, Store, Take};

use super::oracle::Oracle;
use super::{ALGORITHMS, Pairs, all_of, of_own, quota, quotas, with_plans};
use kit::clocked::{Clocked, Stores};
use kit::millis;

async fn ask(store: &dyn Store, rule: &Arc<Rule>, key: &str, cost: u64) -> Decision {
    let take = Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost);
    store.take(&take).await.expect("a decision")
}

fn any_pairs(random: &mut Random, number: u64) -> Vec<(u64, Duration)> {
    let windows = [3, 10, 50, 300, 1_000, 2_500, 10_000, 60_000];
    let mut pairs: Vec<(u64, Duration)> = Vec::new();
    for _ in 0..=random.below(number) {
        let window = millis(windows[random.below(8) as usize]);
        let max = [0, 1, 2, 3, 5, 8, 13, 40][random.below(8) as usize];
        if pairs.iter().all(|(_, other)| *other != window) {
            pairs.push((max, window));
        }
    }
    pairs
}

fn any_step(random: &mut Random) -> Duration {
    let most = [0, 1_000, 7_000, 100_000, 1_500_000, 20_000_000][random.below(6) as usize];
    // A millisecond at least: a log may put the charges of one together.
    Duration::from_micros(1_001 + random.below(most + 1))
}

/// What comes next in a history: which rule is asked, for how many units, after what time.
async fn step(
    (stores, oracle): (&[&Clocked], &mut Oracle),
    (rule, quotas): (&Arc<Rule>, &[Quota]),
    (key, cost): (&str, u64),
    until: u64,
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
        oracle.charge(now, cost, until);
        oracle.check_allowed(now, quotas, &decision);
    }
    decision
}

/// A wrapped store may answer a denial from its cache: compared are the bare ones.
fn bare(stores: &Stores) -> Vec<&Clocked> {
    stores
        .all
        .iter()
        .filter(|one| !one.name.starts_with("wrapped"))
        .collect()
}

#[tokio::test]
async fn plans_take_turns() {
    let stores = Stores::start().await;
    let stores = bare(&stores);
    let mut random = Random::new(0x91a5);
    let (mut allowed, mut denied) = (0, 0);
    for history in 0..160_u64 {
        let algorithm = ALGORITHMS[(history % 4) as usize];
        let path = format!("p{history}");
        let own = any_pairs(&mut random, 3);
        let plans: Vec<_> = (0..3).map(|_| any_pairs(&mut random, 3)).collect();
        let named: Vec<(&str, Pairs<'_>)> = ["free", "pro", "max"]
            .into_iter()
            .zip(plans.iter().map(Vec::as_slice))
            .collect();
        let rule = with_plans(of_own(&path, &own).with_algorithm(algorithm), &named);
        let rules = all_of(rule);
        let mut oracle = Oracle::new(algorithm);
        for _ in 0..60 {
            let by = any_step(&mut random);
            stores.iter().for_each(|one| one.advance(by));
            let rule = &rules[random.below(4) as usize];
            let cost = [1, 1, 1, 2, 5][random.below(5) as usize];
            let of = (rule, rule.quotas());
            let decision = step((&stores, &mut oracle), of, ("x", cost), u64::MAX).await;
            let now = stores[0].clock.now();
            if algorithm == Algorithm::SlidingLog {
                let left = rule
                    .quotas()
                    .iter()
                    .map(|quota| oracle.left_of_log(now, quota));
                let says = decision.quotas().iter().map(|state| state.remaining());
                assert!(left.eq(says), "{rule:?}: {decision:?}, {oracle:?}");
            }
            match decision.is_allowed() {
                true => allowed += 1,
                false => {
                    denied += 1;
                    oracle.check_denied(now, rule.quotas(), cost, &decision);
                }
            }
            let Some(wait) = decision.retry_after() else {
                continue;
            };
            // Law 3, and law 2: asking in between changes nothing.
            if random.is(40) {
                let micro = Duration::from_micros(1);
                stores.iter().for_each(|one| one.advance(wait - micro));
                for other in &rules {
                    let looks = (other, other.quotas());
                    step((&stores, &mut oracle), looks, ("x", 0), u64::MAX).await;
                }
                let early = step((&stores, &mut oracle), of, ("x", cost), u64::MAX).await;
                assert!(!early.is_allowed(), "law 3, early: {decision:?} {early:?}");
                stores.iter().for_each(|one| one.advance(micro));
                let then = step((&stores, &mut oracle), of, ("x", cost), u64::MAX).await;
                assert!(then.is_allowed(), "law 3: {decision:?}, then {then:?}");
            }
        }
    }
    println!("{allowed} allowed, {denied} denied");
    assert!(allowed > 1_000 && denied > 1_000, "{allowed}, {denied}");
}

/// More windows, and under GCRA more rates, than a count keeps apart: stricter, never laxer, and
/// no denial for ever.
#[tokio::test]
async fn forty_plans_of_forty_windows() {
    let stores = Stores::start().await;
    let stores = bare(&stores);
    let mut random = Random::new(0x91a6);
    for history in 0..24_u64 {
        let algorithm = ALGORITHMS[(history % 4) as usize];
        let mut rule = of_own(&format!("f{history}"), &[(3, millis(100))]);
        for plan in 0..40_u64 {
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
            let rule = &rules[random.below(41) as usize];
            let of = (rule, rule.quotas());
            let cost = 1 + random.below(2);
            let decision = step((&stores, &mut oracle), of, ("x", cost), u64::MAX).await;
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

/// Quotas from code, at random: a charge counts for the longest window that was in use.
async fn quotas_from_code(algorithm: Algorithm, max: Option<u64>) {
    let any = |random: &mut Random, number| {
        let mut pairs = any_pairs(random, number);
        pairs
            .iter_mut()
            .for_each(|pair| pair.0 = max.unwrap_or(pair.0));
        pairs
    };
    let stores = Stores::start().await;
    let stores = bare(&stores);
    let mut random = Random::new(0x91a7);
    for history in 0..40_u64 {
        let own = any(&mut random, 2);
        let rule = of_own(&format!("q{history}"), &own).with_algorithm(algorithm);
        let rule = Arc::new(rule);
        // Of buckets, a slower rate that comes later sees what is left: here the slowest comes
        // first.
        let slowest = quotas(&[(max.unwrap_or(1), Duration::from_secs(60))]);
        ask(&*stores[0].store, &rule.of_quotas(Arc::new(slowest)), "", 0).await;
        let longest = |quotas: &[Quota]| {
            let windows = quotas.iter().map(Quota::window);
            windows.max().expect("there are some").as_micros() as u64
        };
        let mut in_use = longest(rule.quotas());
        let mut seen: Vec<Duration> = own.iter().map(|(_, window)| *window).collect();
        let mut oracle = Oracle::new(algorithm);
        for _ in 0..60 {
            let by = any_step(&mut random);
            stores.iter().for_each(|one| one.advance(by));
            let of = match random.below(5) {
                0 => rule.of_quotas(Arc::new(quotas(&own))),
                _ => rule.of_quotas(Arc::new(quotas(&any(&mut random, 3)))),
            };
            in_use = in_use.max(longest(of.quotas()));
            let is_new = of.quotas().iter().any(|it| !seen.contains(&it.window()));
            seen.extend(of.quotas().iter().map(Quota::window));
            // A fixed window that is new for a key may find less.
            if algorithm == Algorithm::FixedWindow && is_new {
                continue;
            }
            let cost = [1, 1, 2][random.below(3) as usize];
            let until = stores[0].clock.now() + in_use;
            step(
                (&stores, &mut oracle),
                (&of, of.quotas()),
                ("x", cost),
                until,
            )
            .await;
        }
    }
}

#[tokio::test]
async fn quotas_from_code_of_logs() {
    quotas_from_code(Algorithm::SlidingLog, None).await;
}

#[tokio::test]
async fn quotas_from_code_of_windows() {
    quotas_from_code(Algorithm::SlidingWindow, None).await;
}

#[tokio::test]
async fn quotas_from_code_of_buckets_of_one_size() {
    quotas_from_code(Algorithm::Gcra, Some(5)).await;
}

#[tokio::test]
async fn quotas_from_code_of_buckets() {
    quotas_from_code(Algorithm::Gcra, None).await;
}

#[tokio::test]
async fn quotas_from_code_of_fixed_windows() {
    quotas_from_code(Algorithm::FixedWindow, None).await;
}

/// What was charged under a long window outlives thousands of others that take turns on the key,
/// and that put its rule out of the 1,024 that are kept.
#[tokio::test]
async fn a_long_window_outlives_thousands_of_short_ones() {
    let stores = Stores::start().await;
    for one in bare(&stores) {
        for algorithm in ALGORITHMS {
            let rule = of_own("long", &[(1_000_000, millis(200))]).with_algorithm(algorithm);
            let rule = Arc::new(rule);
            let long = Arc::new(quotas(&[(5, Duration::from_secs(3_600))]));
            // In one instant: a bucket of 5 an hour does not drain much.
            for _ in 0..5 {
                let decision = ask(&*one.store, &rule.of_quotas(Arc::clone(&long)), "x", 1).await;
                assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
            }
            for at in 0..3_000_u64 {
                let short = quotas(&[(100_000 + at, millis(100 + at % 90))]);
                let rule = rule.of_quotas(Arc::new(short));
                let decision = ask(&*one.store, &rule, "x", u64::from(at % 3 == 0)).await;
                // A bucket that is new for a key in heavy use begins full.
                let may_deny = algorithm == Algorithm::Gcra;
                assert!(
                    decision.is_allowed() || may_deny,
                    "{algorithm:?}: {decision:?}"
                );
                one.advance(millis(1));
            }
            let decision = ask(&*one.store, &rule.of_quotas(Arc::clone(&long)), "x", 1).await;
            assert!(
                !decision.is_allowed(),
                "{}, {algorithm:?}: {decision:?}",
                one.name
            );
            one.advance(Duration::from_secs(50 * 24 * 3_600));
        }
    }
}

/// An upgrade keeps what was used, a downgrade denies until it fits and says when.
#[tokio::test]
async fn upgrade_and_downgrade() {
    let stores = Stores::start().await;
    for one in &stores.all {
        for algorithm in ALGORITHMS {
            let minute = Duration::from_secs(60);
            let rule = of_own("updown", &[(10, minute)]).with_algorithm(algorithm);
            let rules = all_of(with_plans(rule, &[("pro", &[(100, minute)])]));
            let (free, pro) = (&rules[0], &rules[1]);
            for _ in 0..10 {
                assert!(ask(&*one.store, free, "x", 1).await.is_allowed());
            }
            assert!(!ask(&*one.store, free, "x", 1).await.is_allowed());
            let upgraded = ask(&*one.store, pro, "x", 1).await;
            assert_eq!(upgraded.remaining(), 89, "{}, {algorithm:?}", one.name);
            let all = ask(&*one.store, pro, "x", 89).await;
            assert!(all.is_allowed(), "{}, {algorithm:?}: {all:?}", one.name);
            let downgraded = ask(&*one.store, free, "x", 1).await;
            let wait = downgraded.retry_after().expect("it is denied");
            one.advance(wait);
            let then = ask(&*one.store, free, "x", 1).await;
            assert!(then.is_allowed(), "{}, {algorithm:?}: {then:?}", one.name);
            one.advance(100 * minute);
        }
    }
}

/// Four stores and one history of denials under two plans: a denial under the one denies nothing
/// under the other, though a cache remembers it.
#[tokio::test]
async fn a_denial_is_of_its_plan() {
    let stores = Stores::start().await;
    for one in &stores.all {
        for algorithm in ALGORITHMS {
            let hour = Duration::from_secs(3_600);
            let rule = of_own("denied", &[(1, hour)]).with_algorithm(algorithm);
            let rules = all_of(with_plans(
                rule,
                &[("none", &[(0, hour)]), ("pro", &[(100, hour)])],
            ));
            assert!(ask(&*one.store, &rules[0], "x", 1).await.is_allowed());
            for used in 1..20 {
                for denied in [0, 1, 0, 1] {
                    assert!(!ask(&*one.store, &rules[denied], "x", 1).await.is_allowed());
                }
                let pro = ask(&*one.store, &rules[2], "x", 1).await;
                assert_eq!(pro.remaining(), 99 - used, "{}, {algorithm:?}", one.name);
                let derived = Arc::new(Quotas::new([quota((1_000, hour))]).expect("valid"));
                let table = ask(&*one.store, &rules[0].of_quotas(derived), "x", 0).await;
                assert!(table.is_allowed());
            }
            one.advance(1_000 * hour);
        }
    }
}

/// A bucket is never more than full: after a downgrade it drains as from its burst, whatever the
/// other plan was charged.
#[tokio::test]
async fn a_bucket_drains_as_from_full_after_a_downgrade() {
    let stores = Stores::start().await;
    for one in bare(&stores) {
        let second = Duration::from_secs(1);
        let rule = of_own("spans", &[(10, second)]).with_algorithm(Algorithm::Gcra);
        let rules = all_of(with_plans(rule, &[("pro", &[(100, second)])]));
        assert!(ask(&*one.store, &rules[1], "x", 100).await.is_allowed());
        assert!(!ask(&*one.store, &rules[0], "x", 1).await.is_allowed());
        one.advance(millis(100));
        assert!(ask(&*one.store, &rules[0], "x", 1).await.is_allowed());
        assert!(!ask(&*one.store, &rules[0], "x", 1).await.is_allowed());
    }
}
