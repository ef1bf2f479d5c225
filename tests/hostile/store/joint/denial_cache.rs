//! The cache of denials knows whole tuples.

use super::*;

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
