//! What one take allocates.

use allocation_counter::measure;

use crate::prelude::*;

/// As many takes as fit into one script call.
const TAKES: usize = 64;

fn takes(algorithm: Algorithm) -> Vec<Take> {
    let rule = by(algorithm, "p", 1_000_000, HOUR);
    let takes = (0..TAKES).map(|at| kit::take(&rule, format!("key {at}")));
    takes.collect()
}

/// A key that is known costs nothing.
#[test]
fn an_allowed_take_on_memory_allocates_nothing() {
    for algorithm in Algorithm::ALL {
        let (store, takes) = (MemoryStore::new(), takes(algorithm));
        let ask = || {
            for take in &takes {
                let answer = store.take(take).poll_now();
                let decision = answer.expect("ready").expect("a decision");
                assert!(decision.is_allowed());
            }
        };
        (0..100).for_each(|_| ask());
        let allocations = measure(ask).count_total;
        let grows = match algorithm {
            // Its entries are a list that grows by doubling.
            Algorithm::SlidingLog | Algorithm::SlidingWindow => TAKES as u64,
            _ => 0,
        };
        println!("memory, {algorithm:?}: {allocations} allocations for {TAKES} takes");
        assert!(allocations <= grows, "{algorithm:?}: {allocations}");
    }
}

/// The key's name, one waiter, and a share of what the flight takes; with all that the Redis client
/// does.
#[test]
fn an_allowed_take_on_redis_allocates_little() {
    let runtime = still_runtime();
    let (_server, store) = runtime.block_on(started());
    for algorithm in [Algorithm::SlidingLog, Algorithm::Gcra] {
        let takes = takes(algorithm);
        let ask = |number: usize| {
            let mut answers = Vec::with_capacity(number);
            runtime.block_on(async {
                answers.extend(takes[..number].iter().map(|take| store.take(take)));
                for answer in answers {
                    assert!(answer.await.expect("a decision").is_allowed());
                }
            });
        };
        (0..20).for_each(|_| ask(TAKES));
        (0..20).for_each(|_| ask(1));
        let many = measure(|| ask(TAKES)).count_total as f64 / TAKES as f64;
        let one = measure(|| ask(1)).count_total;
        println!("redis, {algorithm:?}: {many:.2} allocations a take of {TAKES}, {one} alone");
        assert!(many <= 4.0, "{algorithm:?}: {many}");
        assert!(one <= 60, "{algorithm:?}: {one}");
    }
}
