//! Histories that broke a law once, shrunk, in plain numbers.

use std::sync::Arc;
use std::time::Duration;

use tidegate::algorithm::{AlgorithmConfig, Count};
use tidegate::decision::Receipt;
use tidegate::rule::Plan;
use tidegate::{Algorithm, Quota, Rule};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// A rule of these quotas, of units and milliseconds.
fn rule<const N: usize>(quotas: [(u64, u64); N]) -> [Quota; N] {
    quotas.map(|(max, millis)| Quota::new(Duration::from_millis(millis), max).expect("valid"))
}

fn take(
    count: &mut Count,
    counting: impl Into<AlgorithmConfig>,
    now: u64,
    quotas: &[Quota],
    cost: u64,
) -> Receipt {
    let decision = count.take(counting, now, quotas, cost);
    let receipt = decision.receipt();
    receipt.unwrap_or_else(|| panic!("not charged at {now}: {decision:?}"))
}

fn remaining(
    count: &Count,
    counting: impl Into<AlgorithmConfig>,
    now: u64,
    quotas: &[Quota],
) -> Vec<u64> {
    let peek = count.clone().take(counting, now, quotas, 0);
    peek.quotas()
        .iter()
        .map(|state| state.remaining())
        .collect()
}

kit::for_each_algorithm!(a_new_quota_counts_nothing_that_is_longer_ago);

fn a_new_quota_counts_nothing_that_is_longer_ago(algorithm: Algorithm) {
    let (mut count, old, new) = (Count::default(), rule([(9, 999)]), rule([(9, 999), (3, 8)]));
    take(&mut count, algorithm, 0, &old, 5);
    take(&mut count, algorithm, 100 * MILLI, &old, 1);
    let left = |now| remaining(&count, algorithm, now, &new)[1];
    // Another window is another counter. A log has none.
    let begins_with = match algorithm == Algorithm::SlidingLog {
        true => 2,
        false => 3,
    };
    assert_eq!(left(108 * MILLI - 1), begins_with);
    assert_eq!(left(108 * MILLI), 3);
}

kit::for_each_algorithm!(a_refund_under_another_rule_refills_nothing);

/// What was dropped as a newer unit took its place is needed again when that is given back.
fn a_refund_under_another_rule_refills_nothing(algorithm: Algorithm) {
    for (long, short) in [((1, 8), (3, 1)), ((3, 3), (3, 1)), ((3, 8), (2, 1))] {
        let units = short.0.min(long.0);
        let (long, short) = (rule([long]), rule([short]));
        let mut count = Count::default();
        take(&mut count, algorithm, 0, &long, long[0].max());
        let now = MILLI;
        let expected = remaining(&count, algorithm, now, &long);
        let receipt = take(&mut count, algorithm, now, &short, units);
        let back = count.refund(now, &short, &receipt, units);
        let remaining = remaining(&count, algorithm, now, &long);
        assert!(
            remaining <= expected,
            "{long:?}: {expected:?}, then {remaining:?}, {back} given back"
        );
    }
}

kit::for_each_algorithm!(a_refund_at_once_under_another_rule_is_complete);

/// Taken and given back at once, while a longer window of an earlier rule still counts.
fn a_refund_at_once_under_another_rule_is_complete(algorithm: Algorithm) {
    for (long, short) in [((1, 8), (3, 1)), ((3, 3), (3, 1)), ((3, 8), (2, 1))] {
        let (long, short) = (rule([long]), rule([short]));
        let mut count = Count::default();
        take(&mut count, algorithm, 0, &long, long[0].max());
        let before = remaining(&count, algorithm, MILLI, &short);
        let receipt = take(&mut count, algorithm, MILLI, &short, 1);
        let back = count.refund(MILLI, &short, &receipt, 1);
        let after = remaining(&count, algorithm, MILLI, &short);
        assert_eq!((back, after), (1, before), "{long:?}, then {short:?}");
    }
}

/// What another rule finds after a refund is no less than it was before it.
#[test]
fn a_refund_takes_nothing_away() {
    let by = |sub_windows| AlgorithmConfig::from(Algorithm::SlidingWindow).sub_windows(sub_windows);
    let rule = rule([(3, 2), (2, 1)]);
    let mut count = Count::default();
    take(&mut count, by(2), 0, &rule, 2);
    let receipt = take(&mut count, by(2), MILLI, &rule, 1);
    let before = remaining(&count, by(16), MILLI, &rule);
    assert_eq!(count.refund(MILLI, &rule, &receipt, 1), 1);
    let after = remaining(&count, by(16), MILLI, &rule);
    assert!(
        before[0] <= after[0] && before[1] <= after[1],
        "{before:?}, then {after:?}"
    );
}

