//! Law 4: a key lives until its charges count under no plan, and no longer; law 2: denials and
//! looks of other plans do not keep it.

use super::*;

/// What is left of each key's life, in milliseconds; less than nothing for one that never ends.
fn lives(server: &Redis) -> BTreeMap<String, i64> {
    let mut connection = server.connection();
    let lives = keys(server, "*").into_iter();
    let lives = lives.map(|key| (key.clone(), connection.pttl(&key).expect("a time")));
    lives.collect()
}

async fn check_allowed(store: &dyn Store, rule: &Arc<Rule>, key: &str) {
    let decision = store.take(&take_of(rule, key, 1)).await.expect("an answer");
    assert!(decision.is_allowed(), "{decision:?}");
}

#[tokio::test]
async fn a_key_lives_for_its_window_under_all_plans() {
    let (server, store) = kit::near().await;
    for algorithm in ALGORITHMS {
        kit::run(&server, "FLUSHALL");
        let rule = of_own("lives", &[(100, HOUR)]).with_algorithm(algorithm);
        let plans: [(&str, Pairs<'_>); 2] = [("hour", &[(1, HOUR)]), ("none", &[(0, MINUTE / 2)])];
        let rules = all_of(with_plans(rule, &plans));
        for (key, rule) in [("own", &rules[0]), ("plan", &rules[1])] {
            check_allowed(&store, rule, key).await;
        }
        let before = lives(&server);
        assert_eq!(before.len(), 2, "{algorithm:?}: {before:?}");
        let window = HOUR.as_millis() as i64;
        // A fixed window ends earlier than one window from now; a life may be an eighth longer.
        let is_fixed = algorithm == Algorithm::FixedWindow;
        let least = if is_fixed { 1 } else { window - 1_000 };
        let expected = least..=window / 8 * 9 + 2_500;
        let are_right = before.values().all(|life| expected.contains(life));
        assert!(are_right, "{algorithm:?}: {before:?}");
        sleep(millis(30)).await;
        for _ in 0..20 {
            for (rule, cost) in [(0, 0), (1, 1), (2, 1), (2, 0), (1, 0), (0, 1_000)] {
                for key in ["own", "plan", "other"] {
                    let take = take_of(&rules[rule], key, cost);
                    if key != "other" || cost != 1 {
                        let decision = store.take(&take).await.expect("an answer");
                        assert!(cost == 0 || !decision.is_allowed(), "{decision:?}");
                    }
                }
            }
        }
        let after = lives(&server);
        assert!(after.keys().eq(before.keys()), "{algorithm:?}: {after:?}");
        let mut both = after.values().zip(before.values());
        let are_shorter = both.all(|(now, was)| (0..*was).contains(now));
        assert!(
            are_shorter,
            "law 2, {algorithm:?}: {before:?}, then {after:?}"
        );
    }
}
