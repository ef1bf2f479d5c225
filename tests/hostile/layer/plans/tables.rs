//! `RateLimitLayer::quotas`: quotas of thousands of customers, beside plans, other layers and
//! checks.

use std::collections::HashSet;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use http::request::Parts;
use kit::Redis;
use tidegate::rule::Quotas;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Header, Limits, MemoryStore};

use super::{ALGORITHMS, of_own, quotas, seen, send, status, with_plans, wrap};
use kit::{HOUR, PATIENT, connect};

fn number(head: &Parts) -> Option<usize> {
    head.headers.get("x-key")?.to_str().ok()?.parse().ok()
}

/// Two thousand customers, more than are kept, asked in turn from many tasks: each gets what is its
/// own, again and again, also after its quotas have changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_customers() {
    let server = Redis::start();
    for algorithm in [Algorithm::SlidingLog, Algorithm::FixedWindow] {
        let rule = of_own("table", &[(1, HOUR)]).with_key(Header::new("x-key"));
        let rule = rule.with_algorithm(algorithm);
        let limits = Limits::new([rule]).store(connect(&server.url, PATIENT).await);
        let made = |at: u64| Arc::new(quotas(&[(1 + at % 4, HOUR + Duration::from_secs(at))]));
        let table: Arc<RwLock<Vec<Arc<Quotas>>>> =
            Arc::new(RwLock::new((0..2_000).map(made).collect()));
        let known = Arc::clone(&table);
        let service = wrap(
            limits
                .layer("table")
                .quotas(move |head| known.read().ok()?.get(number(head)?).cloned()),
        );
        let round = async || {
            let tasks = (0..16).map(|task| {
                let service = service.clone();
                tokio::spawn(async move {
                    let mut allowed = Vec::new();
                    for customer in (task..2_000).step_by(16) {
                        let (mut number, mut failed) = (0, false);
                        for _ in 0..3 {
                            let status = status(&service, &customer.to_string(), None).await;
                            number += u64::from(status == 200);
                            failed |= !matches!(status, 200 | 429);
                        }
                        allowed.push((customer as u64, (!failed).then_some(number)));
                    }
                    allowed
                })
            });
            let allowed = join_all(tasks.collect::<Vec<_>>()).await;
            allowed
                .into_iter()
                .flat_map(|one| one.expect("no panic"))
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
        *table.write().expect("no panic") = (0..2_000)
            .map(|at| Arc::new(quotas(&[(3 + at % 4, HOUR + Duration::from_secs(at))])))
            .collect();
        let mut wrong = 0;
        for (customer, allowed) in round().await {
            let expected = (3 + customer % 4 - (1 + customer % 4).min(3)).min(3);
            match allowed {
                None => drop(failed.insert(customer)),
                _ if failed.contains(&customer) => {}
                Some(allowed) => wrong += u64::from(allowed != expected),
            }
        }
        assert_eq!(wrong, 0, "{algorithm:?}");
        assert!(failed.len() < 200, "{algorithm:?}: {} failed", failed.len());
        let answer = seen(send(&service, "9999", None).await).await;
        assert!(answer.contains("q=1;w=3600"), "own quotas: {answer}");
        assert_eq!(status(&service, "9999", None).await, 429);
    }
}

/// Quotas from the table, then the plan, then the rule's own; what others charged counts for each,
/// also through a layer without a table, and through `check`.
#[tokio::test]
async fn the_table_then_the_plan_then_the_rule() {
    for algorithm in ALGORITHMS {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_777);
        let rule = of_own("api", &[(1_000, Duration::from_secs(1))]).with_algorithm(algorithm);
        let rule = with_plans(rule, &[("pro", &[(2_000, Duration::from_secs(2))])]);
        let rule = rule.with_key(Header::new("x-key"));
        let limits = Limits::new([rule]).store(MemoryStore::new().clock(clock.clone()));
        let day = Arc::new(quotas(&[(10, 24 * HOUR)]));
        let is_on = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let switch = Arc::clone(&is_on);
        let table = wrap(limits.layer("api").quotas(move |_| {
            switch
                .load(std::sync::atomic::Ordering::Relaxed)
                .then(|| Arc::clone(&day))
        }));
        let plain = wrap(limits.layer("api"));
        let switched = |on| is_on.store(on, std::sync::atomic::Ordering::Relaxed);
        // From the first request on the day is in use.
        assert_eq!(status(&table, "first", None).await, 200);
        let key = |name: &str| Header::new("x-key").key(name);
        let left = async |name: &str| {
            switched(true);
            let answer = seen(send(&table, name, Some("pro")).await).await;
            assert!(answer.contains("q=10;w=86400"), "{answer}");
            let at = answer.find(";r=").expect("a field");
            answer[at + 3..]
                .split(';')
                .next()
                .expect("some")
                .parse::<u64>()
                .expect("a number")
        };
        for (name, used) in [("a", 3_u64), ("b", 3), ("c", 3), ("d", 3)] {
            switched(false);
            for _ in 0..used {
                match name {
                    "a" => assert_eq!(status(&table, name, None).await, 200),
                    "b" => assert_eq!(status(&table, name, Some("pro")).await, 200),
                    "c" => assert_eq!(status(&plain, name, Some("pro")).await, 200),
                    _ => assert!(limits.check("api", key(name)).await.is_ok()),
                }
            }
            clock.set(clock.now() + 10_000_000);
            let expected = match algorithm {
                // A rate that is new for a key may find more used.
                Algorithm::Gcra => 0..=6,
                _ => 6..=6,
            };
            let left = left(name).await;
            assert!(expected.contains(&left), "{algorithm:?}, {name}: {left}");
        }
    }
}
