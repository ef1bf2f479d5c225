//! Law 13: a key that the server refuses costs nobody else a decision, alone or in their flight.

use crate::prelude::*;

/// A user who may not touch all keys.
pub(crate) fn limited(server: &Redis) -> String {
    let keys = "~*:free:* ~*:free:*}:back ~*first*";
    let user = format!("ACL SETUSER gate on >secret resetkeys {keys} +@all");
    run(server, &user);
    server.url.replace("//", "//gate:secret@")
}

/// One forbidden key among sixty others, in the same flights: the others are charged once.
#[tokio::test]
async fn one_forbidden_key() {
    let server = Redis::start();
    let store = connect(&limited(&server), PATIENT).await;
    let (free, closed) = (rule("free", 1_000, HOUR), rule("closed", 1_000, HOUR));
    for round in 0..20 {
        let takes = (0..180).map(|at| match at % 61 {
            13 => take(&closed, at % 3),
            _ => take(&free, at % 60),
        });
        let takes: Vec<_> = takes.collect();
        let answers = answers_of(&store, &takes).await;
        for (at, (take, answer)) in takes.iter().zip(&answers).enumerate() {
            match take.rule().path() {
                "closed" => assert_eq!(kind(answer), Some(StoreErrorKind::Refused)),
                _ => assert!(is_allowed(answer), "round {round}, {at}: {answer:?}"),
            }
        }
    }
    let free_takes = |key| {
        let of_round = (0..180).filter(move |at| at % 61 != 13 && at % 60 == key);
        20 * of_round.count() as u64
    };
    for key in 0..60 {
        assert_eq!(charged(&store, &take(&free, key)).await, free_takes(key));
    }
}
