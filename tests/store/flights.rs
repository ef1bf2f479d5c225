//! Takes of many callers in one script call: in order, apart from each other, and not too many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::proxy::{Mode, Proxy};
use proptest::prelude::*;
use redis::cmd;
use tidegate::store::StoreErrorKind;
use tidegate::test_util::ManualClock;
use tidegate::{
    Algorithm, Decision, Key, MemoryStore, Quota, RedisStore, Rule, Store, StoreError, Take,
};

use crate::{ask, take};
use kit::store_on;

const PATIENCE: Duration = Duration::from_secs(20);

/// How many script calls the server has had so far.
pub(crate) fn script_calls(server: &Redis) -> u64 {
    let stats = cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection());
    let stats: redis::InfoDict = stats.expect("an answer");
    let calls = |name: &str| {
        let stats: Option<String> = stats.get(name);
        let calls = stats.as_deref().and_then(|stats| {
            let (calls, _) = stats.strip_prefix("calls=")?.split_once(',')?;
            calls.parse().ok()
        });
        calls.unwrap_or(0)
    };
    calls("cmdstat_evalsha") + calls("cmdstat_eval")
}

/// Asks all of them before any answer can come: in a runtime of one thread they travel together.
pub(crate) async fn together(
    store: &RedisStore,
    takes: &[Take],
) -> Vec<Result<Decision, StoreError>> {
    join_all(takes.iter().map(|take| store.take(take))).await
}

fn users(number: usize) -> Vec<Take> {
    let rule = Rule::new("p", [Quota::per_hour(1_000)]).expect("a valid rule");
    let rule = Arc::new(rule);
    let user = |user: usize| Take::new(Arc::clone(&rule), Key::from(user.to_string().as_str()));
    (0..number).map(user).collect()
}

/// How many script calls so many takes need that are asked at once.
async fn calls_for(takes: &[Take]) -> u64 {
    let server = Redis::start();
    let store = store_on(&server).await;
    let before = script_calls(&server);
    for answer in together(&store, takes).await {
        assert!(answer.expect("a decision").is_allowed());
    }
    script_calls(&server) - before
}

#[tokio::test]
async fn a_call_has_at_most_64_keys() {
    assert_eq!(calls_for(&users(64)).await, 1);
    assert_eq!(calls_for(&users(65)).await, 2);
    assert_eq!(calls_for(&users(129)).await, 3);
}

#[tokio::test]
async fn a_call_has_at_most_512_takes() {
    let same = |number| vec![take("same", &[Quota::per_hour(1_000)]); number];
    assert_eq!(calls_for(&same(512)).await, 1);
    assert_eq!(calls_for(&same(513)).await, 2);
}

/// Refunds share calls as takes do, an error about one key is the answer for this key alone, and
/// they keep their places among the takes of their count.
#[tokio::test]
async fn refunds_share_a_call() {
    for algorithm in Algorithm::ALL {
        let server = Redis::start();
        let store = store_on(&server).await.clock(ManualClock::default());
        let rule = Rule::new("p", [Quota::per_hour(3)]).expect("a valid rule");
        let rule = Arc::new(rule.with_algorithm(algorithm));
        let key = |key: usize| Take::new(Arc::clone(&rule), Key::from(key.to_string().as_str()));
        let takes: Vec<Take> = (0..100).map(key).collect();
        let mut receipts = Vec::new();
        for answer in together(&store, &takes).await {
            receipts.push(answer.expect("a decision").receipt().expect("a charge"));
        }
        cmd("DEL")
            .arg(takes[7].name("CurrentLimiter:"))
            .exec(&mut server.connection())
            .expect("is deleted");
        let foreign = cmd("RPUSH")
            .arg(takes[7].name("CurrentLimiter:"))
            .arg("mine")
            .exec(&mut server.connection());
        foreign.expect("is stored");
        let before = script_calls(&server);
        let refunds = takes
            .iter()
            .zip(&receipts)
            .map(|(take, receipt)| store.refund(take, receipt));
        for (at, answer) in join_all(refunds).await.into_iter().enumerate() {
            match answer {
                Ok(units) => assert!(at != 7 && units == 1, "{algorithm:?}: {at}: {units}"),
                Err(error) => assert_eq!((at, error.kind()), (7, StoreErrorKind::WrongType)),
            }
        }
        assert_eq!(script_calls(&server) - before, 5, "{algorithm:?}");

        // Three units for everybody: each refund is there for the take behind it.
        let one = key(1);
        let charged = together(&store, &vec![one.clone(); 3]).await.into_iter();
        let receipts: Vec<_> = charged
            .map(|it| it.expect("a decision").receipt())
            .collect();
        let mut asked = vec![store.take(&one)];
        let mut given_back = Vec::new();
        for receipt in receipts {
            given_back.push(store.refund(&one, &receipt.expect("a charge")));
            asked.push(store.take(&one));
        }
        let (decisions, given_back) = tokio::join!(join_all(asked), join_all(given_back));
        assert!(given_back.into_iter().all(|units| units.ok() == Some(1)));
        let allowed = decisions
            .into_iter()
            .map(|it| it.expect("a decision").is_allowed());
        assert_eq!(
            allowed.collect::<Vec<_>>(),
            [false, true, true, true],
            "{algorithm:?}"
        );
    }
}

