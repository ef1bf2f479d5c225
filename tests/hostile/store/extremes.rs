//! Costs, quotas and windows at their ends.

use crate::prelude::*;

const START: u64 = 1_700_000_000_000_000;

/// Law 8 at the ends of costs, quotas and windows.
#[tokio::test]
async fn numbers_at_their_ends() {
    const MOST: u64 = Quota::MAX_UNITS;
    const MAXES: [u64; 4] = [0, 1, 2, MOST];
    const COSTS: [u64; 8] = [0, 1, 2, u64::MAX, MOST, MOST + 1, 1 << 53, 1];
    let (_server, store) = near().await;
    let clock = clock_at(START);
    let memory = MemoryStore::new().clock(clock.clone());
    let store = store.clone().clock(clock.clone());
    let (nano, micro) = (Duration::from_nanos(1), Duration::from_micros(1));
    let windows = [nano, micro, millis(7), HOUR, Quota::MAX_WINDOW];
    let of_window = |window| MAXES.map(|max| kit::quota(max, window));
    let quotas = windows.map(of_window).concat();
    let ways = quotas.iter();
    let ways = ways.flat_map(|quota| Algorithm::ALL.map(|it| (quota, it)));
    for (number, (quota, algorithm)) in ways.enumerate() {
        let (max, window) = (quota.max(), quota.window());
        let rule = by(algorithm, &format!("ends{number}"), max, window);
        let mut receipts = Vec::new();
        for step in [0, 1, 999, 1_000, 7_000_000] {
            clock.set(clock.now() + step);
            for cost in COSTS {
                let take = take(&rule, "").with_cost(cost);
                let answer = decide(&store, &take).await;
                let expected = decide(&memory, &take).await;
                let case = format!("{algorithm:?} {max} in {window:?}: {cost}");
                assert_eq!(answer.is_allowed(), expected.is_allowed(), "{case}");
                assert_eq!(answer.retry_after(), expected.retry_after(), "{case}");
                assert_eq!(answer.quotas(), expected.quotas(), "{case}");
                if cost > max {
                    assert!(!answer.is_allowed(), "{case}");
                    let burst_fits = algorithm == Algorithm::Gcra && cost <= quota.burst();
                    assert!(answer.retry_after().is_none() || burst_fits, "{case}");
                }
                if let (Some(ours), Some(theirs)) = (answer.receipt(), expected.receipt()) {
                    receipts.push((take, ours, theirs));
                }
            }
        }
        for (take, ours, theirs) in receipts {
            let ours = refund(&store, &take, &ours).await;
            let theirs = refund(&memory, &take, &theirs).await;
            assert_eq!(ours, theirs, "{algorithm:?} {max} in {window:?}");
        }
    }
}
