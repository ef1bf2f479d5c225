//! `Store::reset`: it forgets one key, all of it, and nothing else, whatever goes on meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use kit::Redis;
use kit::cluster::{Cluster, Plan};
use tidegate::decision::Source;
use tidegate::rule::Share;
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::test_util::ManualClock;
use tidegate::{
    Algorithm, Key, MemoryStore, Quota, RateLimitLayer, RedisStore, Resilient, Rule, Store, Take,
};
use tokio::time::sleep;
use tower::ServiceExt;

use kit::clocked::{Stores, assert_units, by, charge, remaining, take_of};
use kit::stub::Stub;
use kit::{HOUR, PATIENT, behind, connect, millis, run};

const MICROSECOND: Duration = Duration::from_micros(1);

fn size(server: &Redis) -> u64 {
    let answer = redis::cmd("DBSIZE").query(&mut server.connection());
    answer.expect("a running server")
}

/// Empty counts that resets leave expire soon.
async fn is_soon_empty(server: &Redis) -> bool {
    let began = Instant::now();
    while size(server) > 0 && began.elapsed() < Duration::from_secs(5) {
        sleep(millis(20)).await;
    }
    size(server) == 0
}

/// One key is forgotten with all that was given back of it; other keys, other paths and other
/// algorithms keep what they have, and earlier receipts are worth nothing.
#[tokio::test]
async fn one_key_and_nothing_else() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        let store = &clocked.store;
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let key = |name: &str| Key::from(algorithm.name()).with(name);
            let rule = by(algorithm, "reset", 5, HOUR);
            let mine = take_of(&rule, &key("mine"), 2);
            let mut others = vec![
                take_of(&rule, &key("other"), 2),
                take_of(&rule, &key(""), 2),
            ];
            for other in Algorithm::ALL {
                let path = if other == algorithm {
                    "reset2"
                } else {
                    "reset"
                };
                others.push(take_of(&by(other, path, 5, HOUR), &key("mine"), 2));
            }
            for other in &others {
                clocked.charge(other).await;
            }
            let early = [clocked.charge(&mine).await, clocked.charge(&mine).await];
            assert_eq!(early[0].refund().await.expect("an answer"), 2, "{case}");
            store
                .reset(&Take::new(Arc::clone(&rule), mine.key().clone()))
                .await
                .expect("an answer");
            assert_eq!(clocked.remaining(&mine).await, 5, "{case}");
            for charge in &early {
                assert_eq!(charge.refund().await.expect("an answer"), 0, "{case}");
            }
            clocked.advance(MICROSECOND);
            let late = clocked.charge(&take_of(&rule, mine.key(), 5)).await;
            for charge in &early {
                assert_eq!(charge.refund().await.expect("an answer"), 0, "{case}");
            }
            assert_eq!(clocked.remaining(&mine).await, 0, "{case}");
            assert_eq!(late.refund().await.expect("an answer"), 5, "{case}");
            for other in &others {
                assert_eq!(clocked.remaining(other).await, 3, "{case}: {other:?}");
            }
            store
                .reset(&Take::new(Arc::clone(&rule), mine.key().clone()))
                .await
                .expect("an answer");
            store
                .reset(&Take::new(Arc::clone(&rule), mine.key().clone()))
                .await
                .expect("twice");
            assert_eq!(clocked.remaining(&mine).await, 5, "{case}");
        }
    }
}

