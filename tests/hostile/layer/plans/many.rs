//! Thousands of quotas on one key: bounded state in Redis, bounded memory here, nothing over max,
//! and decisions that go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::random::Random;
use tidegate::{Algorithm, Key, MemoryStore, Rule, Store, Take};

use super::oracle::Oracle;
use super::{ALGORITHMS, of_own, quotas};
use kit::{HOUR, PATIENT, connect, millis};

const QUOTAS: u64 = 10_000;

fn take_of(rule: &Arc<Rule>, key: &str, cost: u64) -> Take {
    Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost)
}

/// The `at`-th of them, all of different windows and maxima.
fn nth(rule: &Arc<Rule>, at: u64) -> Arc<Rule> {
    let pairs = [
        (3 + at % 997, millis(1_000 + at)),
        (100 + at % 13, Duration::from_secs(60 + at % 101)),
    ];
    rule.of_quotas(Arc::new(quotas(&pairs)))
}

fn bytes(server: &Redis, key: &str) -> u64 {
    let mut question = redis::cmd("MEMORY");
    question.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
    let bytes: Option<u64> = question.query(&mut server.connection()).expect("a number");
    bytes.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_quotas_on_one_key() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    for algorithm in ALGORITHMS {
        let rule = Arc::new(of_own("many", &[(100, HOUR)]).with_algorithm(algorithm));
        // So that all that comes later counts in the longest window, under GCRA at the slowest
        // rate.
        drop(rule.of_quotas(Arc::new(quotas(&[(1, HOUR)]))));
        let tasks = (0..16).map(|task| {
            let (store, rule) = (store.clone(), Arc::clone(&rule));
            tokio::spawn(async move {
                let mut granted = Vec::new();
                for at in (task..QUOTAS).step_by(16) {
                    let rule = nth(&rule, at * 7_919 % QUOTAS);
                    let take = take_of(&rule, "x", 1);
                    let decision = store.take(&take).await.expect("a decision");
                    if let Some(receipt) = decision.receipt() {
                        granted.push((receipt.stamp(), receipt.serial(), rule, decision));
                    }
                }
                granted
            })
        });
        let began = Instant::now();
        let mut granted = Vec::new();
        for task in join_all(tasks.collect::<Vec<_>>()).await {
            granted.extend(task.expect("no panic"));
        }
        let time = began.elapsed();
        granted.sort_by_key(|(stamp, serial, ..)| (*stamp, *serial));
        let mut oracle = Oracle::new(algorithm);
        for (stamp, _, rule, decision) in &granted {
            oracle.charge(*stamp, 1, u64::MAX);
            // A fixed window that is new for a key may find less.
            if algorithm != Algorithm::FixedWindow {
                oracle.check_allowed(*stamp, rule.quotas(), decision);
            }
        }
        let suffix = ["", "~window", "~gcra", "~fixed"];
        let at = ALGORITHMS
            .iter()
            .position(|it| *it == algorithm)
            .expect("one of them");
        let name = format!("CurrentLimiter:many{}:x", suffix[at]);
        let bytes = bytes(&server, &name);
        let granted = granted.len();
        println!("{algorithm:?}: {granted} in {time:?}, {bytes} bytes");
        assert!(granted >= 3, "{algorithm:?}: {granted}");
        let most = match algorithm {
            Algorithm::SlidingLog => 60_000,
            Algorithm::SlidingWindow => 40_000,
            _ => 4_000,
        };
        assert!((1..most).contains(&bytes), "{algorithm:?}: {bytes} bytes");
    }
}

/// The rules that are kept are bounded, also the memory of thousands more.
#[test]
fn the_memory_of_derived_rules_is_bounded() {
    let rule = Arc::new(of_own("kept", &[(100, HOUR)]));
    let derive = |range: std::ops::Range<u64>| {
        allocation_counter::measure(|| range.for_each(|at| drop(nth(&rule, at))))
    };
    let first = derive(0..3_000);
    let later = derive(3_000..QUOTAS);
    println!(
        "{} bytes, then {} more",
        first.bytes_current, later.bytes_current
    );
    assert!(
        first.bytes_current < 4_000_000,
        "{} bytes",
        first.bytes_current
    );
    assert!(
        later.bytes_current < 500_000,
        "{} bytes more",
        later.bytes_current
    );
}

/// One store, as many takes: a key under one quota, under three plans, and under thousands.
#[tokio::test]
async fn thousands_of_quotas_cost_no_other_key_anything() {
    for algorithm in ALGORITHMS {
        let store = MemoryStore::new();
        let rule = Arc::new(of_own("cost", &[(1_000_000, HOUR)]).with_algorithm(algorithm));
        let mut random = Random::new(0x10);
        for _ in 0..20_000 {
            let rule = nth(&rule, random.below(QUOTAS));
            let _ = store
                .take(&take_of(&rule, "wild", 1))
                .await
                .expect("a decision");
        }
        // Own quotas of a bystander: as if nobody else was there.
        for used in 1..=100 {
            let decision = store
                .take(&take_of(&rule, "calm", 1))
                .await
                .expect("a decision");
            assert_eq!(
                decision.remaining(),
                1_000_000 - used + drained(algorithm, &decision, used)
            );
        }
    }
}

/// Under GCRA some units may have come back.
fn drained(algorithm: Algorithm, decision: &tidegate::Decision, used: u64) -> u64 {
    match algorithm {
        Algorithm::Gcra => (decision.remaining() + used).saturating_sub(1_000_000),
        _ => 0,
    }
}
