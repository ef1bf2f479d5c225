//! Histories that broke a law once, shrunk, in plain numbers.

use std::time::Duration;

use tidegate::{Algorithm, Count, Counting, Quota, Token};

use crate::check::{for_each_algorithm, for_each_tally, for_each_window};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// In milliseconds, as quotas have it.
const DAY: u64 = 24 * 3_600_000;

/// A rule of these quotas, of units and milliseconds.
fn rule<const N: usize>(quotas: [(u64, u64); N]) -> [Quota; N] {
    quotas.map(|(max, millis)| Quota::new(max, Duration::from_millis(millis)).expect("valid"))
}

fn take(
    count: &mut Count,
    counting: impl Into<Counting>,
    now: u64,
    quotas: &[Quota],
    cost: u64,
) -> Token {
    let decision = count.take(counting, now, quotas, cost);
    let token = decision.token();
    token.unwrap_or_else(|| panic!("not charged at {now}: {decision:?}"))
}

fn remaining(count: &Count, counting: impl Into<Counting>, now: u64, quotas: &[Quota]) -> Vec<u64> {
    let peek = count.clone().take(counting, now, quotas, 0);
    peek.quotas()
        .iter()
        .map(|state| state.remaining())
        .collect()
}

for_each_window!(a_bucket_in_between_refills_no_window);

/// Two of a day's three are gone. A bucket for one take does not bring them back.
fn a_bucket_in_between_refills_no_window(window: Algorithm) {
    let day = rule([(3, DAY)]);
    let mut count = Count::default();
    take(&mut count, window, 0, &day, 2);
    take(
        &mut count,
        Algorithm::Gcra,
        12 * HOUR,
        &rule([(100, 1_000)]),
        1,
    );
    let remaining = remaining(&count, window, 18 * HOUR, &day);
    assert!(remaining[0] <= 1, "{window:?}: {remaining:?}");
}

/// From a log to buckets: each drains at its own pace.
#[test]
fn a_log_of_several_quotas_becomes_buckets() {
    let rule = rule([(100, 1_000), (3, DAY)]);
    let mut count = Count::default();
    take(&mut count, Algorithm::SlidingLog, 0, &rule, 2);
    let remaining = remaining(&count, Algorithm::Gcra, HOUR, &rule);
    assert_eq!(remaining, [100, 1]);
}

/// A burst above the max is not cut to the max by another algorithm in between.
#[test]
fn a_burst_outlives_another_algorithm() {
    let [quota] = rule([(1, 2)]);
    let burst = [quota.with_burst(4).expect("valid")];
    let mut count = Count::default();
    take(&mut count, Algorithm::Gcra, 0, &burst, 3);
    take(&mut count, Algorithm::SlidingWindow, 0, &rule([(5, 3)]), 1);
    let remaining = remaining(&count, Algorithm::Gcra, 0, &burst);
    assert!(remaining[0] <= 1, "{remaining:?}");
}

for_each_algorithm!(a_refund_under_another_rule_refills_nothing);

/// What was dropped as a newer unit took its place is needed again when that is given back.
fn a_refund_under_another_rule_refills_nothing(algorithm: Algorithm) {
    for (long, short) in [((1, 8), (3, 1)), ((3, 3), (3, 1)), ((3, 8), (2, 1))] {
        let units = short.0.min(long.0);
        let (long, short) = (rule([long]), rule([short]));
        let mut count = Count::default();
        take(&mut count, algorithm, 0, &long, long[0].max());
        let now = MILLI;
        let expected = remaining(&count, algorithm, now, &long);
        let token = take(&mut count, algorithm, now, &short, units);
        let back = count.refund(now, &token, units);
        let remaining = remaining(&count, algorithm, now, &long);
        assert!(
            remaining <= expected,
            "{long:?}: {expected:?}, then {remaining:?}, {back} given back"
        );
    }
}

for_each_tally!(a_refund_at_once_under_another_rule_is_complete);

/// Taken and given back at once, while a longer window of an earlier rule still counts. A log gives nothing back then
/// that the longer window may need.
fn a_refund_at_once_under_another_rule_is_complete(algorithm: Algorithm) {
    for (long, short) in [((1, 8), (3, 1)), ((3, 3), (3, 1)), ((3, 8), (2, 1))] {
        let (long, short) = (rule([long]), rule([short]));
        let mut count = Count::default();
        take(&mut count, algorithm, 0, &long, long[0].max());
        let before = remaining(&count, algorithm, MILLI, &short);
        let token = take(&mut count, algorithm, MILLI, &short, 1);
        let back = count.refund(MILLI, &token, 1);
        let after = remaining(&count, algorithm, MILLI, &short);
        assert_eq!((back, after), (1, before), "{long:?}, then {short:?}");
    }
}

/// What another rule finds after a refund is no less than it was before it.
#[test]
fn a_refund_takes_nothing_away() {
    let by = |sub_windows| Counting::from(Algorithm::SlidingWindow).sub_windows(sub_windows);
    let rule = rule([(3, 2), (2, 1)]);
    let mut count = Count::default();
    take(&mut count, by(2), 0, &rule, 2);
    let token = take(&mut count, by(2), MILLI, &rule, 1);
    let before = remaining(&count, by(16), MILLI, &rule);
    assert_eq!(count.refund(MILLI, &token, 1), 1);
    let after = remaining(&count, by(16), MILLI, &rule);
    assert!(
        before[0] <= after[0] && before[1] <= after[1],
        "{before:?}, then {after:?}"
    );
}