/// A receipt from before a reset gives back nothing of what is charged in the same instant: by any
/// algorithm, for any cost, after a second reset, and under another rule, whose charges count for
/// longer than the earlier ones did.
#[tokio::test]
async fn the_same_instant() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        let store = &clocked.store;
        for (algorithm, cost) in Algorithm::ALL
            .into_iter()
            .flat_map(|it| [1, 2, 4].map(|cost| (it, cost)))
        {
            for (resets, given_back_before, window) in [
                (1, false, HOUR),
                (2, false, HOUR),
                (1, true, HOUR),
                (1, false, HOUR * 24),
            ] {
                let case = format!("{} {algorithm:?} {cost} {resets}", clocked.name);
                let key = Key::from("instant")
                    .with(case.as_str())
                    .with(format!("{window:?}"));
                let rule = by(algorithm, "instant", 20, HOUR);
                let other = by(algorithm, "instant", 20, window);
                let take = take_of(&rule, &key, cost);
                let early = [clocked.charge(&take).await, clocked.charge(&take).await];
                if given_back_before {
                    assert_eq!(early[1].refund().await.expect("an answer"), cost, "{case}");
                }
                for _ in 0..resets {
                    store
                        .reset(&Take::new(Arc::clone(&rule), key.clone()))
                        .await
                        .expect("an answer");
                }
                let later = take_of(&other, &key, cost);
                for wait in [Duration::ZERO, MICROSECOND, millis(1), HOUR / 2] {
                    clocked.advance(wait);
                    let before = clocked.remaining(&later).await;
                    let late = clocked.charge(&later).await;
                    for charge in &early {
                        let back = charge.refund().await.expect("an answer");
                        assert_eq!(back, 0, "{case}, {wait:?} later");
                    }
                    assert_eq!(clocked.remaining(&later).await, before - cost, "{case}");
                    if wait > Duration::ZERO {
                        assert_eq!(late.refund().await.expect("an answer"), cost, "{case}");
                    }
                }
            }
        }
    }
}

/// The same on real clocks, at least 500 times each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_instant_on_real_clocks() {
    let server = Redis::start();
    let stores: [(&str, Arc<dyn Store>); 2] = [
        ("memory", Arc::new(MemoryStore::new())),
        ("redis", Arc::new(connect(&server.url, PATIENT).await)),
    ];
    for (name, store) in &stores {
        for algorithm in Algorithm::ALL {
            let rule = by(algorithm, "rounds", 5, HOUR);
            let take = take_of(&rule, &Key::default(), 1);
            let (mut given_back, mut in_the_same_millisecond) = (0, 0);
            for round in 0..20_000 {
                // On a busy machine, few rounds take less than a millisecond.
                if round >= 500 && in_the_same_millisecond > 0 {
                    break;
                }
                let early = charge(store, &take).await;
                store
                    .reset(&Take::new(Arc::clone(&rule), take.key().clone()))
                    .await
                    .expect("an answer");
                let late = charge(store, &take).await;
                given_back += early.refund().await.expect("an answer");
                let [early, late] = [early, late].map(|it| it.receipt().stamp() / 1_000);
                in_the_same_millisecond += u64::from(early == late);
            }
            println!("{name} {algorithm:?}: {in_the_same_millisecond} within a millisecond");
            assert_eq!(given_back, 0, "{name} {algorithm:?}");
            assert!(in_the_same_millisecond > 0, "{name} {algorithm:?}");
        }
    }
}

/// A receipt from before gives nothing back long after the reset either: what was charged in the
/// same instant outlives all that the reset has left.
#[tokio::test]
async fn long_after_the_reset() {
    let stores = Stores::start().await;
    let mut early = Vec::new();
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let brief = take_of(&by(algorithm, "long", 5, millis(1)), &Key::default(), 1);
            let lasting = take_of(&by(algorithm, "long", 5, HOUR), &Key::default(), 1);
            early.push((clocked, clocked.charge(&brief).await, lasting.clone()));
            let reset = clocked.store.reset(&brief).await;
            reset.expect("an answer");
            clocked.charge(&lasting).await;
        }
    }
    sleep(millis(2_500)).await;
    for (clocked, charge, lasting) in &early {
        clocked.advance(millis(100));
        assert_eq!(charge.refund().await.expect("an answer"), 0, "{charge:?}");
        assert_eq!(clocked.remaining(lasting).await, 4, "{charge:?}");
    }
}

/// Names that may break a key, a hash tag or a protocol.
fn odd_keys() -> Vec<Key> {
    let mut keys: Vec<_> = [
        "", ":", "a:b", "{a}", "}{", "{}", "a b", "\r\n", "\0", "%3A", "*", "?", "[a-z]", "ä€",
        ":back", "}:back", "~gcra",
    ]
    .map(Key::from)
    .into();
    keys.push(Key::default());
    keys.push(Key::default().with_nothing());
    keys.push(Key::default().with_secret("secret"));
    keys.push(Key::default().with("a").with("b"));
    keys.push(Key::default().with([0xFF, 0xFE, 0]));
    keys.push(Key::default().with(vec![b'x'; 1_000_000]));
    keys.push(Key::default().with(vec![b'{'; 1_000]));
    keys
}

