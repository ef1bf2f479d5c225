//! Law 13: a key that the server refuses costs nobody else a decision.

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

/// The same with hasty callers: nobody is late because somebody else's key is forbidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_key_beside_a_bystander() {
    let server = Redis::start();
    let store = connect(&limited(&server), millis(300)).await;
    let (free, closed) = (rule("free", 100_000, HOUR), rule("closed", 1_000, HOUR));
    let each = (store.clone(), closed);
    let hammer = spawn_each(0..8, each, |at, (store, closed)| async move {
        let closed = take(&closed, at);
        loop {
            assert!(store.take(&closed).await.is_err());
            sleep(Duration::from_micros(200)).await;
        }
    });
    for _ in 0..300 {
        let answer = store.take(&take(&free, "x")).await;
        assert!(is_allowed(&answer), "{answer:?}");
    }
    for task in hammer {
        assert!(!task.is_finished(), "it is refused all the time");
        task.abort();
    }
    assert_eq!(charged(&store, &take(&free, "x")).await, 300);
}

/// The rights change under load: what is allowed again is decided again, and charged once.
#[tokio::test]
async fn rights_that_come_and_go() {
    let server = Redis::start();
    let store = connect(&limited(&server), PATIENT).await;
    let mixed = rule("free", 1_000_000, HOUR);
    let mut allowed = 0;
    for round in 0..30 {
        let pattern = ["~*:free:1*", "~*:free:*"][round % 2];
        let rights = format!("ACL SETUSER gate resetkeys {pattern} ~*first*");
        let takes: Vec<_> = (0..100).map(|at| take(&mixed, 1 + at % 2)).collect();
        let changes = async {
            sleep(Duration::from_micros(200)).await;
            run(&server, &rights);
        };
        let asked = join_all(takes.iter().map(|take| store.take(take)));
        let (answers, ()) = tokio::join!(asked, changes);
        for (take, answer) in takes.iter().zip(&answers) {
            let is_one = take.key().as_str() == "1";
            assert!(!is_one || is_allowed(answer), "round {round}: {answer:?}");
            allowed += u64::from(!is_one && is_allowed(answer));
        }
    }
    run(&server, "ACL SETUSER gate resetkeys ~*");
    assert_eq!(charged(&store, &take(&mixed, 1)).await, 30 * 50);
    assert_eq!(charged(&store, &take(&mixed, 2)).await, allowed);
}
