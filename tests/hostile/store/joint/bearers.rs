//! Keys that a client makes up: a request that its address denies leaves nothing behind.

use super::*;

const BEARERS: usize = 25_000;

/// Law 2, for 25,000 bearers under each algorithm: no key, no charge, in flights of hundreds.
#[tokio::test]
async fn bearers_that_an_address_denies_leave_no_key_on_redis() {
    let (server, store) = near().await;
    for algorithm in Algorithm::ALL {
        let rule = three(algorithm, algorithm.name(), [5, 2, 1_000]);
        for user in ["a", "b"] {
            let first = store.take(&tuple(&rule, user, "address")).await;
            assert!(first.expect("a decision").is_allowed());
        }
        let before = server.names();
        let names: Vec<_> = (0..BEARERS).map(|at| format!("bearer-{at}")).collect();
        for names in names.chunks(1_000) {
            let takes = names.iter().map(|name| tuple(&rule, name, "address"));
            let takes: Vec<_> = takes.collect();
            for answer in answers_of(&store, &takes).await {
                let decision = answer.expect("a decision");
                assert!(decision.retry_after().is_some(), "{decision:?}");
                let denies: Vec<_> = decision.denied_by(&["user", "address", "all"]).collect();
                assert_eq!(denies, [&"address"], "{algorithm:?}");
            }
        }
        assert_eq!(server.names(), before, "{algorithm:?}");
        // GCRA drains as time passes; the others have lost exactly two.
        let left = left(&store, &tuple(&rule, "bearer-7", "other")).await;
        assert_eq!(left[..2], [5, 2], "{algorithm:?}");
        assert!(left[2] >= 998, "{algorithm:?}: {left:?}");
        if algorithm != Algorithm::Gcra {
            assert_eq!(left[2], 998, "{algorithm:?}");
        }
    }
}

/// The same in memory, where keys have a hard cap: nobody else is refused for want of room.
#[tokio::test]
async fn bearers_that_an_address_denies_take_no_room_in_memory() {
    for algorithm in Algorithm::ALL {
        let store = MemoryStore::with_max_keys(6);
        let rule = three(algorithm, "p", [5, 1, 1_000]);
        let first = store.take(&tuple(&rule, "a", "address")).await;
        assert!(first.expect("a decision").is_allowed());
        let keys = store.len();
        for at in 0..BEARERS {
            let take = tuple(&rule, &format!("bearer-{at}"), "address");
            let decision = decide(&store, &take).await;
            assert!(decision.retry_after().is_some(), "{algorithm:?}");
        }
        // Under GCRA a count is over when its units have drained.
        assert!(store.len() <= keys, "{algorithm:?}");
        let other = store.take(&tuple(&rule, "b", "elsewhere")).await;
        assert!(other.expect("there is room").is_allowed(), "{algorithm:?}");
    }
}