/// Every odd key, and every odd path and prefix, is forgotten alone, and leaves nothing in Redis.
#[tokio::test]
async fn odd_names() {
    let stores = Stores::start().await;
    let paths = ["p", "{p}", "p:q", "p q", "\r\n", "p~gcra", "ü", "p}:back"];
    let prefixes = [
        None,
        Some("app:"),
        Some("{eu}:"),
        Some("{"),
        Some("*"),
        Some("a b\n:"),
    ];
    for clocked in &stores.all {
        let mut takes = Vec::new();
        for (at, prefix) in prefixes.into_iter().enumerate() {
            for (path_at, path) in paths.into_iter().enumerate() {
                let algorithm = Algorithm::ALL[(at + path_at) % Algorithm::ALL.len()];
                let mut rule = Rule::clone(&by(algorithm, path, 5, HOUR));
                if let Some(prefix) = prefix {
                    rule = rule.with_prefix(prefix);
                }
                let rule = Arc::new(rule);
                takes.extend(odd_keys().iter().map(|key| take_of(&rule, key, 2)));
            }
        }
        let mut early = Vec::new();
        for take in &takes {
            early.push(clocked.charge(take).await);
            let again = clocked.charge(take).await;
            assert_eq!(again.refund().await.expect("an answer"), 2, "{take:?}");
        }
        for (at, take) in takes.iter().enumerate() {
            let reset = clocked.store.reset(take).await;
            reset.unwrap_or_else(|error| panic!("{take:?}: {error}"));
            assert_eq!(clocked.remaining(take).await, 5, "{take:?}");
            if let Some(next) = takes.get(at + 1) {
                assert_eq!(clocked.remaining(next).await, 3, "{next:?} behind {take:?}");
            }
        }
        for charge in &early {
            assert_eq!(charge.refund().await.expect("an answer"), 0, "{charge:?}");
        }
    }
    assert!(is_soon_empty(&stores.server).await, "nothing is left");
}

/// A prefix with a brace that closes nothing: a reset forgets the key or says that it cannot, and
/// takes go on.
#[tokio::test]
async fn a_prefix_with_a_stray_brace() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let rule = Arc::new(Rule::clone(&by(algorithm, "stray", 5, HOUR)).with_prefix("a}b:"));
            let take = take_of(&rule, &Key::from("key"), 2);
            clocked.charge(&take).await;
            let expected = match clocked
                .store
                .reset(&Take::new(Arc::clone(&rule), take.key().clone()))
                .await
            {
                Ok(_) => 5,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    3
                }
            };
            assert_eq!(
                clocked.remaining(&take).await,
                expected,
                "{} {algorithm:?}",
                clocked.name
            );
            clocked.charge(&take).await;
        }
    }
}