/// The fullest bucket of the fastest quota, with all that it may owe.
#[test]
fn the_fullest_bucket_can_be_read() {
    let rule = rule([(Quota::MAX_UNITS, 1_000)]);
    let mut count = Count::default();
    take(&mut count, Algorithm::Gcra, 0, &rule, Quota::MAX_UNITS);
    let most = Some(u64::MAX);
    count.owe(Algorithm::Gcra, SECOND - 1, &rule, u64::MAX, most);
    let read = Count::from_bytes(&count.to_bytes()).expect("its own bytes");
    let left = |count| remaining(count, Algorithm::Gcra, 2 * SECOND, &rule);
    assert_eq!(left(&read), left(&count));
}

/// The same of buckets.
#[test]
fn a_refund_takes_nothing_away_from_a_bucket() {
    let [small, other, large] = rule([(1, 1), (10, 4), (1, 4)]);
    let rule = [small.with_burst(3).expect("valid"), other];
    let next = [large.with_burst(2).expect("valid")];
    let mut count = Count::default();
    take(&mut count, Algorithm::Gcra, 0, &rule, 2);
    let receipt = take(&mut count, Algorithm::Gcra, 806, &rule, 1);
    let before = remaining(&count, Algorithm::Gcra, 806, &next);
    assert_eq!(count.refund(806, &rule, &receipt, 1), 1);
    let after = remaining(&count, Algorithm::Gcra, 806, &next);
    assert!(before <= after, "{before:?}, then {after:?}");
}

/// Only the number of sub-windows changes. What has ceased to count frees nothing of what counts.
#[test]
fn a_refund_across_sub_windows_frees_nothing_else() {
    let rule = rule([(5, 8)]);
    let by = |sub_windows| AlgorithmConfig::from(Algorithm::SlidingWindow).sub_windows(sub_windows);
    let mut count = Count::default();
    let receipt = take(&mut count, by(64), 333, &rule, 1);
    take(&mut count, by(64), 333, &rule, 1);
    take(&mut count, by(64), 1_332, &rule, 1);
    take(&mut count, by(4), 8_333, &rule, 1);
    take(&mut count, by(64), 8_333, &rule, 1);
    let back = count.refund(8_341, &rule, &receipt, 1);
    // Those at 1,332 and 8,333.
    let remaining = remaining(&count, by(4), 8_341, &rule);
    assert!(
        remaining[0] <= 2,
        "{remaining:?} after {back} was given back"
    );
}

/// Plans that take turns on one bucket: what each has taken counts for the other.
#[test]
fn two_plans_share_a_bucket() {
    let [slow, fast] = [rule([(2, 1_000)]), rule([(5, 1_000)])];
    let (mut count, gcra) = (Count::default(), Algorithm::Gcra);
    let mut receipts = vec![take(&mut count, gcra, 0, &slow, 1)];
    receipts.extend([1, 1].map(|cost| take(&mut count, gcra, 0, &fast, cost)));
    assert!(!count.take(gcra, 0, &fast, 4).is_allowed(), "3 are used");
    assert!(!count.take(gcra, 0, &slow, 1).is_allowed());
    assert_eq!(count.owe(gcra, 0, &slow, u64::MAX, None), 1, "2 and 2 owed");
    for (receipt, quotas) in receipts.iter().zip([&slow, &fast, &fast]) {
        assert_eq!(count.refund(0, quotas, receipt, 1), 1);
    }
    assert!(count.take(gcra, 0, &slow, 1).is_allowed());
    assert!(!count.take(gcra, 0, &slow, 1).is_allowed());
}

kit::for_each_algorithm!(plans_that_alternate_fit);

/// A customer whose windows alternate is denied by none in which there is room.
fn plans_that_alternate_fit(algorithm: Algorithm) {
    if algorithm == Algorithm::SlidingLog {
        // It counts all that lies in the window.
        return;
    }
    let [short, long, middle] = [(12, 5_000), (11, 60_000), (16, 30_000)].map(|it| rule([it]));
    let mut count = Count::default();
    for round in 0..6 {
        let now = round * 5 * SECOND;
        take(&mut count, algorithm, now, &short, 12);
        assert!(!count.take(algorithm, now, &short, 1).is_allowed());
    }
    take(&mut count, algorithm, 26 * SECOND, &long, 11);
    take(&mut count, algorithm, 27 * SECOND, &middle, 16);
    for quotas in [&long, &middle] {
        let denied = count.take(algorithm, 27 * SECOND, quotas, 2);
        assert!(!denied.is_allowed(), "{denied:?}");
    }
}

