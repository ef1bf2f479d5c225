//! Rates, counts and instants at the ends of what is possible.

use std::time::Duration;

use kit::ensure;
use kit::steps::{check_each, number_of_histories, quotas, way};
use proptest::prelude::*;
use tidegate::algorithm::Count;
use tidegate::decision::{Receipt, Verdict};
use tidegate::{Algorithm, Quota};

kit::for_each_algorithm!(
    anything_may_be_asked,
    more_units_than_a_number_holds,
    the_end_of_time,
    many_quotas_and_none,
);
kit::for_each!(traffic_takes_no_room {
    sliding_window SlidingWindow,
    gcra Gcra,
    fixed_window FixedWindow,
});

/// In microseconds.
const LONGEST: u64 = 3_650 * 86_400 * 1_000_000;

fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(window, max).expect("within bounds")
}

/// Asks for `cost` again and again, as soon as it is said to fit, and compares with a bucket in
/// exact fractions. Returns how long it took.
fn saturate(quota: Quota, cost: u64, takes: u64) -> Result<u128, String> {
    let start = 1_234_567;
    let (rate, window) = (u128::from(quota.max()), quota.window().as_micros());
    // What is in the bucket after a take, and what fits, both times the window.
    let mut level = 0;
    let (poured, full) = (
        u128::from(cost) * window,
        u128::from(quota.burst()) * window,
    );
    let mut count = Count::default();
    let mut now = start;
    for take in 0..takes {
        let expected = (level + poured).saturating_sub(full).div_ceil(rate);
        level = level.saturating_sub(expected * rate) + poured;
        let first = count.take(Algorithm::Gcra, now, &[quota], cost);
        let wait = first.retry_after().unwrap_or_default().as_micros();
        ensure!(
            wait == expected,
            "take {take} of {quota:?} after {wait}, not {expected}"
        );
        if wait > 0 {
            now += u64::try_from(wait).expect("fits");
            let then = count.take(Algorithm::Gcra, now, &[quota], cost);
            ensure!(
                then.is_allowed(),
                "take {take} of {quota:?} after {wait}: {then:?}"
            );
        }
    }
    Ok(u128::from(now - start))
}

/// Where the bucket is never empty, not even a microsecond is lost in thousands of takes.
#[test]
fn gcra_never_drifts() {
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    let rates = [
        quota(1, day),
        quota(3, day),
        quota(1_000, second),
        quota(1_001, second),
        quota(1_500, second),
        quota(1_000_000, second),
        quota(1_000_003, second),
        quota(7, Duration::from_millis(1_009)),
        quota(997, Duration::from_millis(1)),
        quota(86_399, day),
        quota(999_999_999_989, Duration::from_millis(1)),
    ];
    for rate in rates {
        let cost = 1 + rate.max() / 10_000;
        // As much as drains in a microsecond is more than what rounding up the wait may lose.
        let burst = 1 + cost + rate.max().div_ceil(1_000);
        let rate = rate.with_burst(burst).expect("it drains in time");
        let took = saturate(rate, cost, 5_000).expect("no drift");
        let drained = u128::from(cost) * 5_000 - u128::from(burst);
        let expected = (drained * rate.window().as_micros()).div_ceil(rate.max().into());
        assert_eq!(took, expected, "{rate:?}");
    }
}

#[test]
fn gcra_never_drifts_at_any_rate() {
    let max = prop_oneof![1..40_u64, 1..2_000_000_u64, 1..Quota::MAX_UNITS];
    let millis = prop_oneof![1..40_u64, 1..100_000_u64, 1..86_400_000_u64];
    let rates = (max, millis, 1..50_u64, 1..50_u64);
    check_each(
        number_of_histories(800),
        &rates,
        |&(max, millis, burst, cost), _| {
            let rate = quota(max, Duration::from_millis(millis));
            let rate = rate.with_burst(burst).unwrap_or(rate);
            saturate(rate, cost.min(rate.burst()), 20).map(|_| ())
        },
    );
}

