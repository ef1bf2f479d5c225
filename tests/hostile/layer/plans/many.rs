//! Thousands of quotas on one key: bounded state in Redis, bounded memory here, nothing over max,
//! and decisions that go on.

use super::oracle::Oracle;
use super::*;

const QUOTAS: u64 = 10_000;

/// The `at`-th of them, all of different windows and maxima.
fn nth(rule: &Arc<Rule>, at: u64) -> Arc<Rule> {
    let short = (3 + at % 997, millis(1_000 + at));
    let long = (100 + at % 13, Duration::from_secs(60 + at % 101));
    rule.under(&Plan::from(quotas(&[short, long])))
        .expect("it fits")
}

fn bytes(server: &Redis, key: &str) -> u64 {
    let mut question = redis::cmd("MEMORY");
    question.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
    let bytes: Option<u64> = question.query(&mut server.connection()).expect("a number");
    bytes.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_quotas_on_one_key() {
    let (server, store) = kit::near().await;
    // How the name of a key goes on, and how large it may be.
    let of_algorithm = [
        ("", 60_000),
        ("~window", 40_000),
        ("~gcra", 4_000),
        ("~fixed", 4_000),
    ];
    for (algorithm, (suffix, most)) in ALGORITHMS.into_iter().zip(of_algorithm) {
        let rule = Arc::new(of_own("many", &[(100, HOUR)]).with_algorithm(algorithm));
        let tasks = (0..16).map(|task| {
            let (store, rule) = (store.clone(), Arc::clone(&rule));
            async move {
                let mut granted = Vec::new();
                for at in (task..QUOTAS).step_by(16) {
                    let rule = nth(&rule, at * 7_919 % QUOTAS);
                    let decision = ask(&store, &rule, 1).await;
                    if let Some(receipt) = decision.receipt() {
                        granted.push((receipt.stamp(), receipt.serial(), rule, decision));
                    }
                }
                granted
            }
        });
        let mut granted: Vec<_> = in_tasks(tasks).await.into_iter().flatten().collect();
        granted.sort_by_key(|(stamp, serial, ..)| (*stamp, *serial));
        let mut oracle = Oracle::new(algorithm);
        for (stamp, _, rule, decision) in &granted {
            oracle.charge(*stamp, 1, rule.quotas());
            oracle.check_allowed(*stamp, rule.quotas(), decision);
        }
        let bytes = bytes(&server, &format!("CurrentLimiter:many{suffix}:x"));
        assert!(granted.len() >= 3, "{algorithm:?}: {}", granted.len());
        assert!((1..most).contains(&bytes), "{algorithm:?}: {bytes} bytes");
    }
}

/// The rules that are kept are bounded, also the memory of thousands more.
#[test]
fn the_memory_of_derived_rules_is_bounded() {
    let rule = Arc::new(of_own("kept", &[(100, HOUR)]));
    let derive = |range: std::ops::Range<u64>| {
        let all = || range.for_each(|at| drop(nth(&rule, at)));
        allocation_counter::measure(all).bytes_current
    };
    let first = derive(0..10_000);
    assert!(first < 16_000_000, "{first} bytes");
    let later = derive(10_000..30_000);
    assert!(later < 500_000, "{later} bytes more");
}