#[tokio::test]
async fn a_queue_has_an_end() {
    const MAX_QUEUED: usize = 16_384;
    let server = Redis::start();
    let store = store_on(&server).await;
    let takes = users(MAX_QUEUED + 100);
    let answers = together(&store, &takes).await;
    let (decided, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((decided.len(), refused.len()), (MAX_QUEUED, 100));
    for refused in refused {
        let error = refused.expect_err("no room");
        assert_eq!(error.kind(), StoreErrorKind::Overloaded, "{error}");
    }

    // Those that are abandoned make room, and are not charged.
    let abandoned: Vec<_> = takes[..MAX_QUEUED]
        .iter()
        .map(|take| store.take(take))
        .collect();
    drop(abandoned);
    let takes = &takes[..100];
    for (answer, take) in together(&store, takes).await.iter().zip(takes) {
        let answer = answer.as_ref().expect("a decision");
        assert_eq!(answer.remaining(), 998, "{take:?}");
    }
}

/// Two flights are in progress at most; only a question that has waited for a quarter of the
/// timeout departs besides. A busy machine may hold up the test itself, so one of several rounds is
/// enough.
#[tokio::test]
async fn the_number_of_flights_is_small() {
    let server = Redis::start();
    let mut rounds = Vec::new();
    for _ in 0..5 {
        rounds.push(calls_in_flights(&server).await);
        if rounds.last() == Some(&(2, 3, true)) {
            return;
        }
    }
    panic!("{rounds:?}");
}

/// How many of six takes depart at once, how many when one of the others is overdue, and whether
/// that was before any answer.
async fn calls_in_flights(server: &Redis) -> (u64, u64, bool) {
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&proxy.url).await;
    let store = store.expect("a running server").timeout(PATIENCE);
    let before = script_calls(server);
    proxy.all(Mode::Delay {
        calls: Duration::ZERO,
        replies: Duration::from_millis(900),
    });
    let mut answers = Vec::new();
    for (at, user) in users(6).into_iter().enumerate() {
        let timeout = match at {
            5 => Duration::from_secs(2),
            _ => PATIENCE,
        };
        let store = store.clone().timeout(timeout);
        answers.push(tokio::spawn(async move { store.take(&user).await }));
        // Each is in a flight of its own, if it may depart.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let at_once = script_calls(server) - before;
    let mut calls = at_once;
    let started = Instant::now();
    while calls < 3 && started.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
        calls = script_calls(server) - before;
    }
    let is_before = answers.iter().all(|answer| !answer.is_finished());
    for answer in answers {
        let answer = answer.await.expect("no panic");
        assert!(!is_before || answer.expect("a decision").is_allowed());
    }
    (at_once, calls, is_before)
}