/// Resets while many tasks take: every take is decided, each reset admits at most one more quota,
/// and the last one forgets all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_while_takes_are_in_flight() {
    const MAX: u64 = 25;
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", clocked.name);
            let rule = by(algorithm, "in flight", MAX, HOUR);
            let ends = Arc::new(AtomicBool::new(false));
            let (admitted, returned) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
            let tasks = (0..6).map(|at| {
                let (store, rule, ends) = (
                    Arc::clone(&clocked.store),
                    Arc::clone(&rule),
                    Arc::clone(&ends),
                );
                let (admitted, returned) = (Arc::clone(&admitted), Arc::clone(&returned));
                tokio::spawn(async move {
                    let take = take_of(&rule, &Key::default(), 1 + at % 2);
                    while !ends.load(Ordering::Relaxed) {
                        let decision = store.take(&take).await.expect("a decision");
                        if let Some(receipt) = decision.receipt() {
                            admitted.fetch_add(receipt.units(), Ordering::Relaxed);
                            if at == 5 {
                                let back = store.refund(&take, &receipt).await;
                                let back = back.expect("an answer");
                                assert!(back <= receipt.units());
                                returned.fetch_add(back, Ordering::Relaxed);
                            }
                        }
                        tokio::task::yield_now().await;
                    }
                })
            });
            let tasks: Vec<_> = tasks.collect();
            const RESETS: u64 = 50;
            for _ in 0..RESETS {
                let reset = clocked
                    .store
                    .reset(&Take::new(Arc::clone(&rule), Key::default()))
                    .await;
                reset.expect("an answer");
                clocked.advance(Duration::from_micros(1));
                sleep(millis(1)).await;
            }
            ends.store(true, Ordering::Relaxed);
            for task in join_all(tasks).await {
                task.expect("no panic");
            }
            let kept = admitted.load(Ordering::Relaxed) - returned.load(Ordering::Relaxed);
            assert!(kept <= MAX * (RESETS + 1), "{case}: {kept}");
            assert!(
                kept >= MAX * 2,
                "{case}: {kept}, resets free what was taken"
            );
            clocked
                .store
                .reset(&Take::new(Arc::clone(&rule), Key::default()))
                .await
                .expect("an answer");
            let look = take_of(&rule, &Key::default(), 1);
            assert_eq!(clocked.remaining(&look).await, MAX, "{case}");
        }
    }
}

/// Resets in the order of arrival, from the first reset on: a take that was asked before a reset of
/// its key is denied, one that was asked after it is allowed, however many travel together.
#[tokio::test]
async fn resets_in_the_order_of_arrival() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    let store = connect(&proxy.url, PATIENT).await.clock(clock.clone());
    let store: Arc<dyn Store> = Arc::new(store);
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "in order", 1, HOUR);
        for round in 0..6 {
            // Resets need no script that was loaded before. Takes without one are sent again.
            run(&server, "SCRIPT FLUSH");
            remaining(&*store, &take_of(&rule, &Key::default(), 1)).await;
            let takes: Vec<_> = (0..50)
                .map(|key| take_of(&rule, &Key::from(format!("{round}-{key}").as_str()), 1))
                .collect();
            // Twice before the reset, the reset, and twice behind it.
            let mut answers: [Vec<_>; 5] = Default::default();
            let mut resets = Vec::new();
            let mut step = |key: usize, step: usize| match step {
                2 => resets
                    .push(store.reset(&Take::new(Arc::clone(&rule), takes[key].key().clone()))),
                _ => answers[step].push(store.take(&takes[key])),
            };
            match round % 2 {
                0 => (0..250).for_each(|at| step(at / 5, at % 5)),
                _ => (0..250).for_each(|at| step(at % 50, at / 50)),
            }
            for reset in join_all(resets).await {
                reset.expect("an answer");
            }
            let expected = [true, false, true, true, false];
            for (step, answers) in answers.into_iter().enumerate() {
                for (key, answer) in join_all(answers).await.into_iter().enumerate() {
                    let (answer, is_allowed) = (answer.expect("a decision"), expected[step]);
                    let case = format!("{algorithm:?}, {round}, {key}, step {step}: {answer:?}");
                    assert_eq!(answer.is_allowed(), is_allowed, "{case}");
                }
            }
        }
    }
}

