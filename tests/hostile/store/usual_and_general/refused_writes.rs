//! Servers that write nothing: whoever would have been charged is told so, all others are answered,
//! and nothing is written, whether a key is usual or not and however often it is asked about.

use std::time::Instant;

use futures_util::future::join_all;
use kit::Redis;
use tidegate::decision::Verdict;
use tidegate::store::StoreErrorKind;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Decision, RedisStore, Store, StoreError, Take};

use super::{START, check_expiries, contents, names, owned, rule, take};
use kit::{PATIENT, charged, connect, millis, run};

const MINUTE: u64 = 60_000;

/// What has to become of a take.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    /// It would be charged, and so it fails.
    Fails,
    Denied,
    Never,
    /// It only looks.
    Looks,
    WrongType,
}

fn is_expected(
    answer: &Result<Decision, StoreError>,
    expected: Expected,
    kind: StoreErrorKind,
) -> bool {
    match (expected, answer) {
        (Expected::Fails, Err(error)) => error.kind() == kind,
        (Expected::WrongType, Err(error)) => error.kind() == StoreErrorKind::WrongType,
        (Expected::Denied, Ok(decision)) => decision.retry_after().is_some(),
        (Expected::Never, Ok(decision)) => decision.verdict() == Verdict::Never,
        (Expected::Looks, Ok(decision)) => decision.is_allowed() && decision.receipt().is_none(),
        _ => false,
    }
}

/// Takes of rules of all kinds, each with a key that has two of three units left, one that has
/// none, a new one and one of another type. They are mixed, so that calls hold all of them.
async fn questions(
    server: &Redis,
    store: &RedisStore,
    algorithm: Algorithm,
) -> Vec<(Take, Expected)> {
    let one = rule(algorithm, "one", &[(3, MINUTE)]);
    let two = rule(algorithm, "two", &[(3, MINUTE), (9, 10 * MINUTE)]);
    let leased = owned(algorithm, "leased", &[(3, MINUTE)]);
    let leased = leased.clone().with_lease(millis(50)).unwrap_or(leased);
    // Charged under two quotas, and asked under one.
    let before = rule(algorithm, "changed", &[(5, MINUTE), (9, 10 * MINUTE)]);
    let changed = rule(algorithm, "changed", &[(3, MINUTE)]);
    let leased = std::sync::Arc::new(leased);
    let mut questions = Vec::new();
    for (charged, asked) in [
        (&one, &one),
        (&two, &two),
        (&leased, &leased),
        (&before, &changed),
    ] {
        for (key, units) in [("half", 1), ("full", 3), ("refunded", 3)] {
            let take = take(charged, key).with_cost(units);
            let decision = store.take(&take).await.expect("a decision");
            let receipt = decision.receipt().expect("it is charged");
            if key == "refunded" {
                // GCRA by a manual clock: nothing has drained.
                let back = store.refund(&take.with_cost(2), &receipt).await;
                assert_eq!(back.expect("an answer"), 2);
            }
        }
        let foreign = names(&take(asked, "foreign"))[0].clone();
        run(server, &format!("HSET {foreign} field text"));
        for number in 0..20 {
            let new = format!("new{number}");
            for (key, cost, expected) in [
                ("half", 1, Expected::Fails),
                // Nothing was charged before it.
                ("half", 2, Expected::Fails),
                ("half", 3, Expected::Denied),
                ("half", 4, Expected::Never),
                ("half", 0, Expected::Looks),
                ("refunded", 2, Expected::Fails),
                ("refunded", 3, Expected::Denied),
                ("full", 1, Expected::Denied),
                ("full", 0, Expected::Looks),
                ("foreign", 1, Expected::WrongType),
                (&new, 3, Expected::Fails),
                (&new, 1, Expected::Fails),
                (&new, 0, Expected::Looks),
                (&new, u64::MAX, Expected::Never),
            ] {
                questions.push((take(asked, key).with_cost(cost), expected));
            }
        }
    }
    // One after the other of the rules.
    let rules = 4;
    let of_rule = questions.len() / rules;
    let mixed = (0..questions.len()).map(|at| questions[at % rules * of_rule + at / rules].clone());
    mixed.collect()
}