kit::for_each_algorithm!(a_refund_refills_no_other_window);

/// What another window was charged is not given back with it, nor with a receipt from before.
fn a_refund_refills_no_other_window(algorithm: Algorithm) {
    let (old, new) = (rule([(9, 8)]), rule([(9, 16), (9, 8)]));
    let mut count = Count::default();
    let before = take(&mut count, algorithm, 0, &old, 5);
    take(&mut count, algorithm, MILLI, &new, 3);
    let left = remaining(&count, algorithm, MILLI, &new);
    count.refund(MILLI, &new, &before, 5);
    let after = remaining(&count, algorithm, MILLI, &new);
    match algorithm {
        Algorithm::SlidingLog => assert_eq!(after, [6, 6]),
        _ => assert_eq!(after[0], left[0], "the new window"),
    }
}

/// A bucket without room has nothing to wait for.
#[test]
fn a_bucket_without_room_is_always_whole() {
    let mut count = Count::default();
    take(&mut count, Algorithm::Gcra, 0, &rule([(1, 1)]), 1);
    let never = count.take(Algorithm::Gcra, 0, &rule([(0, 1)]), 1);
    assert_eq!(never.reset_after(), Duration::ZERO, "{never:?}");
}

kit::for_each_algorithm!(a_refund_after_the_clock_went_back_frees_nothing_else);

/// The clock goes back by a window: takes of the same instant are told apart, before and after.
fn a_refund_after_the_clock_went_back_frees_nothing_else(algorithm: Algorithm) {
    let rule = rule([(2, 3)]);
    let (now, mut count) = (3 * MILLI, Count::default());
    let old = take(&mut count, algorithm, now, &rule, 1);
    take(&mut count, algorithm, 0, &rule, 1);
    take(&mut count, algorithm, now, &rule, 2);
    // The old one was counted from 0 to now.
    assert_eq!(count.refund(now, &rule, &old, 1), 0, "{algorithm:?}");
    let remaining = remaining(&count, algorithm, now, &rule);
    assert_eq!(remaining, [0], "{algorithm:?}");
}

/// The clock went back and came near to where it was: a receipt of this millisecond, before, is
/// none for what is new.
#[test]
fn a_receipt_from_before_the_clock_went_back_frees_nothing_of_a_log() {
    let rule = rule([(2, 2)]);
    let mut count = Count::default();
    let receipt = take(&mut count, Algorithm::SlidingLog, 10_000, &rule, 1);
    take(&mut count, Algorithm::SlidingLog, 5_000, &rule, 1);
    take(&mut count, Algorithm::SlidingLog, 10_001, &rule, 2);
    let back = count.refund(10_001, &rule, &receipt, 1);
    let remaining = remaining(&count, Algorithm::SlidingLog, 10_001, &rule);
    assert_eq!((back, remaining[0]), (0, 0));
}

kit::for_each_algorithm!(a_denial_while_the_clock_is_back_frees_nothing);

/// The clock goes back by a window, somebody is denied, and the clock returns: what was admitted
/// counts.
fn a_denial_while_the_clock_is_back_frees_nothing(algorithm: Algorithm) {
    for rule in [&rule([(2, 1_000)])[..], &rule([(2, 1_000), (3, 2_000)])] {
        let (now, mut count) = (100 * SECOND, Count::default());
        take(&mut count, algorithm, now, rule, 2);
        let before = format!("{count:?}");
        for back in [1, SECOND / 2, SECOND, 60 * SECOND] {
            let denied = count.take(algorithm, now - back, rule, 1);
            assert!(!denied.is_allowed(), "{denied:?}");
            let peek = count.take(algorithm, now - back, rule, 0);
            assert_eq!(peek.remaining(), 0);
        }
        assert_eq!(format!("{count:?}"), before, "something was written");
        assert_eq!(remaining(&count, algorithm, now, rule)[0], 0);
    }
}

/// Rules for as many plans from code as are kept are made once.
#[test]
fn rules_for_plans_from_code_are_kept() {
    for algorithm in Algorithm::ALL {
        let rule = Rule::new("plans", [Quota::per_minute(1)]).expect("valid");
        let rule = Arc::new(rule.with_algorithm(algorithm));
        let of = |max| {
            let plan = Plan::of([Quota::per_minute(max)]).expect("valid");
            rule.under(&plan).expect("it fits")
        };
        let made = || (1..=4_000).map(of).collect::<Vec<_>>();
        let kept = made().iter().zip(&made()).all(|(a, b)| Arc::ptr_eq(a, b));
        assert!(kept, "{algorithm:?}");
    }
}