/// Law 10: values of a wrong type under the key, or under that of its refunds, are forgotten like
/// any other, or are an error of their own kind; neighbours are not harmed.
#[tokio::test]
async fn values_of_a_wrong_type() {
    let stores = Stores::start().await;
    let (clocked, server) = (&stores.all[1], &stores.server);
    let values = [
        "SET {} x",
        "RPUSH {} x",
        "HSET {} x y",
        "SADD {} x",
        "ZADD {} 1 x",
        "SETBIT {} 9 1",
    ];
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "typed", 5, HOUR);
        let take = take_of(&rule, &Key::from("key"), 2);
        let neighbour = take_of(&rule, &Key::from("neighbour"), 2);
        let name =
            Take::new(Arc::clone(&rule), take.key().clone()).name(RedisStore::DEFAULT_PREFIX);
        for name in [name.clone(), format!("{{{name}}}:back")] {
            for value in values {
                run(server, "FLUSHALL");
                let case = format!("{algorithm:?}: {}", value.replace("{}", &name));
                let early = clocked.charge(&take).await;
                run(server, &format!("DEL {name}"));
                run(server, &value.replace("{}", &name));
                let (reset, decision) = tokio::join!(
                    clocked
                        .store
                        .reset(&Take::new(Arc::clone(&rule), take.key().clone())),
                    clocked.store.take(&neighbour)
                );
                assert!(decision.expect("a decision").is_allowed(), "{case}");
                match reset {
                    Ok(_) => {
                        assert_eq!(clocked.remaining(&take).await, 5, "{case}");
                        assert_eq!(early.refund().await.expect("an answer"), 0, "{case}");
                        clocked.advance(MICROSECOND);
                        let late = clocked.charge(&take).await;
                        assert_eq!(late.refund().await.expect("an answer"), 2, "{case}");
                    }
                    Err(error) => assert_eq!(error.kind(), StoreErrorKind::WrongType, "{case}"),
                }
            }
        }
    }
}

/// A user that may not write under this name: the reset is refused, nothing is forgotten, and
/// neighbours of the same flight are decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission() {
    let server = Redis::start();
    run(
        &server,
        "ACL SETUSER gate on >secret resetkeys ~*free* ~*first* %R~*closed* +@all",
    );
    let url = server.url.replace("//", "//gate:secret@");
    let admin = connect(&server.url, PATIENT).await;
    let store = connect(&url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let closed = take_of(&by(algorithm, "closed", 5, HOUR), &Key::default(), 2);
        let free = take_of(&by(algorithm, "free", 1_000_000, HOUR), &Key::default(), 1);
        admin.take(&closed).await.expect("a decision");
        let resets = (0..50).map(|_| store.reset(&closed));
        let takes = (0..50).map(|_| store.take(&free));
        let own = (0..20).map(|_| store.reset(&free));
        let (resets, takes, own) = tokio::join!(join_all(resets), join_all(takes), join_all(own));
        for reset in resets {
            let error = reset.expect_err("it may not");
            assert_eq!(
                error.kind(),
                StoreErrorKind::Refused,
                "{algorithm:?}: {error}"
            );
        }
        assert!(takes.iter().all(kit::is_allowed), "{algorithm:?}: law 13");
        assert!(own.iter().all(Result::is_ok), "{algorithm:?}: law 13");
        assert_eq!(remaining(&admin, &closed).await, 3, "{algorithm:?}");
    }
    // The line of the page is enough for a reset.
    let page = include_str!("../../../docs/security.md");
    let at = page.find("ACL SETUSER takes on ").expect("such a line");
    let (line, _) = page[at..].split_once("```").expect("the block ends");
    run(&server, line);
    let url = server.url.replace("//", "//takes:PASSWORD@");
    let store: Arc<dyn Store> = Arc::new(connect(&url, PATIENT).await);
    for algorithm in Algorithm::ALL {
        let take = take_of(&by(algorithm, "permitted", 5, HOUR), &Key::from("a"), 2);
        let mine = charge(&store, &take).await;
        assert_units(algorithm, mine.refund().await.expect("it may"), 2);
        charge(&store, &take).await;
        store.reset(&take).await.expect("it may");
        assert_eq!(remaining(&*store, &take).await, 5, "{algorithm:?}");
    }
}