/// What such a key has left.
fn left(take: &Take) -> u64 {
    match take.key().as_str() {
        "full" => 0,
        "half" | "refunded" => 2,
        _ => 3,
    }
}

async fn refuses(
    kind: StoreErrorKind,
    server: &Redis,
    refuse: impl AsyncFn(&Redis),
    allow: impl Fn(&Redis),
) {
    let store = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let clock = ManualClock::default();
        clock.set(START);
        let store = store.clone().clock(clock.clone());
        let questions = questions(server, &store, algorithm).await;
        clock.set(START + 5);
        let before = contents(server);
        refuse(server).await;
        for alone in [false, true] {
            let asked = questions.iter().map(|(take, _)| store.take(take));
            let answers = match alone {
                false => join_all(asked).await,
                true => {
                    let mut answers = Vec::new();
                    for question in asked.take(200) {
                        answers.push(question.await);
                    }
                    answers
                }
            };
            for (at, (answer, (take, expected))) in answers.iter().zip(&questions).enumerate() {
                // Behind takes of the same key that fail, all may fail.
                let is_behind = !alone && !["full", "foreign"].contains(&take.key().as_str());
                let fails = is_behind && is_expected(answer, Expected::Fails, kind);
                assert!(
                    fails || is_expected(answer, *expected, kind),
                    "{algorithm:?}, {at}, {} {} of {}: {answer:?}, expected {expected:?}",
                    take.rule().path(),
                    take.key().as_str(),
                    take.cost()
                );
                if let Ok(decision) = answer {
                    assert_eq!(decision.remaining(), left(take), "{algorithm:?}, {take:?}");
                }
            }
            assert!(
                contents(server) == before,
                "{algorithm:?}: something was written"
            );
        }
        allow(server);
        for (take, expected) in &questions {
            if *expected == Expected::Fails {
                let decision = store.peek(take).await.expect("a decision");
                assert_eq!(decision.remaining(), left(take), "{algorithm:?}, {take:?}");
            }
        }
        run(server, "FLUSHALL");
    }
}

#[tokio::test]
async fn no_memory_is_left() {
    let server = Redis::start();
    refuses(
        StoreErrorKind::OutOfMemory,
        &server,
        async |server| run(server, "CONFIG SET maxmemory 1"),
        |server| run(server, "CONFIG SET maxmemory 0"),
    )
    .await;
}

#[tokio::test]
async fn too_few_replicas() {
    let server = Redis::start();
    refuses(
        StoreErrorKind::ReadOnly,
        &server,
        async |server| run(server, "CONFIG SET min-replicas-to-write 1"),
        |server| run(server, "CONFIG SET min-replicas-to-write 0"),
    )
    .await;
}

/// A dump that cannot be written, as on a full disk.
#[tokio::test]
async fn a_dump_that_fails() {
    let server = Redis::start_with(&["--enable-protected-configs", "yes"]);
    run(&server, "CONFIG SET dbfilename folder");
    std::fs::create_dir(server.folder().join("folder")).expect("a folder");
    std::fs::write(server.folder().join("folder/in-it"), "").expect("a file");
    let refuse = async |server: &Redis| {
        let mut save = redis::cmd("CONFIG");
        save.arg("SET").arg("save").arg("3600 1");
        save.exec(&mut server.connection()).expect("is set");
        run(server, "BGSAVE");
        let began = Instant::now();
        loop {
            let info = redis::cmd("INFO")
                .arg("persistence")
                .query(&mut server.connection());
            let info: redis::InfoDict = info.expect("an answer");
            if info.get::<String>("rdb_last_bgsave_status").as_deref() == Some("err") {
                break;
            }
            assert!(began.elapsed() < PATIENT, "the dump works");
            tokio::time::sleep(millis(1)).await;
        }
    };
    let allow = |server: &Redis| {
        let mut save = redis::cmd("CONFIG");
        save.arg("SET").arg("save").arg("");
        save.exec(&mut server.connection()).expect("is set");
    };
    refuses(StoreErrorKind::ReadOnly, &server, refuse, allow).await;
}

