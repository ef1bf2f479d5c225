//! Law 3 over several counts: a denied take is allowed when its retry-after is over, and denied one
//! microsecond earlier.

use super::*;

/// Of some subjects, at a cost.
fn random_take(random: &mut Random, rule: &std::sync::Arc<tidegate::Rule>) -> Take {
    let user = format!("u{}", random.below(3));
    let address = format!("a{}", random.below(2));
    let take = match random.below(6) {
        0 => take(rule, &[("address", &address), ("everyone", "")]),
        1 => take(rule, &[("user", &user), ("everyone", "")]),
        _ => take(
            rule,
            &[("user", &user), ("address", &address), ("everyone", "")],
        ),
    };
    take.with_cost([1, 1, 2, 3, 7][random.below(5) as usize])
}

async fn run(store: &Clocked, algorithm: Algorithm, seed: u64) {
    let mut random = Random::new(seed);
    let own = |name: &str| Subject::new(name, Everyone);
    // Windows so long that Redis's own time expires no key.
    let window =
        |random: &mut Random| [60_000, 61_007, 3_600_000, 86_400_000][random.below(4) as usize];
    let max = |random: &mut Random| 7 + random.below(20);
    let user = own("user").limit(quota(max(&mut random), window(&mut random)));
    let user = user.limit(costing(3 + random.below(4), 1 + random.below(3)));
    let address = own("address").limit(quota(max(&mut random), window(&mut random)));
    let all = own("everyone").limit(quota(max(&mut random) * 2, window(&mut random)));
    let path = format!("{}-{seed}", algorithm.name());
    let rule = joint(algorithm, &path, [user, address, all]);
    let mut denials = 0;
    for step in 0..60 {
        let take = random_take(&mut random, &rule);
        let decision = decide(&store.store, &take).await;
        let micros = [0, 1, 999, 1_000, 777_777, 13_000_001];
        store.advance(Duration::from_micros(micros[random.below(6) as usize]));
        let Verdict::Denied { .. } = decision.verdict() else {
            continue;
        };
        let decision = decide(&store.store, &take).await;
        let Verdict::Denied { retry_after } = decision.verdict() else {
            continue;
        };
        denials += 1;
        let story = format!("{}, {algorithm:?}, {seed}, {step}: {take:?}", store.name);
        let one = Duration::from_micros(1);
        if random.is(50) {
            // In between it is true as well.
            let part = u64::try_from(retry_after.as_micros() / 3).expect("short");
            let part = Duration::from_micros(part);
            store.advance(part);
            let again = decide(&store.store, &take).await;
            assert_eq!(again.retry_after(), Some(retry_after - part), "{story}");
            store.advance(retry_after - part - one);
        } else {
            store.advance(retry_after - one);
        }
        let earlier = decide(&store.store, &take).await;
        assert_eq!(earlier.retry_after(), Some(one), "{story}: {decision:?}");
        store.advance(one);
        let there = decide(&store.store, &take).await;
        assert!(there.is_allowed(), "{story}: {decision:?}, {there:?}");
    }
    assert!(denials > 3, "{denials}");
}

#[tokio::test]
async fn it_is_true_to_the_microsecond() {
    let stores = Stores::start().await;
    for store in &stores.all[..2] {
        for algorithm in Algorithm::ALL {
            for seed in 0..25 {
                run(store, algorithm, seed).await;
            }
        }
    }
}
