//! The cache of denials knows whole tuples: a denial of one never answers another, and what frees a
//! shared count ends the denials of all that share it.

use super::*;

async fn stores(server: &Redis) -> [Arc<dyn Store>; 2] {
    let redis = Resilient::bare(connect(&server.url, PATIENT).await);
    let memory = Resilient::bare(MemoryStore::new());
    let redis = redis.denial_cache(Duration::MAX).build();
    [redis, memory.denial_cache(Duration::MAX).build()]
}

#[tokio::test]
async fn a_denial_never_answers_another_tuple() {
    let server = Redis::start();
    for store in stores(&server).await {
        for algorithm in COUNTING {
            let rule = three(algorithm, algorithm.name(), [1, 9, 100]);
            let alice = tuple(&rule, "alice", "1");
            assert!(decide(&store, &alice).await.is_allowed());
            assert!(!decide(&store, &alice).await.is_allowed());
            let cached = decide(&store, &alice).await;
            assert_eq!(cached.source(), Source::Cache);
            let by: Vec<_> = cached.denied_by(rule.policies()).collect();
            assert_eq!(by.len(), 1, "{by:?}");
            assert_eq!(by[0].subject(), Some("user"));
            // Of other tuples, among them some whose texts are alike when joined.
            for keys in [
                &[("user", "bob"), ("address", "1"), ("everyone", "")][..],
                &[("user", ""), ("address", "alice1"), ("everyone", "")],
                &[("user", "alice1"), ("address", ""), ("everyone", "")],
                &[("user", "1"), ("address", "alice"), ("everyone", "")],
                &[("address", "1"), ("everyone", "")],
                &[("user", "alice:1"), ("everyone", "")],
                &[("everyone", "")],
                &[("address", "1")],
            ] {
                let decision = decide(&store, &take(&rule, keys)).await;
                assert!(decision.is_allowed(), "{keys:?}: {decision:?}");
            }
            // Those that name alice are denied, whatever else they name.
            for keys in [
                &[("user", "alice"), ("address", "2"), ("everyone", "")][..],
                &[("user", "alice")],
                &[("user", "alice"), ("everyone", "")],
            ] {
                let decision = decide(&store, &take(&rule, keys)).await;
                assert!(!decision.is_allowed(), "{algorithm:?}, {keys:?}");
                assert_ne!(decision.source(), Source::Cache, "{keys:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_refund_and_a_reset_void_the_denials_that_share_a_count() {
    let server = Redis::start();
    for store in stores(&server).await {
        for algorithm in COUNTING {
            for way in ["refund", "settle", "reset", "reset one"] {
                let path = format!("{}-{way}", algorithm.name());
                let subjects = [("user", 9), ("address", 2), ("all", 90)];
                let subjects = subjects.map(|(name, max)| subject(name, max));
                let rule = joint(algorithm, &path, subjects);
                let of = |user: &str, address: &str| {
                    take(&rule, &[("user", user), ("address", address), ("all", "")])
                };
                let first = decide(&store, &of("alice", "x")).await;
                decide(&store, &of("alice", "x")).await;
                for user in ["bob", "carol", "alice"] {
                    decide(&store, &of(user, "x")).await;
                    let decision = decide(&store, &of(user, "x")).await;
                    assert_eq!(decision.source(), Source::Cache, "{path}, {user}");
                }
                let receipt = first.receipt().expect("charged");
                let charge = Charge::new(Arc::clone(&store), of("alice", "x"), receipt);
                let free = match way {
                    "refund" => give_back(&charge).await,
                    "settle" => settle(&charge, 0).await.given_back,
                    "reset" => u64::from(reset(&store, &of("zoe", "x")).await),
                    _ => u64::from(reset(&store, &take(&rule, &[("address", "x")])).await),
                };
                assert_eq!(free, 1, "{path}");
                for user in ["bob", "carol"] {
                    let decision = decide(&store, &of(user, "x")).await;
                    assert_ne!(decision.source(), Source::Cache, "{path}, {user}");
                    let is_first = user == "bob" || way.starts_with("reset");
                    assert_eq!(decision.is_allowed(), is_first, "{path}, {user}");
                }
            }
        }
    }
}

/// Law 11 with random tuples: the cached store allows exactly what a plain one does.
#[tokio::test]
async fn a_cached_store_decides_as_a_plain_one() {
    for algorithm in COUNTING {
        let cached = Resilient::bare(MemoryStore::new()).denial_cache(Duration::MAX);
        let cached = cached.build();
        let plain: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut random = Random::new(5);
        let rule = three(algorithm, "p", [4, 9, 60]);
        let mut charges: Vec<[Charge; 2]> = Vec::new();
        for step in 0..6_000 {
            let user = format!("u{}", random.below(6));
            let address = format!("a{}", random.below(3));
            let take = match random.below(5) {
                0 => take(&rule, &[("address", &address), ("everyone", "")]),
                1 => take(&rule, &[("user", &user)]),
                _ => tuple(&rule, &user, &address),
            };
            let take = take.with_cost(1 + random.below(2));
            match random.below(20) {
                0 if !charges.is_empty() => {
                    let at = random.below(charges.len() as u64) as usize;
                    let [of_cached, of_plain] = charges.swap_remove(at);
                    let used = random.below(2);
                    let units = settle(&of_cached, used).await.given_back;
                    let expected = settle(&of_plain, used).await.given_back;
                    assert_eq!(units, expected);
                }
                1 if random.is(20) => {
                    let of_cached = reset(&cached, &take).await;
                    assert_eq!(of_cached, reset(&plain, &take).await);
                    charges.clear();
                }
                _ => {
                    let of_cached = decide(&cached, &take).await;
                    let of_plain = decide(&plain, &take).await;
                    let case = format!("{take:?}\n{of_cached:?}\n{of_plain:?}");
                    assert_eq!(of_cached.is_allowed(), of_plain.is_allowed(), "{case}");
                    let states = |decision: &Decision| {
                        let states = decision.quotas().iter();
                        let states = states.map(|it| (it.remaining(), it.is_exceeded()));
                        states.collect::<Vec<_>>()
                    };
                    if of_cached.source() != Source::Cache {
                        assert_eq!(states(&of_cached), states(&of_plain), "{step}");
                    }
                    if let (Some(one), Some(other)) = (of_cached.receipt(), of_plain.receipt()) {
                        let charge = |store: &Arc<dyn Store>, receipt| {
                            Charge::new(Arc::clone(store), take.clone(), receipt)
                        };
                        charges.push([charge(&cached, one), charge(&plain, other)]);
                    }
                }
            }
        }
    }
}

/// A flood of denied tuples beside refunds: afterwards nobody is denied what is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_amid_a_flood_of_denials() {
    let server = Redis::start();
    for store in stores(&server).await {
        for algorithm in COUNTING {
            let rule = three(algorithm, algorithm.name(), [100, 3, 1_000]);
            let each = (Arc::clone(&store), Arc::clone(&rule));
            let tasks = spawn_each(0..6, each, |task, (store, rule)| async move {
                for at in 0..150 {
                    let take = tuple(&rule, &format!("u{}", (task + at) % 9), "x");
                    let decision = decide(&store, &take).await;
                    if let Some(receipt) = decision.receipt() {
                        yield_now().await;
                        refund(&store, &take, &receipt).await;
                    }
                }
            });
            done(tasks).await;
            for user in 0..3 {
                let take = tuple(&rule, &format!("u{user}"), "x");
                let decision = decide(&store, &take).await;
                assert!(decision.is_allowed(), "{algorithm:?}, {user}: {decision:?}");
            }
            let left = left(&store, &tuple(&rule, "u8", "x")).await;
            assert_eq!(left, [100, 0, 997], "{algorithm:?}");
        }
    }
}
