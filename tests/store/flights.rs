//! Takes of many callers in one script call: in order, apart from each other, and not too many.

use proptest::prelude::*;

use crate::prelude::*;
use crate::take;

/// Asks all of them before any answer can come: in a runtime of one thread they travel together.
pub(crate) async fn together(
    store: &RedisStore,
    takes: &[Take],
) -> Vec<Result<Decision, StoreError>> {
    join_all(takes.iter().map(|take| store.take(take))).await
}

fn users(number: usize) -> Vec<Take> {
    let rule = kit::rule("p", 1_000, HOUR);
    (0..number).map(|user| kit::take(&rule, user)).collect()
}

/// How many script calls so many takes need that are asked at once.
async fn calls_for(takes: &[Take]) -> u64 {
    let (server, store) = started().await;
    let before = server.script_calls();
    for answer in together(&store, takes).await {
        assert!(answer.expect("a decision").is_allowed());
    }
    server.script_calls() - before
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
        let rule = by(algorithm, "p", 3, HOUR);
        let takes: Vec<_> = (0..100).map(|key| kit::take(&rule, key)).collect();
        let mut receipts = Vec::new();
        for answer in together(&store, &takes).await {
            receipts.push(answer.expect("a decision").receipt().expect("a charge"));
        }
        let name = takes[7].name("CurrentLimiter:");
        run(&server, &format!("DEL {name}"));
        run(&server, &format!("RPUSH {name} mine"));
        let before = server.script_calls();
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
        assert_eq!(server.script_calls() - before, 5, "{algorithm:?}");

        // Three units for everybody: each refund is there for the take behind it.
        let one = takes[1].clone();
        let charged = ask_all(&store, &vec![one.clone(); 3]).await;
        let mut asked = vec![store.take(&one)];
        let mut given_back = Vec::new();
        for charged in charged.expect("decisions") {
            given_back.push(store.refund(&one, &charged.receipt().expect("a charge")));
            asked.push(store.take(&one));
        }
        let (decisions, given_back) = tokio::join!(join_all(asked), join_all(given_back));
        assert!(given_back.into_iter().all(|units| units.ok() == Some(1)));
        let allowed: Vec<_> = decisions.iter().map(is_allowed).collect();
        assert_eq!(allowed, [false, true, true, true], "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_queue_has_an_end() {
    const MAX_QUEUED: usize = 16_384;
    let (_server, store) = started().await;
    let takes = users(MAX_QUEUED + 100);
    let answers = together(&store, &takes).await;
    let (decided, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((decided.len(), refused.len()), (MAX_QUEUED, 100));
    for refused in refused {
        let error = refused.expect_err("no room");
        assert_eq!(error.kind(), StoreErrorKind::Overloaded, "{error}");
    }

    // Those that are abandoned make room, and are not charged.
    let abandoned = takes[..MAX_QUEUED].iter().map(|take| store.take(take));
    drop(abandoned.collect::<Vec<_>>());
    for answer in ask_all(&store, &takes[..100]).await.expect("decisions") {
        assert_eq!(answer.remaining(), 998);
    }
}

/// What waits for a flight to end leaves when it has, not when it is overdue, after 50 ms. A busy
/// machine is slower than that at times, but not in each of twenty rounds.
#[tokio::test]
async fn a_flight_that_ends_lets_the_next_one_leave() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&proxy.url).await;
    let store = store.expect("a running server").timeout(PATIENT);
    proxy.delay(Duration::ZERO, millis(5));
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        let began = Instant::now();
        let mut answers = Vec::new();
        for user in users(14) {
            let store = store.clone();
            answers.push(tokio::spawn(async move { store.take(&user).await }));
            // Eight are sent by their callers, two in flights of their own, and four have to wait.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        for answer in answers {
            let answer = answer.await.expect("no panic");
            assert!(answer.expect("a decision").is_allowed());
        }
        fastest = fastest.min(began.elapsed());
    }
    assert!(fastest < millis(50), "{fastest:?}");
}

/// Beside eight takes that their callers have sent, two flights are in progress at most; only a
/// question that has waited for a quarter of the timeout departs besides. A busy machine may hold up the test itself, so one of several rounds is
/// enough.
#[tokio::test]
async fn the_number_of_flights_is_small() {
    let server = Redis::start();
    let mut rounds = Vec::new();
    for _ in 0..5 {
        rounds.push(calls_in_flights(&server).await);
        if rounds.last() == Some(&(10, 11, true)) {
            return;
        }
    }
    panic!("{rounds:?}");
}

/// How many of fourteen takes depart at once, how many when one of the others is overdue, and whether
/// that was before any answer.
async fn calls_in_flights(server: &Redis) -> (u64, u64, bool) {
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&proxy.url).await;
    let store = store.expect("a running server").timeout(PATIENT);
    let before = server.script_calls();
    proxy.delay(Duration::ZERO, millis(900));
    let mut answers = Vec::new();
    for (at, user) in users(14).into_iter().enumerate() {
        let timeout = match at {
            13 => Duration::from_secs(2),
            _ => PATIENT,
        };
        let store = store.clone().timeout(timeout);
        answers.push(tokio::spawn(async move { store.take(&user).await }));
        // Each is in a flight of its own, if it may depart.
        sleep(millis(10)).await;
    }
    let at_once = server.script_calls() - before;
    let mut calls = at_once;
    let started = Instant::now();
    while calls < 11 && started.elapsed() < PATIENT {
        sleep(millis(5)).await;
        calls = server.script_calls() - before;
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
    let user = "ACL SETUSER gate on >s3cret +@all ~CurrentLimiter:mine*";
    run(&server, user);
    let url = server.url.replace("//", "//gate:s3cret@");
    let store = RedisStore::connect(&url).await.expect("it may");
    let store = store.timeout(PATIENT);
    let mine = |at| take(&format!("mine{at}"), &[Quota::per_hour(5)]);
    let mut takes: Vec<_> = (0..20).map(mine).collect();
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
    let (server, store) = started().await;
    for algorithm in Algorithm::ALL {
        let rule = |at| by(algorithm, &format!("p{at}"), 5, HOUR);
        let takes = (0..10).map(|at| Take::new(rule(at), Key::default()));
        let takes: Vec<_> = takes.collect();
        assert!(ask(&store, &takes[3]).await.is_allowed());
        let [name] = &server.run::<Vec<String>>("KEYS CurrentLimiter:p3*")[..] else {
            panic!("one key")
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
        run(&server, "FLUSHALL");
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
    let runtime = still_runtime();
    let rules = Algorithm::ALL.into_iter().enumerate();
    let rules: Vec<_> = rules
        .map(|(at, algorithm)| {
            let quotas = [Quota::per_hour(10 + at as u32), Quota::per_day(20)];
            let rule = Rule::new(&format!("p{at}"), quotas).expect("a valid rule");
            Arc::new(rule.with_algorithm(algorithm))
        })
        .collect();
    let store = runtime.block_on(store_on(&server));
    let mut runner = proptest::test_runner::TestRunner::new(kit::random::config(256));
    let outcome = runner.run(&history(), |history| {
        run(&server, "FLUSHDB");
        let clock = clock_at(1_000_000_000_000_000);
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
            let expected = runtime.block_on(ask(&memory, take));
            prop_assert_eq!(answer.is_allowed(), expected.is_allowed());
            prop_assert_eq!(answer.quotas(), expected.quotas());
            prop_assert_eq!(answer.retry_after(), expected.retry_after());
        }
        Ok(())
    });
    outcome.expect("the same answers");
}
