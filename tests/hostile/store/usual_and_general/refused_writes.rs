//! Servers that write nothing: whoever would have been charged is told so, all others are answered,
//! and nothing is written, whether a key is usual or not and however often it is asked about.

use super::*;

/// Under memory that is used up a script may remove what counts no longer, and then it may write.
/// Each answer is true of its own key.
#[tokio::test]
async fn no_memory_is_left_and_keys_count_no_longer() {
    let (server, store) = near().await;
    for algorithm in Algorithm::ALL {
        let rules = [
            &[(3, 1_000)][..],
            &[(3, 1_000), (9, 2_000)],
            &[(3, 1_000), (1, 1)],
        ];
        for (number, of) in rules.iter().enumerate() {
            let clock = clock_at(START);
            let store = store.clone().clock(clock.clone());
            let rule = rule(algorithm, &format!("old{number}"), of);
            let keys: Vec<_> = (0..100).map(|key| key.to_string()).collect();
            for at in (0..keys.len()).step_by(3) {
                for _ in 0..=at % 3 {
                    decide(&store, &take(&rule, &keys[at])).await;
                    clock.set(clock.now() + 1_001);
                }
            }
            clock.set(START + 3_000_000);
            // A key lives for a second at least after it has ceased to count.
            run(&server, "CONFIG SET maxmemory 1");
            let takes: Vec<_> = keys.iter().map(|key| take(&rule, key)).collect();
            let answers = join_all(takes.iter().map(|take| store.take(take))).await;
            run(&server, "CONFIG SET maxmemory 0");
            for (take, answer) in takes.iter().zip(answers) {
                let left = store.peek(take).await.expect("a decision").remaining();
                let least = of.iter().map(|(max, _)| *max).min().expect("a quota");
                match answer {
                    Ok(decision) => {
                        assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
                        assert_eq!(left, least - 1, "{algorithm:?}, it is charged: {take:?}");
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), StoreErrorKind::OutOfMemory);
                        assert_eq!(left, least, "{algorithm:?}, it is not charged: {take:?}");
                    }
                }
            }
            check_expiries(&server, i64::MAX, &format!("{algorithm:?}"));
        }
    }
}
