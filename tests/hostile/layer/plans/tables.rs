//! `RateLimitLayer::quotas`: quotas of thousands of customers, beside plans, other layers and
//! checks.

use super::*;

/// Two thousand customers, more than are kept, asked in turn from many tasks: each gets what is its
/// own, again and again, also after its quotas have changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_customers() {
    let server = Redis::start();
    for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
        let rule = hourly("table", 1, &[]).with_algorithm(algorithm);
        let limits = Limits::new([rule]).store(connect(&server.url, PATIENT).await);
        // So many for each customer, and up to three more.
        let made = |least: u64| -> Vec<_> {
            let pair = |at| (least + at % 4, HOUR + Duration::from_secs(at));
            (0..2_000)
                .map(|at| Plan::from(quotas(&[pair(at)])))
                .collect()
        };
        let table = Arc::new(RwLock::new(made(1)));
        let known = Arc::clone(&table);
        let service = wrap(limits.layer("table").plan_value(move |head| {
            let number: usize = field(head, "x-key")?.parse().ok()?;
            known.read().ok()?.get(number).cloned()
        }));
        // How many of three each customer gets; `None` if one failed.
        let round = async || {
            let tasks = (0..16).map(|task| {
                let service = service.clone();
                async move {
                    let mut allowed = Vec::new();
                    for customer in (task..2_000).step_by(16) {
                        let (mut number, mut failed) = (0, false);
                        for _ in 0..3 {
                            let status = status(&service, &customer.to_string(), None).await;
                            number += u64::from(status == 200);
                            failed |= !matches!(status, 200 | 429);
                        }
                        allowed.push((customer, (!failed).then_some(number)));
                    }
                    allowed
                }
            });
            in_tasks(tasks)
                .await
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        };
        // A machine that stands still loses a connection, and a few with it.
        let mut failed = HashSet::new();
        for (customer, allowed) in round().await {
            let expected = (1 + customer % 4).min(3);
            match allowed {
                None => drop(failed.insert(customer)),
                Some(allowed) => assert_eq!(allowed, expected, "{algorithm:?}: {customer}"),
            }
        }
        // All get two more than they had.
        *table.write().expect("no panic") = made(3);
        for (customer, allowed) in round().await {
            let expected = (3 + customer % 4 - (1 + customer % 4).min(3)).min(3);
            match allowed {
                None => drop(failed.insert(customer)),
                _ if failed.contains(&customer) => {}
                Some(allowed) => assert_eq!(allowed, expected, "{algorithm:?}: {customer}"),
            }
        }
        assert!(failed.len() < 200, "{algorithm:?}: {} failed", failed.len());
        let answer = see(&service, "9999", None).await;
        assert!(answer.contains("q=1;w=3600"), "own quotas: {answer}");
        assert_eq!(status(&service, "9999", None).await, 429);
    }
}

/// The plan from the table, then the one with a name, then the rule's own quotas, also through a
/// layer without a table, and through `check`. A window that is new to a key counts from then on, and
/// what was charged before as far as windows that are no longer carry it.
#[tokio::test]
async fn the_table_then_the_plan_then_the_rule() {
    for algorithm in ALGORITHMS {
        let (clock, store) = clocked();
        let rule = of_own("api", &[(1_000, SECOND)]).with_algorithm(algorithm);
        let rule = with_plans(rule, &[("pro", &[(2_000, 2 * SECOND)])]);
        let limits = Limits::new([rule.with_key(Header::new("x-key"))]).store(store);
        let day = Plan::from(quotas(&[(10, DAY)]));
        let is_on = Arc::new(AtomicBool::new(true));
        let switch = Arc::clone(&is_on);
        let table = wrap(limits.layer("api").plan_value(move |_| {
            let is_on = switch.load(Ordering::Relaxed);
            is_on.then(|| day.clone())
        }));
        let plain = wrap(limits.layer("api"));
        for name in ["a", "b", "c", "d"] {
            is_on.store(false, Ordering::Relaxed);
            for _ in 0..3 {
                match name {
                    "a" => assert_eq!(status(&table, name, None).await, 200),
                    "b" => assert_eq!(status(&table, name, Some("pro")).await, 200),
                    "c" => assert_eq!(status(&plain, name, Some("pro")).await, 200),
                    _ => assert!(limits.check("api", key(name)).await.is_ok()),
                }
            }
            clock.set(clock.now() + 500_000);
            is_on.store(true, Ordering::Relaxed);
            let answer = see(&table, name, Some("pro")).await;
            assert!(answer.contains("q=10;w=86400"), "{answer}");
            // The bucket that drained faster carries less.
            let most = if algorithm == Algorithm::Gcra { 9 } else { 6 };
            let is_left = (6..=most).any(|left| answer.contains(&format!(";r={left};")));
            assert!(is_left, "{algorithm:?}, {name}: {answer}");
        }
    }
}
