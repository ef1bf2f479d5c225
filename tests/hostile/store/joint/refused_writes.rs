//! A server or a store that has no room for a second count: nothing is charged in the first.

use super::*;

/// The user of the connection may not touch the keys of one subject.
#[tokio::test]
async fn a_subject_that_the_access_list_forbids() {
    let server = Redis::start();
    let keys = "~*:user:* ~*:everyone* ~*first*";
    run(
        &server,
        &format!("ACL SETUSER gate on >secret resetkeys {keys} +@all"),
    );
    let limited = server.url.replace("//", "//gate:secret@");
    let store = connect(&limited, PATIENT).await;
    let all = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let rule = three(algorithm, algorithm.name(), [100, 100, 100]);
        let bad = tuple(&rule, "u", "x");
        let fine = take(&rule, &[("user", "u"), ("everyone", "")]);
        let is_bad = |at: usize| at % 5 == 2;
        let takes = (0..40).map(|at| if is_bad(at) { &bad } else { &fine }.clone());
        let answers = answers_of(&store, &takes.collect::<Vec<_>>()).await;
        for (at, answer) in answers.into_iter().enumerate() {
            let refused = is_bad(at).then_some(StoreErrorKind::Refused);
            assert_eq!(kind(&answer), refused, "{algorithm:?}, {at}");
            assert!(is_bad(at) || is_allowed(&answer), "{algorithm:?}, {at}");
        }
        if algorithm != Algorithm::Gcra {
            assert_eq!(left(&all, &bad).await, [68, 100, 68], "{algorithm:?}");
        }
    }
}

/// Room for all new counts, or none.
#[tokio::test]
async fn the_memory_store_has_room_for_all_new_counts_or_none() {
    for algorithm in Algorithm::ALL {
        for max_keys in 0..12 {
            // Under GCRA, a count is over when its units have drained: no time passes here.
            let store = MemoryStore::with_max_keys(max_keys).clock(ManualClock::default());
            let rule = three(algorithm, "p", [10, 10, 1_000]);
            for at in 0..12 {
                let take = tuple(&rule, &format!("u{at}"), &format!("a{at}"));
                let before = store.len();
                match store.take(&take).await {
                    Ok(decision) => {
                        assert!(decision.is_allowed());
                        assert!(store.len() <= max_keys.max(1), "{} keys", store.len());
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
                        assert_eq!(store.len(), before, "{algorithm:?}, {max_keys}");
                        let new = if before == 0 { 3 } else { 2 };
                        assert!(before + new > max_keys, "{before} of {max_keys}");
                    }
                }
            }
            let charged = match store.len() {
                0 => 0,
                keys => (keys - 1) / 2,
            };
            if algorithm != Algorithm::Gcra {
                let left = left(&store, &take(&rule, &[("everyone", "")])).await;
                assert_eq!(left[2], 1_000 - charged as u64, "{algorithm:?}, {max_keys}");
            }
        }
    }
}
