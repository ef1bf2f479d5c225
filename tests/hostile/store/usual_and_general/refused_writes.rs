//! Servers that write nothing: whoever would have been charged is told so, all others are answered,
//! and nothing is written, whether a key is usual or not and however often it is asked about.

use super::*;

const MINUTE: u64 = 60_000;

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

/// The memory is used up in the middle of many calls: what was allowed is charged, and what failed
/// is not.
#[tokio::test]
async fn memory_that_runs_out() {
    for algorithm in Algorithm::ALL {
        let (server, store) = near().await;
        let rules = [
            rule(algorithm, "one", &[(5, 10 * MINUTE)]),
            rule(algorithm, "two", &[(5, 10 * MINUTE), (50, 100 * MINUTE)]),
        ];
        let takes = (0..9_000).map(|at| take(&rules[at % 2], &format!("{}", at % 3_000)));
        let takes: Vec<_> = takes.collect();
        let (mut errors, mut allowed) = (0, 0);
        for (wave, takes) in takes.chunks(900).enumerate() {
            if wave == 2 {
                let info: redis::InfoDict = server.run("INFO memory");
                let used: u64 = info.get("used_memory").expect("a number");
                run(&server, &format!("CONFIG SET maxmemory {}", used + 200_000));
            }
            let answers = join_all(takes.iter().map(|take| store.take(take))).await;
            for answer in answers {
                match answer {
                    Ok(decision) => allowed += u64::from(decision.is_allowed()),
                    Err(error) => {
                        assert_eq!(error.kind(), StoreErrorKind::OutOfMemory, "{error}");
                        errors += 1;
                    }
                }
            }
        }
        run(&server, "CONFIG SET maxmemory 0");
        let mut counted = 0;
        for at in 0..3_000 {
            counted += charged(&store, &take(&rules[at % 2], &at.to_string())).await;
        }
        let is_right = errors > 0 && allowed > 0;
        assert!(is_right, "{allowed} allowed, {errors} errors");
        // A bucket may have drained a bit.
        let drained = u64::from(algorithm == Algorithm::Gcra) * allowed;
        let bounds = allowed.saturating_sub(drained)..=allowed;
        let is_right = bounds.contains(&counted);
        assert!(is_right, "{algorithm:?}: {counted} of {allowed}");
        let longest = i64::try_from(150 * MINUTE).expect("small");
        check_expiries(&server, longest, "out of memory");
    }
}
