//! A server or a store that has no room for a second count: nothing is charged in the first.

use futures_util::future::join_all;
use kit::Redis;
use tidegate::store::StoreErrorKind;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, MemoryStore, Store, Take};

use super::{costing, joint, keys_of, left, subject, take, three, tuple};
use kit::{PATIENT, connect, run};

/// The first count exists, and another one is new; also a count of the same subject at another cost.
async fn refuses(kind: StoreErrorKind, refuse: &str, allow: &str) {
    let server = Redis::start();
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    let store = connect(&server.url, PATIENT).await.clock(clock);
    for algorithm in Algorithm::ALL {
        let rule = joint(
            algorithm,
            algorithm.name(),
            [
                subject("user", 10).limit(costing(10, 1)),
                subject("address", 10),
                subject("everyone", 10),
            ],
        );
        let known = tuple(&rule, "known", "known");
        assert!(store.take(&known).await.expect("a decision").is_allowed());
        let before = keys_of(&server);
        run(&server, refuse);
        let takes: Vec<Take> = (0..90)
            .map(|at| match at % 4 {
                0 => tuple(&rule, "known", &format!("new{at}")),
                1 => tuple(&rule, &format!("new{at}"), "known"),
                2 => known.clone(),
                _ => tuple(&rule, &format!("new{at}"), &format!("new{at}")),
            })
            .collect();
        for answer in join_all(takes.iter().map(|take| store.take(take))).await {
            let error = answer.expect_err("nothing can be written");
            assert_eq!(error.kind(), kind, "{algorithm:?}: {error}");
        }
        for take in &takes[..8] {
            let error = store.take(take).await.expect_err("nothing can be written");
            assert_eq!(error.kind(), kind, "{algorithm:?}: {error}");
            // Denials and looks write nothing, and are answered.
            let never = store.take(&take.clone().with_cost(11)).await;
            assert_eq!(
                never.expect("a decision").verdict(),
                tidegate::decision::Verdict::Never
            );
            let denied = store.take(&take.clone().with_cost(10)).await;
            assert!(denied.expect("a decision").retry_after().is_some());
        }
        run(&server, allow);
        assert_eq!(keys_of(&server), before, "{algorithm:?}");
        assert_eq!(left(&store, &known).await, [9; 4], "{algorithm:?}");
        let new = tuple(&rule, "new1", "new3");
        assert_eq!(left(&store, &new).await, [10, 10, 10, 9], "{algorithm:?}");
    }
}

#[tokio::test]
async fn no_memory_is_left() {
    refuses(
        StoreErrorKind::OutOfMemory,
        "CONFIG SET maxmemory 1",
        "CONFIG SET maxmemory 0",
    )
    .await;
}

#[tokio::test]
async fn too_few_replicas() {
    refuses(
        StoreErrorKind::ReadOnly,
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
    )
    .await;
}

/// The user of the connection may not touch the keys of one subject.
#[tokio::test]
async fn a_subject_that_the_access_list_forbids() {
    let server = Redis::start();
    run(
        &server,
        "ACL SETUSER gate on >secret resetkeys ~*:user:* ~*:everyone* ~*first* +@all",
    );
    let limited = server.url.replace("//", "//gate:secret@");
    let store = connect(&limited, PATIENT).await;
    let all = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let rule = three(algorithm, algorithm.name(), [100, 100, 100]);
        let bad = tuple(&rule, "u", "x");
        let fine = take(&rule, &[("user", "u"), ("everyone", "")]);
        let takes: Vec<_> = (0..40)
            .map(|at| {
                if at % 5 == 2 {
                    bad.clone()
                } else {
                    fine.clone()
                }
            })
            .collect();
        let answers = join_all(takes.iter().map(|take| store.take(take))).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match at % 5 == 2 {
                true => {
                    let error = answer.expect_err("it is forbidden");
                    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
                }
                false => assert!(answer.expect("a decision").is_allowed(), "{algorithm:?}"),
            }
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