/// Law 4: what a reset leaves expires after two seconds, and of a key that nobody used it makes
/// nothing.
#[tokio::test]
async fn nothing_is_left_behind() {
    let stores = Stores::start().await;
    let memory = Arc::new(MemoryStore::with_max_keys(1));
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "left", 5, HOUR);
        for (used, given_back) in [(0, 0), (1, 0), (3, 1), (3, 3)] {
            let clocked = &stores.all[1];
            let take = take_of(&rule, &Key::from("key"), 1);
            for at in 0..used {
                let charge = clocked.charge(&take).await;
                if at < given_back {
                    charge.refund().await.expect("an answer");
                }
            }
            clocked
                .store
                .reset(&Take::new(Arc::clone(&rule), take.key().clone()))
                .await
                .expect("an answer");
            let case = format!("{algorithm:?}: {used} {given_back}");
            let name =
                Take::new(Arc::clone(&rule), take.key().clone()).name(RedisStore::DEFAULT_PREFIX);
            let expiry: i64 = redis::cmd("PTTL")
                .arg(&name)
                .query(&mut stores.server.connection())
                .expect("a running server");
            let expected = if used == 0 { -2..=-2 } else { 1..=2_000 };
            assert!(expected.contains(&expiry), "{case}: {expiry}");
            clocked.remaining(&take).await;
            assert_eq!(size(&stores.server), u64::from(used > 0), "{case}");
            run(&stores.server, &format!("DEL {name}"));
            assert_eq!(size(&stores.server), 0, "{case}");
        }
        // A full memory store has room again.
        for key in ["a", "b", "c"] {
            let take = take_of(&rule, &Key::from(key), 1);
            assert!(memory.take(&take).await.expect("a decision").is_allowed());
            assert_eq!(memory.len(), 1);
            let other = take_of(&rule, &Key::from("other"), 1);
            let error = memory.take(&other).await.expect_err("it is full");
            assert_eq!(error.kind(), StoreErrorKind::Full);
            memory
                .reset(&Take::new(Arc::clone(&rule), other.key().clone()))
                .await
                .expect("an answer");
            assert_eq!(memory.len(), 1, "that key was not there");
            memory
                .reset(&Take::new(Arc::clone(&rule), take.key().clone()))
                .await
                .expect("an answer");
            std::thread::sleep(millis(1));
            assert!(memory.is_empty());
        }
    }
}

/// Law 6: a reset ends within the time-out while the server hangs, with a typed error, and does its
/// work once the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs() {
    let server = Redis::start();
    let store = connect(&server.url, millis(50)).await;
    let direct = store.clone().timeout(PATIENT);
    let take = take_of(&by(Algorithm::Gcra, "hangs", 5, HOUR), &Key::default(), 2);
    direct.take(&take).await.expect("a decision");
    server.signal("STOP");
    let began = Instant::now();
    let resets = (0..100).map(|_| store.reset(&take));
    for reset in join_all(resets).await {
        let error = reset.expect_err("nobody answers");
        let kinds = [StoreErrorKind::Timeout, StoreErrorKind::Unavailable];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    server.signal("CONT");
    direct.reset(&take).await.expect("an answer");
    assert_eq!(remaining(&direct, &take).await, 5);
}

/// Beside an open breaker a reset is refused at once, is no success, and does not close it; the
/// fallback forgets the key in any case.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker() {
    let server = Redis::start();
    let direct = connect(&server.url, PATIENT).await;
    let far = connect(&server.url, millis(50)).await;
    // It probes only once in a day.
    let breaker = Resilient::bare(far.clone())
        .failures(2)
        .probe_every(HOUR * 24);
    let resilient = Resilient::new(far)
        .failures(2)
        .probe_every(millis(20))
        .fallback(Share::of_processes(1))
        .build();
    let take = take_of(
        &by(Algorithm::SlidingLog, "open", 5, HOUR),
        &Key::default(),
        5,
    );
    assert!(direct.take(&take).await.expect("a decision").is_allowed());
    server.signal("STOP");
    for _ in 0..3 {
        breaker.take(&take).await.expect_err("it hangs");
        let local = resilient.take(&take).await.expect("the fallback decides");
        assert_eq!(local.source(), Source::Fallback);
    }
    assert_eq!(remaining(&*resilient, &take).await, 0);
    for store in [&breaker as &dyn Store, &*resilient] {
        let error = store.reset(&take).await.expect_err("it is open");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    }
    let local = resilient.peek(&take).await.expect("the fallback decides");
    assert_eq!((local.source(), local.remaining()), (Source::Fallback, 5));
    server.signal("CONT");
    let error = breaker.reset(&take).await.expect_err("still open");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(
        remaining(&direct, &take).await,
        0,
        "the refused reset never reached it"
    );
    let began = Instant::now();
    while let Err(error) = resilient.reset(&take).await {
        assert!(began.elapsed() < PATIENT, "{error}");
        // The breaker closes with the next take that is decided.
        let _ = resilient.take(&take).await;
        sleep(millis(5)).await;
    }
    assert_eq!(remaining(&direct, &take).await, 5);
}

