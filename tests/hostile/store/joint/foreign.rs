//! A key of one subject that holds another type: the requests that name it fail, and only they.

use super::*;

/// What writes a foreign value, for each type that the algorithm does not use.
fn foreign(algorithm: Algorithm, name: &str) -> Vec<String> {
    let mut commands = vec![
        format!("RPUSH {name} a b"),
        format!("HSET {name} field text"),
        format!("SADD {name} a b"),
        format!("XADD {name} * field text"),
    ];
    match algorithm {
        Algorithm::SlidingLog => commands.push(format!("SET {name} text")),
        _ => commands.push(format!("ZADD {name} 1 a")),
    }
    commands
}

/// Behind a round trip of some length, so that all travel in one flight.
#[tokio::test]
async fn a_foreign_value_fails_its_own_requests_only() {
    let server = Redis::start();
    let proxy = behind(&server, millis(20)).await;
    let url = proxy.url.clone();
    let clock = clock_at(NOW);
    let store = connect(&url, PATIENT).await.clock(clock);
    for algorithm in Algorithm::ALL {
        let rule = three(algorithm, algorithm.name(), [100, 100, 10_000]);
        // The place of the subject whose key is foreign.
        for place in 0..3 {
            let bad = match place {
                0 => tuple(&rule, "bad", "fine-address"),
                1 => tuple(&rule, "fine-user", "bad"),
                _ => tuple(&rule, "fine-user", "fine-address"),
            };
            let name = bad.counts()[place].name("CurrentLimiter:");
            for command in foreign(algorithm, &name) {
                run(&server, "FLUSHDB");
                run(&server, &command);
                let before = server.names();
                let fine = |at| tuple(&rule, &format!("u{at}"), "fine-address");
                let takes = (0..60).flat_map(|at| {
                    let bad = (at % 7 == 3).then(|| (bad.clone(), true));
                    std::iter::once((fine(at), place == 2)).chain(bad)
                });
                let takes: Vec<_> = takes.collect();
                let answers = join_all(takes.iter().map(|(take, _)| store.take(take))).await;
                for (at, (answer, (_, is_bad))) in answers.iter().zip(takes).enumerate() {
                    match (answer, is_bad) {
                        (Ok(decision), false) => assert!(decision.is_allowed()),
                        (Err(error), true) => {
                            assert_eq!(error.kind(), StoreErrorKind::WrongType, "{error}");
                        }
                        _ => panic!("{algorithm:?}, {command}, {at}: {answer:?}"),
                    }
                }
                if place == 2 {
                    assert_eq!(server.names(), before, "{algorithm:?}, {command}");
                    continue;
                }
                let left = left(&store, &fine(5)).await;
                assert_eq!(left, [99, 40, 9_940], "{algorithm:?}, {command}");
            }
        }
    }
}

/// The same asked alone, one after another, and a refund of what was charged before.
#[tokio::test]
async fn a_refund_beside_a_foreign_value() {
    let (server, store) = near().await;
    let clock = clock_at(NOW);
    let store = store.clock(clock);
    for algorithm in Algorithm::ALL {
        for place in 0..3 {
            run(&server, "FLUSHDB");
            let rule = three(algorithm, algorithm.name(), [10, 10, 10]);
            let take = tuple(&rule, "user", "address");
            let receipt = receipt_of(&store, &take).await;
            let name = take.counts()[place].name("CurrentLimiter:");
            run(&server, &format!("DEL {name}"));
            run(&server, &format!("HSET {name} field text"));
            let refused = store.take(&take).await;
            assert_eq!(kind(&refused), Some(StoreErrorKind::WrongType));
            // Whether the others get their unit back or not, all is answered, nothing is written to
            // the foreign key, and nobody gets more than was charged.
            let refund = store.refund(&take, &receipt).await;
            let again = store.refund(&take, &receipt).await;
            let is_right = !matches!(again, Ok(units) if units > 1);
            assert!(is_right, "{algorithm:?}: {refund:?}, {again:?}");
            run(&server, &format!("DEL {name}"));
            for (at, left) in left(&store, &take).await.into_iter().enumerate() {
                assert!((9..=10).contains(&left), "{algorithm:?}, {at}: {left}");
            }
        }
    }
}