/// A key that this user may not touch refuses the whole call; the others are asked again alone.
#[tokio::test]
async fn a_forbidden_key_is_its_own_askers_error() {
    let server = Redis::start();
    let mut user = cmd("ACL");
    user.arg(&["SETUSER", "gate", "on", ">s3cret", "+@all"]);
    user.arg("~CurrentLimiter:mine*");
    user.exec(&mut server.connection()).expect("is set");
    let url = server.url.replace("//", "//gate:s3cret@");
    let store = RedisStore::connect(&url).await.expect("it may");
    let store = store.timeout(PATIENCE);
    let mut takes: Vec<_> = (0..20)
        .map(|at| take(&format!("mine{at}"), &[Quota::per_hour(5)]))
        .collect();
    takes.insert(7, take("foreign", &[Quota::per_hour(5)]));
    for (answer, take) in together(&store, &takes).await.into_iter().zip(&takes) {
        match take.rule().path() {
            "foreign" => {
                let error = answer.expect_err("it may not");
                assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
            }
            _ => assert_eq!(answer.expect("a decision").remaining(), 4),
        }
    }
}

/// A key that holds something else is an error for those who ask about it.
#[tokio::test]
async fn a_foreign_value_is_its_own_askers_error() {
    let server = Redis::start();
    let store = store_on(&server).await;
    for algorithm in Algorithm::ALL {
        let rule = |path: &str| {
            let rule = Rule::new(path, [Quota::per_hour(5)]).expect("a valid rule");
            Take::new(Arc::new(rule.with_algorithm(algorithm)), Key::default())
        };
        let takes: Vec<_> = (0..10).map(|at| rule(&format!("p{at}"))).collect();
        assert!(ask(&store, &takes[3]).await.is_allowed());
        let names: Vec<String> = cmd("KEYS")
            .arg("CurrentLimiter:p3*")
            .query(&mut server.connection())
            .expect("names");
        let [name] = &names[..] else {
            panic!("{names:?}")
        };
        let mut swap = redis::pipe();
        swap.atomic().del(name).lpush(name, "foreign");
        swap.exec(&mut server.connection()).expect("is put there");
        for (at, answer) in together(&store, &takes).await.into_iter().enumerate() {
            match at {
                3 => {
                    let error = answer.expect_err("no limit of ours");
                    assert_eq!(error.kind(), StoreErrorKind::WrongType, "{error}");
                }
                _ => assert_eq!(answer.expect("a decision").remaining(), 4, "{algorithm:?}"),
            }
        }
        cmd("FLUSHALL")
            .exec(&mut server.connection())
            .expect("is empty");
    }
}

/// Takes by rule, user and cost, as indices into small lists.
fn history() -> impl Strategy<Value = Vec<(usize, usize, u64)>> {
    prop::collection::vec((0..4_usize, 0..3_usize, 0..4_u64), 1..300)
}

/// The answers are those of asking one after another in order of arrival, for every key.
#[test]
fn flights_keep_the_order() {
    let server = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let rules: Vec<_> = Algorithm::ALL
        .into_iter()
        .enumerate()
        .map(|(at, algorithm)| {
            let quotas = [Quota::per_hour(10 + at as u32), Quota::per_day(20)];
            let rule = Rule::new(&format!("p{at}"), quotas).expect("a valid rule");
            Arc::new(rule.with_algorithm(algorithm))
        })
        .collect();
    let store = runtime.block_on(store_on(&server));
    let mut runner = proptest::test_runner::TestRunner::new(kit::random::config(256));
    let outcome = runner.run(&history(), |history| {
        cmd("FLUSHDB")
            .exec(&mut server.connection())
            .expect("is empty");
        let clock = ManualClock::default();
        clock.set(1_000_000_000_000_000);
        let memory = MemoryStore::new().clock(clock.clone());
        let store = store.clone().clock(clock);
        let takes = history.into_iter().map(|(rule, user, cost)| {
            let key = Key::from(user.to_string().as_str());
            Take::new(Arc::clone(&rules[rule]), key).with_cost(cost)
        });
        let takes: Vec<_> = takes.collect();
        let answers = runtime.block_on(together(&store, &takes));
        for (answer, take) in answers.into_iter().zip(&takes) {
            let answer = answer.expect("a decision");
            let expected = runtime.block_on(ask_memory(&memory, take));
            prop_assert_eq!(answer.is_allowed(), expected.is_allowed());
            prop_assert_eq!(answer.quotas(), expected.quotas());
            prop_assert_eq!(answer.retry_after(), expected.retry_after());
        }
        Ok(())
    });
    outcome.expect("the same answers");
}

async fn ask_memory(memory: &MemoryStore, take: &Take) -> Decision {
    memory.take(take).await.expect("memory decides")
}
