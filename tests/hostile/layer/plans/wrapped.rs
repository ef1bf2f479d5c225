//! Plans behind the wrappers of a store: the fallback's share, and the cache of denials.

use super::*;

/// A store that always fails, and a fallback with a quarter that reads a clock of the test.
fn fallback() -> (Resilient<Stub>, ManualClock) {
    let (clock, local) = clocked();
    let store = Resilient::bare(Stub::down()).fallback(Share::of_processes(4));
    (store.fallback_store(local), clock)
}

/// A share of less than one request is one in a longer window: law 1 for the share. A denial says
/// to come again soon, when the store may decide.
#[tokio::test]
async fn a_share_of_less_than_one_request() {
    for algorithm in ALGORITHMS {
        let (store, clock) = fallback();
        // One in 4 s, and 25 in 1 s.
        let rule = of_own("less", &[(1, SECOND)]).with_algorithm(algorithm);
        let rules = all_of(with_plans(rule, &[("pro", &[(100, SECOND)])]));
        assert!(ask(&store, &rules[0], 1).await.is_allowed());
        let denied = ask(&store, &rules[0], 1).await;
        assert!(denied.retry_after() <= Some(2 * SECOND), "{algorithm:?}");
        clock.set(clock.now() + 3_999_999);
        assert!(!ask(&store, &rules[0], 1).await.is_allowed());
        clock.set(clock.now() + 1);
        assert!(ask(&store, &rules[0], 1).await.is_allowed());
        clock.set(clock.now() + 5_000_000);
        for _ in 0..25 {
            assert!(ask(&store, &rules[1], 1).await.is_allowed());
        }
        assert!(!ask(&store, &rules[1], 1).await.is_allowed());
    }
}

/// A table of customers that are all denied: the cache answers, and the store is hardly asked.
#[tokio::test]
async fn denied_customers() {
    let windows: fn(u64) -> (u64, Duration) = |at| (10, HOUR + Duration::from_secs(at));
    let maxima: fn(u64) -> (u64, Duration) = |at| (1 + at, HOUR);
    for (what, pair) in [("windows", windows), ("maxima", maxima)] {
        let listening = Stub::listening(MemoryStore::new());
        let store = Resilient::bare(listening.clone()).denial_cache(Duration::MAX);
        let rule = of_own("table", &[(5, MINUTE)]).with_key(Header::new("x-key"));
        let limits = Limits::new([rule]).store(store);
        let table: Vec<_> = (0..20).map(|at| Plan::from(quotas(&[pair(at)]))).collect();
        let service = wrap(limits.layer("table").plan_value(move |head| {
            let number: usize = field(head, "x-key")?.parse().ok()?;
            table.get(number).cloned()
        }));
        for round in 0..100 {
            for customer in 0..20 {
                let expected = if round < pair(customer).0 { 200 } else { 429 };
                let got = status(&service, &customer.to_string(), None).await;
                assert_eq!(got, expected, "{customer} in round {round}");
            }
        }
        let used: u64 = (0..20).map(|at| pair(at).0).sum();
        let asked = listening.asked(|_| true) as u64 - used;
        let is_right = asked <= 40;
        assert!(is_right, "different {what}: asked {asked} times too often");
    }
}
