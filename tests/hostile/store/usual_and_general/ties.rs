//! Law 8 where more counters of earlier quotas are needed than are kept, and some of them are
//! needed for equally long: memory and Redis drop the same ones.

use super::*;

/// A rule with a quota that counts for all: only two counters of earlier quotas are kept.
fn bounded(algorithm: Algorithm) -> Arc<Rule> {
    let rule = owned(algorithm, "ties", &[(9, 1_000), (9, 10_000)]);
    // More plans than quotas that are charged along: one counts for all.
    let plan = |at: u64| quotas(&[(8, 20_000 - at)]);
    let plans = (0..16).map(|at| (at.to_string(), plan(at)));
    let own = Arc::new(rule.with_plans(plans).expect("valid"));
    assert!(take(&own, "").quotas().iter().any(Quota::only_counts));
    own
}

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

/// Buckets of one pace that hold different numbers of units are as full as each other.
#[tokio::test]
async fn buckets_of_one_pace() {
    let bound = bounded(Algorithm::Gcra);
    let short = Arc::new(owned(Algorithm::Gcra, "ties", &[(9, 7)]));
    let bursts = [40, 80, 60, 50];
    for number in 2..=bursts.len() {
        for first in 0..number {
            let mut bursts = bursts[..number].to_vec();
            bursts.rotate_left(first);
            let policies = bursts.iter().map(|burst| {
                let quota = quota(40, 7).with_burst(*burst).expect("valid");
                Policy::new(&burst.to_string(), quota)
            });
            let pace = Rule::with_policies("ties", policies).expect("valid");
            let pace = Arc::new(pace.with_algorithm(Algorithm::Gcra));
            is_alike(&[
                (0, &short),
                (0, &pace),
                (0, &pace),
                (2_000, &pace),
                (2_000, &bound),
                (2_000, &pace),
            ])
            .await;
        }
    }
}

/// Windows of one length that are divided differently end together.
#[tokio::test]
async fn windows_of_one_length() {
    let algorithm = Algorithm::SlidingWindow;
    let bound = bounded(algorithm);
    let divided = [64, 4, 16, 1].map(|number| {
        let rule = owned(algorithm, "ties", &[(9, 100)]);
        Arc::new(rule.with_algorithm(AlgorithmConfig::from(algorithm).sub_windows(number)))
    });
    for number in 2..=divided.len() {
        for first in 0..number {
            let mut divided = divided[..number].to_vec();
            divided.rotate_left(first);
            let mut takes: Vec<_> = divided.iter().map(|rule| (0, rule)).collect();
            takes.extend(divided.iter().map(|rule| (60_000, rule)));
            takes.push((70_000, &bound));
            takes.extend(divided.iter().map(|rule| (110_000, rule)));
            takes.extend(divided.iter().map(|rule| (120_000, rule)));
            is_alike(&takes).await;
        }
    }
}
