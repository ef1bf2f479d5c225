//! Law 4: a key lives until its charges count under no plan, and no longer; law 2: denials and
//! looks of other plans do not keep it.

use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use redis::Commands;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Key, MemoryStore, Rule, Store, Take};
use tokio::time::sleep;

use super::{ALGORITHMS, all_of, of_own, quotas, with_plans};
use kit::{HOUR, PATIENT, connect, millis};

fn take_of(rule: &Arc<Rule>, key: &str, cost: u64) -> Take {
    Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost)
}

/// What is left of each key's life, in milliseconds; less than nothing for one that never ends.
fn lives(server: &Redis) -> Vec<(String, i64)> {
    let mut connection = server.connection();
    let keys: Vec<String> = connection.keys("*").expect("keys");
    keys.into_iter()
        .map(|key| {
            let life = connection.pttl(&key).expect("a time");
            (key, life)
        })
        .collect()
}

#[tokio::test]
async fn a_key_lives_for_the_longest_window_of_the_plans() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    for algorithm in ALGORITHMS {
        kit::run(&server, "FLUSHALL");
        let rule = of_own("lives", &[(100, Duration::from_secs(1))]).with_algorithm(algorithm);
        let rules = all_of(with_plans(
            rule,
            &[
                ("hour", &[(1, HOUR)]),
                ("none", &[(0, Duration::from_secs(30))]),
            ],
        ));
        for (key, rule) in [("own", &rules[0]), ("plan", &rules[1])] {
            assert!(
                store
                    .take(&take_of(rule, key, 1))
                    .await
                    .expect("an answer")
                    .is_allowed()
            );
        }
        let before = lives(&server);
        assert_eq!(before.len(), 2, "{algorithm:?}: {before:?}");
        for (key, life) in &before {
            let window = HOUR.as_millis() as i64;
            // A fixed window ends earlier than one window from now; a life may be an eighth longer.
            let least = if algorithm == Algorithm::FixedWindow {
                1
            } else {
                window - 1_000
            };
            let is_right = (least..=window / 8 * 9 + 2_500).contains(life);
            assert!(is_right, "{algorithm:?}: {key} {life}");
        }
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
        assert_eq!(after.len(), before.len(), "{algorithm:?}: {after:?}");
        for (key, life) in after {
            let was = before
                .iter()
                .find(|(it, _)| *it == key)
                .expect("it was there")
                .1;
            assert!(
                life < was && life >= 0,
                "law 2, {algorithm:?}: {key} {was}, then {life}"
            );
        }
    }
}

/// On the real clock: gone a second or two after the longest window.
#[tokio::test]
async fn keys_are_gone_after_the_longest_window() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    for algorithm in ALGORITHMS {
        let rule = of_own("gone", &[(100, millis(50))]).with_algorithm(algorithm);
        let rule = Arc::new(with_plans(rule, &[("pro", &[(400, millis(400))])]));
        let pro = rule.of_plan("pro").expect("a plan");
        let table = match algorithm {
            Algorithm::Gcra => Arc::clone(&pro),
            _ => rule.of_quotas(Arc::new(quotas(&[(50, millis(700))]))),
        };
        // See the next test.
        let is_gcra = algorithm == Algorithm::Gcra;
        for rule in [&rule, &pro, &table]
            .into_iter()
            .take(if is_gcra { 2 } else { 3 })
        {
            for _ in 0..3 {
                let decision = store.take(&take_of(rule, "x", 1)).await.expect("an answer");
                assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
            }
        }
    }
    assert!(lives(&server).len() >= 4);
    sleep(millis(3_500)).await;
    let left: Vec<_> = lives(&server)
        .into_iter()
        .filter(|(key, _)| key.contains("gone"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Quotas from a table: one customer has few in a day, and all others a lot in a second. No key
/// lives longer than the day and its expiry's slack; a bucket that counts for all, twice as long.
#[tokio::test]
async fn keys_of_a_table_live_for_the_longest_window() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    for algorithm in ALGORITHMS {
        kit::run(&server, "FLUSHALL");
        let rule = Arc::new(of_own("table", &[(1, HOUR)]).with_algorithm(algorithm));
        let few = rule.of_quotas(Arc::new(quotas(&[(1, 24 * HOUR)])));
        let many = rule.of_quotas(Arc::new(quotas(&[(1_000_000, Duration::from_secs(1))])));
        for (key, rule) in [("few", &few), ("many", &many)] {
            let decision = store.take(&take_of(rule, key, 1)).await.expect("an answer");
            assert!(decision.is_allowed());
        }
        for (key, life) in lives(&server) {
            let life = Duration::from_millis(u64::try_from(life).expect("it ends"));
            let bound = if algorithm == Algorithm::Gcra { 55 } else { 28 };
            assert!(
                life < bound * HOUR,
                "law 4, {algorithm:?}: {key} lives for {life:?}"
            );
        }
    }
}

/// In memory as well: a store of few places has room again.
#[tokio::test]
async fn memory_is_free_again() {
    for algorithm in ALGORITHMS {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_777);
        let store = MemoryStore::with_max_keys(64).clock(clock.clone());
        let rule = of_own("few", &[(5, Duration::from_secs(1))]).with_algorithm(algorithm);
        let rules = all_of(with_plans(
            rule,
            &[("pro", &[(10, Duration::from_secs(60))])],
        ));
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
