//! The in-memory store and the algorithms at a size that an interpreter manages: `tests/miri.sh`
//! runs it.
//!
//! The crate itself has no unsafe code; its map and its small vectors have. Threads take, refund
//! and count at once, so that a data race shows.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate::algorithm::Count;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Key, MemoryStore, Quota, Rule, Store, Take};

const WINDOW: Duration = Duration::from_millis(10);

fn quota(max: u64) -> Quota {
    Quota::new(WINDOW, max).expect("a valid quota")
}

fn take(algorithm: Algorithm, key: &str) -> Take {
    let rule = Rule::new("p", [quota(3)]).expect("a valid rule");
    Take::new(Arc::new(rule.with_algorithm(algorithm)), Key::from(key))
}

/// Keys come, expire and are dropped for others.
fn use_in_turn(store: &MemoryStore, clock: &ManualClock, algorithm: Algorithm) {
    for round in 0..4 {
        clock.set(round * 6_000);
        for key in ["a", "b", "c"] {
            let take = take(algorithm, key);
            let answer = store.take(&take).now_or_never();
            let answer = answer.expect("memory answers at once");
            let receipt = answer.ok().and_then(|decision| decision.receipt());
            if let Some(receipt) = receipt.filter(|_| key == "b") {
                let refund = store.refund(&take, &receipt).now_or_never();
                assert!(refund.is_some_and(|units| units.is_ok()));
            }
        }
        assert!(store.len() <= 2);
    }
}

#[test]
fn threads_share_a_store() {
    for algorithm in Algorithm::ALL {
        let clock = ManualClock::default();
        let store = MemoryStore::with_max_keys(2).clock(clock.clone());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| use_in_turn(&store, &clock, algorithm));
            }
        });
        clock.set(1_000_000);
        assert!(store.is_empty());
    }
}

/// Each algorithm takes over from each other, with several quotas, up to denial and past its
/// window.
#[test]
fn algorithms_take_over_from_each_other() {
    let quotas = [quota(2), quota(3)];
    let all = Algorithm::ALL;
    for (first, second) in all.into_iter().flat_map(|first| all.map(|it| (first, it))) {
        let mut count = Count::default();
        for at in 0..3 {
            count.take(first, at * 2_000, &quotas[..1], 1);
        }
        let decision = count.take(second, 7_000, &quotas, 1);
        if let Some(receipt) = decision.receipt() {
            count.refund(7_500, &quotas, &receipt, 1);
        }
        assert!(count.take(second, 1_000_000, &quotas, 2).is_allowed());
        assert!(!count.take(second, 1_000_000, &quotas, 2).is_allowed());
    }
}
