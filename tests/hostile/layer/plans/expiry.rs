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
async fn a_key_lives_for_the_longest_window_of_the_plans() {
    let (server, store) = kit::near().await;
    for algorithm in ALGORITHMS {
        kit::run(&server, "FLUSHALL");
        let rule = of_own("lives", &[(100, SECOND)]).with_algorithm(algorithm);
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

/// On the real clock: gone a second or two after the longest window.
#[tokio::test]
async fn keys_are_gone_after_the_longest_window() {
    let (server, store) = kit::near().await;
    for algorithm in ALGORITHMS {
        let rule = of_own("gone", &[(100, millis(50))]).with_algorithm(algorithm);
        let rule = Arc::new(with_plans(rule, &[("pro", &[(400, millis(400))])]));
        let mut rules = vec![Arc::clone(&rule), rule.of_plan("pro").expect("a plan")];
        // See the next test.
        if algorithm != Algorithm::Gcra {
            rules.push(
                rule.under(&Plan::from(quotas(&[(50, millis(700))])))
                    .expect("it fits"),
            );
        }
        for rule in &rules {
            for _ in 0..3 {
                check_allowed(&store, rule, "x").await;
            }
        }
    }
    assert!(lives(&server).len() >= 4);
    sleep(millis(3_500)).await;
    let left = keys(&server, "*gone*");
    assert!(left.is_empty(), "{left:?}");
}

/// Quotas from a table: one customer has few in a day, and all others a lot in a second. No key
/// lives longer than the day and its expiry's slack; a bucket that counts for all, twice as long.
#[tokio::test]
async fn keys_of_a_table_live_for_the_longest_window() {
    let (server, store) = kit::near().await;
    for algorithm in ALGORITHMS {
        kit::run(&server, "FLUSHALL");
        let rule = Arc::new(of_own("table", &[(1, HOUR)]).with_algorithm(algorithm));
        for (key, pair) in [("few", (1, DAY)), ("many", (1_000_000, SECOND))] {
            let rule = rule.under(&Plan::from(quotas(&[pair]))).expect("it fits");
            check_allowed(&store, &rule, key).await;
        }
        let hours = if algorithm == Algorithm::Gcra { 55 } else { 28 };
        for (key, life) in lives(&server) {
            let is_bounded = (0..hours * 3_600_000).contains(&life);
            assert!(
                is_bounded,
                "law 4, {algorithm:?}: {key} lives for {life} ms"
            );
        }
    }
}

/// In memory as well: a store of few places has room again.
#[tokio::test]
async fn memory_is_free_again() {
    for algorithm in ALGORITHMS {
        let (clock, _) = clocked();
        let store = MemoryStore::with_max_keys(64).clock(clock.clone());
        let rule = of_own("few", &[(5, SECOND)]).with_algorithm(algorithm);
        let rules = all_of(with_plans(rule, &[("pro", &[(10, MINUTE)])]));
        for round in 0..5 {
            for key in 0..64 {
                let take = take_of(&rules[key % 2], &format!("{round}-{key}"), 1);
                // Places are shared out by the key: some may be full.
                let _ = store.take(&take).await;
            }
            clock.set(clock.now() + 70_000_000);
        }
        let mut room = 0;
        for key in 0..64 {
            let take = take_of(&rules[1], &format!("last-{key}"), 1);
            room += u64::from(store.take(&take).await.is_ok());
        }
        assert!(room > 30, "{algorithm:?}: {room} of 64");
    }
}