/// Resets take a permit of the bound like other questions, and give it back, answered or dropped.
#[tokio::test]
async fn permits_come_back() {
    let server = Redis::start();
    let store = Resilient::bare(connect(&server.url, millis(200)).await).in_flight(4);
    let rule = by(Algorithm::SlidingLog, "permits", 5, HOUR);
    server.signal("STOP");
    for dropped in [true, false] {
        let resets = (0..10).map(|_| store.reset(&Take::new(Arc::clone(&rule), Key::default())));
        if dropped {
            let ended = tokio::time::timeout(millis(20), join_all(resets)).await;
            assert!(ended.is_err(), "nobody answers");
        } else {
            for reset in join_all(resets).await {
                reset.expect_err("nobody answers, or it is too much");
            }
        }
        assert_eq!(store.under_way(), 0);
    }
    server.signal("CONT");
    let began = Instant::now();
    while let Err(error) = store
        .reset(&Take::new(Arc::clone(&rule), Key::default()))
        .await
    {
        assert!(began.elapsed() < PATIENT, "{error}");
        sleep(millis(5)).await;
    }
    assert_eq!(store.under_way(), 0);
}

/// Law 14: a request that waits for its window is let in within a second of a reset.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits() {
    for algorithm in Algorithm::ALL {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
        let rule = by(algorithm, "waits", 1, HOUR);
        let layer = RateLimitLayer::from_rule(Rule::clone(&rule))
            .store(Arc::clone(&store))
            .wait(HOUR * 2);
        let app = Router::new().route("/", get(async || "1").layer(layer));
        charge(&store, &take_of(&rule, &Key::default(), 1)).await;
        let request = Request::get("/").body(Body::empty()).expect("valid");
        let waiting = tokio::spawn(app.oneshot(request));
        sleep(Duration::from_secs(100)).await;
        assert!(!waiting.is_finished(), "{algorithm:?}");
        store
            .reset(&Take::new(Arc::clone(&rule), Key::default()))
            .await
            .expect("an answer");
        let began = tokio::time::Instant::now();
        let response = waiting.await.expect("no panic").expect("never fails");
        assert_eq!(response.status(), StatusCode::OK);
        let took = began.elapsed();
        assert!(took <= millis(1_050), "{algorithm:?}: {took:?}");
    }
}

/// In a cluster each key is forgotten on its own node, with the record of its refunds, whatever the
/// prefix says about slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let store = RedisStore::connect(&*cluster.url()).await.expect("it runs");
    let store: Arc<dyn Store> = Arc::new(store.timeout(PATIENT));
    let mut takes = Vec::new();
    for algorithm in Algorithm::ALL {
        for prefix in [None, Some("{eu}:"), Some("app:")] {
            let mut rule = Rule::clone(&by(algorithm, "cluster {x}", 5, HOUR));
            if let Some(prefix) = prefix {
                rule = rule.with_prefix(prefix);
            }
            let rule = Arc::new(rule);
            takes.extend(
                (0..10).map(|key| take_of(&rule, &Key::from(format!("{{{key}}}").as_str()), 2)),
            );
        }
    }
    let mut early = Vec::new();
    for take in &takes {
        let given_back = charge(&store, take).await;
        early.push(charge(&store, take).await);
        let algorithm = take.rule().algorithm().algorithm();
        assert_units(algorithm, given_back.refund().await.expect("an answer"), 2);
        assert_units(algorithm, remaining(&*store, take).await, 3);
    }
    let (first, second) = takes.split_at(takes.len() / 2);
    let reset = |takes: &[Take]| {
        let resets = takes.iter().map(|take| store.reset(take));
        join_all(resets.collect::<Vec<_>>())
    };
    assert!(reset(first).await.iter().all(Result::is_ok));
    for take in first {
        assert_eq!(remaining(&*store, take).await, 5, "{take:?}");
    }
    for take in second {
        let algorithm = take.rule().algorithm().algorithm();
        assert_units(algorithm, remaining(&*store, take).await, 3);
    }
    assert!(reset(second).await.iter().all(Result::is_ok));
    for charge in &early {
        assert_eq!(charge.refund().await.expect("an answer"), 0, "{charge:?}");
    }
    let began = Instant::now();
    loop {
        let nodes = cluster.nodes.iter();
        let left: BTreeMap<_, Vec<String>> =
            nodes.map(|node| (node.port, node.run("KEYS *"))).collect();
        if left.values().all(Vec::is_empty) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{left:?}");
        sleep(millis(20)).await;
    }
}