/// The same of buckets.
#[test]
fn a_refund_takes_nothing_away_from_a_bucket() {
    let [small, other, large] = rule([(1, 1), (10, 4), (1, 4)]);
    let rule = [small.with_burst(3).expect("valid"), other];
    let next = [large.with_burst(2).expect("valid")];
    let mut count = Count::default();
    take(&mut count, Algorithm::Gcra, 0, &rule, 2);
    let token = take(&mut count, Algorithm::Gcra, 806, &rule, 1);
    let before = remaining(&count, Algorithm::Gcra, 806, &next);
    assert_eq!(count.refund(806, &token, 1), 1);
    let after = remaining(&count, Algorithm::Gcra, 806, &next);
    assert!(before <= after, "{before:?}, then {after:?}");
}

/// Only the number of sub-windows changes. What has ceased to count frees nothing of what counts.
#[test]
fn a_refund_across_sub_windows_frees_nothing_else() {
    let rule = rule([(5, 8)]);
    let by = |sub_windows| Counting::from(Algorithm::SlidingWindow).sub_windows(sub_windows);
    let mut count = Count::default();
    let token = take(&mut count, by(64), 333, &rule, 1);
    take(&mut count, by(64), 333, &rule, 1);
    take(&mut count, by(64), 1_332, &rule, 1);
    take(&mut count, by(4), 8_333, &rule, 1);
    take(&mut count, by(64), 8_333, &rule, 1);
    let back = count.refund(8_341, &token, 1);
    // Those at 1,332 and 8,333.
    let remaining = remaining(&count, by(4), 8_341, &rule);
    assert!(
        remaining[0] <= 2,
        "{remaining:?} after {back} was given back"
    );
}

/// A bucket without room has nothing to wait for.
#[test]
fn a_bucket_without_room_is_always_whole() {
    let mut count = Count::default();
    take(&mut count, Algorithm::Gcra, 0, &rule([(1, 1)]), 1);
    let never = count.take(Algorithm::Gcra, 0, &rule([(0, 1)]), 1);
    assert_eq!(never.reset_after(), Duration::ZERO, "{never:?}");
}

for_each_algorithm!(a_refund_after_the_clock_went_back_frees_nothing_else);

/// The clock goes back by a window: takes of the same instant are told apart, before and after.
fn a_refund_after_the_clock_went_back_frees_nothing_else(algorithm: Algorithm) {
    let rule = rule([(2, 3)]);
    let (now, mut count) = (3 * MILLI, Count::default());
    let old = take(&mut count, algorithm, now, &rule, 2);
    let _ = count.take(algorithm, 0, &rule, 1);
    take(&mut count, algorithm, now, &rule, 2);
    // The old ones were counted from 0 to now.
    assert_eq!(count.refund(now, &old, 2), 0, "{algorithm:?}");
    let remaining = remaining(&count, algorithm, now, &rule);
    assert_eq!(remaining, [0], "{algorithm:?}");
}

for_each_window!(a_bucket_drains_once);

/// From a bucket to another algorithm, and after a take that was given back to the bucket again: what drained before
/// does not drain a second time.
fn a_bucket_drains_once(between: Algorithm) {
    for others in [
        rule([(10, 10)]).to_vec(),
        rule([(10, 10), (1_000, 1_000)]).to_vec(),
    ] {
        let (now, bucket) = (5 * MILLI, rule([(10, 10)]));
        let mut count = Count::default();
        take(&mut count, Algorithm::Gcra, 0, &bucket, 8);
        let before = remaining(&count, Algorithm::Gcra, now, &bucket);
        let token = take(&mut count, between, now, &others, 1);
        let back = count.refund(now, &token, 1);
        let after = remaining(&count, Algorithm::Gcra, now, &bucket);
        assert!(
            after <= before,
            "{before:?}, then {after:?}, {back} given back, {others:?}"
        );
    }
}

/// A fixed window is over, and a log begins within the same millisecond: an old receipt is none for what is new.
#[test]
fn a_receipt_of_a_window_that_is_over_frees_nothing_of_a_log() {
    let rule = rule([(2, 2)]);
    let mut count = Count::default();
    take(&mut count, Algorithm::FixedWindow, 1, &rule, 1);
    let token = take(&mut count, Algorithm::FixedWindow, 2_000, &rule, 1);
    // The window ends at 2,001.
    take(&mut count, Algorithm::SlidingLog, 2_001, &rule, 2);
    let back = count.refund(2_001, &token, 1);
    let remaining = remaining(&count, Algorithm::SlidingLog, 2_001, &rule);
    assert_eq!((back, remaining[0]), (0, 0));
}

/// The clock went back and came near to where it was: a receipt of this millisecond, before, is none for what is new.
#[test]
fn a_receipt_from_before_the_clock_went_back_frees_nothing_of_a_log() {
    let rule = rule([(1, 2)]);
    let mut count = Count::default();
    let token = take(&mut count, Algorithm::SlidingLog, 10_000, &rule, 1);
    let _ = count.take(Algorithm::SlidingLog, 5_000, &rule, 1);
    take(&mut count, Algorithm::SlidingLog, 10_001, &rule, 1);
    let back = count.refund(10_001, &token, 1);
    let remaining = remaining(&count, Algorithm::SlidingLog, 10_001, &rule);
    assert_eq!((back, remaining[0]), (0, 0));
}