/// Whatever is asked, at whatever instant, with whatever receipt: no panic, and an answer that does
/// not contradict itself.
fn anything_may_be_asked(algorithm: Algorithm) {
    let number = || {
        prop_oneof![
            4 => 0..5_u64,
            4 => (0..64_u32).prop_map(|bits| 1 << bits),
            2 => (0..64_u32).prop_map(|bits| u64::MAX >> bits),
            1 => any::<u64>(),
        ]
    };
    let rule = || {
        (
            prop_oneof![
                way(algorithm),
                prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(way)
            ],
            quotas(),
        )
    };
    // What counts needs some time after it.
    let now = number().prop_map(|now| now.min(u64::MAX - 2 * LONGEST));
    let asked = (now, number(), number(), 0..8_usize);
    let histories = (rule(), rule(), prop::collection::vec(asked, 1..12));
    let number = number_of_histories(800);
    let seen = check_each(number, &histories, |(first, second, asked), seen| {
        let mut count = Count::default();
        let mut receipts = Vec::new();
        for &(now, cost, serial, kind) in asked {
            let (way, quotas) = if kind % 3 == 0 { second } else { first };
            if kind < 2 {
                let receipt = receipts.get(cost as usize % receipts.len().max(1));
                let receipt = receipt.cloned().unwrap_or(Receipt::new(now, serial, cost));
                let back = count.refund(now, quotas, &receipt, cost);
                ensure!(
                    back <= receipt.units().min(cost),
                    "{back} of {receipt:?} given back"
                );
                let forged = Receipt::new(now, serial, cost);
                count.clone().refund(now, quotas, &forged, serial);
                continue;
            }
            let decision = count.take(*way, now, quotas, cost);
            let units = decision.receipt().map_or(0, |receipt| receipt.units());
            ensure!(
                units == if decision.is_allowed() { cost } else { 0 },
                "{decision:?} for {cost}"
            );
            for (state, quota) in decision.quotas().iter().zip(quotas) {
                ensure!(
                    state.remaining() <= quota.max().max(quota.burst()),
                    "{decision:?}"
                );
            }
            seen.note_if(decision.is_allowed(), "allowed");
            seen.note_if(!decision.is_allowed(), "denied");
            receipts.extend(decision.receipt());
        }
        let _ = count.forgotten_at();
        Ok(())
    });
    seen.expect(400, "allowed");
    seen.expect(400, "denied");
}

/// In its life a count may be charged more than 64 bits of units.
fn more_units_than_a_number_holds(algorithm: Algorithm) {
    let most = quota(Quota::MAX_UNITS, Duration::from_millis(1));
    let mut count = Count::default();
    let mut now = 5;
    for round in 0..20_000 {
        let decision = count.take(algorithm, now, &[most], Quota::MAX_UNITS);
        assert!(decision.is_allowed(), "round {round}: {decision:?}");
        let denied = count.take(algorithm, now, &[most], 1);
        assert!(denied.retry_after().is_some(), "round {round}: {denied:?}");
        let receipt = decision.receipt().expect("it was charged");
        if round % 100 == 0 {
            let back = count.refund(now, &[most], &receipt, u64::MAX);
            assert_eq!(back, Quota::MAX_UNITS, "round {round}");
            assert_eq!(
                count.refund(now, &[most], &receipt, u64::MAX),
                0,
                "round {round}"
            );
        }
        now += 1_000;
    }
}

/// The last instants that a clock can show.
fn the_end_of_time(algorithm: Algorithm) {
    for window in [Duration::from_millis(1), Quota::MAX_WINDOW] {
        for max in [1, Quota::MAX_UNITS] {
            let rule = [quota(max, window)];
            let mut count = Count::default();
            for now in [u64::MAX - 1_000, u64::MAX - 1, u64::MAX] {
                let first = count.clone().take(algorithm, u64::MAX - 1_000, &rule, max);
                assert!(first.is_allowed() || now > u64::MAX - 1_000, "{first:?}");
                let decision = count.take(algorithm, now, &rule, max);
                let receipt = decision.receipt();
                count.take(algorithm, now, &rule, 1);
                let _ = count.forgotten_at();
                if let Some(receipt) = receipt {
                    // At the very end everything is over at once.
                    let back = count.refund(now, &rule, &receipt, 1);
                    assert!(back <= 1, "{decision:?}");
                }
            }
            assert!(!count.take(algorithm, u64::MAX, &rule, max + 1).is_allowed());
        }
    }
}

fn many_quotas_and_none(algorithm: Algorithm) {
    let mut count = Count::default();
    let most = [quota(Quota::MAX_UNITS, Duration::from_secs(1))];
    assert!(count.take(algorithm, 7, &most, most[0].max()).is_allowed());
    assert!(count.take(algorithm, 6, &[], u64::MAX).is_allowed());

    // The sixteenth is the tightest; a seventeenth would be tighter, but is not looked at.
    let second = Duration::from_secs(1);
    let mut rule: Vec<Quota> = (0..15).map(|more| quota(100 + more, second)).collect();
    rule.push(quota(2, second));
    rule.push(quota(1, second));
    let mut count = Count::default();
    let decision = count.take(algorithm, 7, &rule, 2);
    assert!(decision.is_allowed(), "{decision:?}");
    let denied = count.take(algorithm, 8, &rule, 1);
    assert!(denied.retry_after().is_some(), "{denied:?}");
    let never = count.take(algorithm, 8, &rule, 3);
    assert_eq!(never.verdict(), Verdict::Never);
}

/// All but the log take no more room for a lively key than for a quiet one.
fn traffic_takes_no_room(algorithm: Algorithm) {
    let rule = [quota(1_000_000, Duration::from_millis(50))];
    let room_after = |takes: u64| {
        let mut count = Count::default();
        for now in 0..takes {
            let _ = count.take(algorithm, now * 10, &rule, 1);
        }
        // As it is shown, for want of another look from outside.
        format!("{count:?}").len()
    };
    let (quiet, lively) = (room_after(6_000), room_after(60_000));
    assert!(lively <= quiet + quiet / 4, "{quiet}, then {lively}");
}