/// Nothing is charged by a server that became a replica, whatever its callers are told.
#[tokio::test]
async fn a_server_that_becomes_a_replica() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let clock = ManualClock::default();
        clock.set(START);
        let store = store.clone().clock(clock);
        let questions = questions(&server, &store, algorithm).await;
        let before = contents(&server);
        server.follow("redis://127.0.0.1:1");
        let hasty = store.clone().timeout(millis(400));
        let answers = join_all(questions.iter().map(|(take, _)| hasty.take(take))).await;
        for ((take, expected), answer) in questions.iter().zip(&answers) {
            let is_right = match answer {
                Ok(_) => is_expected(answer, *expected, StoreErrorKind::ReadOnly),
                Err(error) => {
                    let kinds = [
                        StoreErrorKind::ReadOnly,
                        StoreErrorKind::Unavailable,
                        StoreErrorKind::Timeout,
                        StoreErrorKind::WrongType,
                    ];
                    kinds.contains(&error.kind())
                }
            };
            assert!(
                is_right,
                "{algorithm:?}, {take:?}: {answer:?}, expected {expected:?}"
            );
        }
        assert!(
            contents(&server) == before,
            "{algorithm:?}: something was written"
        );
        run(&server, "REPLICAOF NO ONE");
        let began = Instant::now();
        while store.take(&questions[0].0).await.is_err() {
            assert!(began.elapsed() < PATIENT, "it takes writes again");
            tokio::time::sleep(millis(10)).await;
        }
        run(&server, "FLUSHALL");
    }
}

/// Under memory that is used up a script may remove what counts no longer, and then it may write.
/// Each answer is true of its own key.
#[tokio::test]
async fn no_memory_is_left_and_keys_count_no_longer() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        for (number, of) in [
            &[(3, 1_000)][..],
            &[(3, 1_000), (9, 2_000)],
            &[(3, 1_000), (1, 1)],
        ]
        .iter()
        .enumerate()
        {
            let clock = ManualClock::default();
            clock.set(START);
            let store = store.clone().clock(clock.clone());
            let rule = rule(algorithm, &format!("old{number}"), of);
            let keys: Vec<_> = (0..100).map(|key| key.to_string()).collect();
            for at in (0..keys.len()).step_by(3) {
                for _ in 0..=at % 3 {
                    let _ = store
                        .take(&take(&rule, &keys[at]))
                        .await
                        .expect("a decision");
                    clock.set(clock.now() + 1_001);
                }
            }
            clock.set(START + 3_000_000);
            // A key lives for a second at least after it has ceased to count.
            run(&server, "CONFIG SET maxmemory 1");
            let takes: Vec<_> = keys
                .iter()
                .map(|key| take(&rule, key).with_cost(1))
                .collect();
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
        let server = Redis::start();
        let store = connect(&server.url, PATIENT).await;
        let rules = [
            rule(algorithm, "one", &[(5, 10 * MINUTE)]),
            rule(algorithm, "two", &[(5, 10 * MINUTE), (50, 100 * MINUTE)]),
        ];
        let takes = (0..9_000).map(|at| take(&rules[at % 2], &format!("{}", at % 3_000)));
        let takes: Vec<_> = takes.collect();
        let (mut errors, mut allowed) = (0, 0);
        for (wave, takes) in takes.chunks(900).enumerate() {
            if wave == 2 {
                let info = redis::cmd("INFO")
                    .arg("memory")
                    .query(&mut server.connection());
                let info: redis::InfoDict = info.expect("an answer");
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
        assert!(
            errors > 0 && allowed > 0,
            "{allowed} allowed, {errors} errors"
        );
        // A bucket may have drained a bit.
        let drained = u64::from(algorithm == Algorithm::Gcra) * allowed;
        let bounds = allowed.saturating_sub(drained)..=allowed;
        assert!(
            bounds.contains(&counted),
            "{algorithm:?}: {counted} of {allowed}"
        );
        check_expiries(
            &server,
            i64::try_from(150 * MINUTE).expect("small"),
            "out of memory",
        );
    }
}