/// Rules of several quotas are forgotten as a whole.
#[tokio::test]
async fn several_quotas() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in Algorithm::ALL {
            let quotas = [Quota::per_minute(5), Quota::per_hour(8), Quota::per_day(9)];
            let rule = Rule::new("several", quotas)
                .expect("valid")
                .with_algorithm(algorithm);
            let rule = Arc::new(rule);
            let take = take_of(&rule, &Key::default(), 5);
            clocked.charge(&take).await;
            // Another rule of the same path charges under a quota that this one does not have.
            let longer = by(algorithm, "several", 50, HOUR * 100);
            clocked.charge(&take_of(&longer, &Key::default(), 3)).await;
            clocked
                .store
                .reset(&Take::new(Arc::clone(&rule), take.key().clone()))
                .await
                .expect("an answer");
            let decision = clocked.store.peek(&take).await.expect("a decision");
            let left: Vec<_> = decision
                .quotas()
                .iter()
                .map(|quota| quota.remaining())
                .collect();
            assert_eq!(left, [5, 8, 9], "{} {algorithm:?}", clocked.name);
            assert_eq!(decision.reset_after(), Duration::ZERO);
            let look = take_of(&longer, &Key::default(), 1);
            assert_eq!(
                clocked.remaining(&look).await,
                50,
                "{} {algorithm:?}",
                clocked.name
            );
        }
    }
}

/// A server without memory still forgets, and a replica refuses to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_do_not_write() {
    let server = Redis::start();
    let store: Arc<dyn Store> = Arc::new(connect(&server.url, PATIENT).await);
    let takes = Algorithm::ALL.map(|it| take_of(&by(it, "writes", 5, HOUR), &Key::default(), 4));
    for take in &takes {
        charge(&store, take).await;
    }
    run(&server, "CONFIG SET maxmemory 1");
    for take in &takes {
        let error = store
            .take(&take.clone().with_cost(1))
            .await
            .expect_err("it is full");
        assert_eq!(error.kind(), StoreErrorKind::OutOfMemory);
        store.reset(take).await.expect("it frees memory");
    }
    run(&server, "CONFIG SET maxmemory 0");
    for take in &takes {
        assert_eq!(remaining(&*store, take).await, 5, "{take:?}");
        charge(&store, take).await;
    }
    run(&server, "REPLICAOF 127.0.0.1 1");
    for take in &takes {
        let error = store.reset(take).await;
        let error = error.expect_err("it is a replica");
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
    }
    run(&server, "REPLICAOF NO ONE");
    let began = Instant::now();
    for take in &takes {
        while let Err(error) = store.peek(take).await {
            assert!(began.elapsed() < PATIENT, "{error}");
            sleep(millis(5)).await;
        }
        assert_eq!(remaining(&*store, take).await, 1, "{take:?}");
    }
}

/// `Timeout` bounds a reset of a store that never answers.
#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers() {
    let mute = Stub::in_memory().reset_fn(|_, _| StoreFuture::boxed(std::future::pending()));
    let bounded = Resilient::bare(mute).timeout(millis(20));
    let rule = by(Algorithm::Gcra, "mute", 5, HOUR);
    let began = tokio::time::Instant::now();
    let error = bounded
        .reset(&Take::new(Arc::clone(&rule), Key::default()))
        .await
        .expect_err("never");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(began.elapsed() <= millis(25), "{:?}", began.elapsed());
}
