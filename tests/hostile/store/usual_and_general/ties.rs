//! Law 8 where a key was charged under more windows than it has counters: memory and Redis drop the
//! same ones, also of counters that end together.

use super::*;

/// All takes at these instants, in microseconds after the beginning, are decided alike.
async fn is_alike(takes: &[(u64, &Arc<Rule>)]) {
    let (_server, store) = near().await;
    let clock = ManualClock::default();
    let store = store.clock(clock.clone());
    let mut count = Count::default();
    for (at, (after, rule)) in takes.iter().enumerate() {
        clock.set(START + after);
        let take = take(rule, "");
        let redis = decide(&store, &take).await;
        let pure = count.take(rule.algorithm(), START + after, take.quotas(), 1);
        let facts = |one: &tidegate::Decision| (one.verdict(), one.quotas().to_vec());
        assert_eq!(facts(&redis), facts(&pure), "take {at} of {takes:?}");
    }
}

/// More windows than a key has counters, of which several end together.
#[tokio::test]
async fn more_windows_than_counters() {
    for algorithm in [
        Algorithm::SlidingWindow,
        Algorithm::Gcra,
        Algorithm::FixedWindow,
    ] {
        let rules: Vec<_> = (0..40_u64)
            .map(|at| Arc::new(owned(algorithm, "ties", &[(1, 1_000 + at / 2 * 10)])))
            .collect();
        let pair = (0..40_u64).map(|at| {
            let windows = [(9, 2_000 + at * 10), (9, 5_000 - at * 10)];
            Arc::new(owned(algorithm, "ties", &windows))
        });
        let pairs: Vec<_> = pair.collect();
        // All of them end at the same instant.
        let charged = rules.iter().enumerate();
        let charged = charged.map(|(at, rule)| (1_000 * (200 - at as u64 / 2 * 10), rule));
        let mut takes: Vec<_> = charged.rev().collect();
        takes.extend(pairs.iter().map(|rule| (201_000, rule)));
        takes.extend(rules.iter().map(|rule| (202_000, rule)));
        takes.extend(pairs.iter().rev().map(|rule| (203_000, rule)));
        is_alike(&takes).await;
    }
}

/// The number of sub-windows changes: it is the same counter.
#[tokio::test]
async fn windows_of_one_length() {
    let algorithm = Algorithm::SlidingWindow;
    let divided = [64, 4, 16, 1].map(|number| {
        let rule = owned(algorithm, "ties", &[(9, 100)]);
        Arc::new(rule.with_algorithm(AlgorithmConfig::from(algorithm).sub_windows(number)))
    });
    for number in 2..=divided.len() {
        for first in 0..number {
            let mut divided = divided[..number].to_vec();
            divided.rotate_left(first);
            let mut takes: Vec<_> = divided.iter().map(|rule| (0, rule)).collect();
            for after in [60_000, 70_000, 110_000, 120_000] {
                takes.extend(divided.iter().map(|rule| (after, rule)));
            }
            is_alike(&takes).await;
        }
    }
}
