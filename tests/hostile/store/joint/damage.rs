//! Law 10 over several counts: what is damaged under one of them heals or is a typed error, and in
//! an error nothing is charged, nor created.

use super::*;

#[tokio::test]
async fn damaged_values_under_one_count() {
    let server = Redis::start();
    let clock = clock_at(NOW);
    let store = connect(&server.url, PATIENT).await.clock(clock);
    for algorithm in Algorithm::ALL {
        let user = subject("user", 10).limit(costing(10, 1));
        let others = [subject("address", 10), subject("everyone", 10)];
        let rule = named(algorithm, [user].into_iter().chain(others));
        let take = tuple(&rule, "u", "a");
        let long = "z".repeat(400);
        let values = match algorithm {
            Algorithm::SlidingLog => ["1 a", "-5 -1", "9e99 x:y", "0 :"],
            _ => ["x", "\u{1}", "0123456789", &long],
        };
        for place in 0..4 {
            let name = take.counts()[place].name("CurrentLimiter:");
            // Another type, under one of several new counts.
            run(&server, "FLUSHDB");
            run(&server, &format!("RPUSH {name} foreign"));
            let refused = store.take(&take).await.expect_err("another type");
            assert_eq!(refused.kind(), StoreErrorKind::WrongType, "{name}");
            assert_eq!(server.names(), [&*name]);
            for value in values {
                run(&server, "FLUSHDB");
                assert!(decide(&store, &take).await.is_allowed());
                let write = match algorithm {
                    Algorithm::SlidingLog => format!("ZADD {name} {value}"),
                    _ => format!("SET {name} {value}"),
                };
                run(&server, &write);
                let story = format!("{algorithm:?}, {write}");
                let before = server.names();
                let answer = store.take(&take).await;
                if answer.is_err() {
                    assert_eq!(server.names(), before, "{story}");
                }
                let charged = u64::from(answer.as_ref().is_ok_and(|it| it.is_allowed()));
                // The others have been charged, or not, all alike.
                run(&server, &format!("DEL {name}"));
                let left = left(&store, &take).await;
                for (at, left) in left.iter().enumerate() {
                    // Which quota is of which count: those of the user are the first two.
                    let expected = if at == place { 10 } else { 9 - charged };
                    assert_eq!(*left, expected, "{story}, {at}: {answer:?}");
                }
            }
        }
    }
}
