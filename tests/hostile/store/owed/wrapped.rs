//! Wrappers pass a settlement on, to whom it concerns, and forget what it makes untrue.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use tidegate::decision::Source;
use tidegate::key::Everyone;
use tidegate::rule::{Policy, Share, Subject};
use tidegate::store::{Charge, StoreErrorKind};
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Key, MemoryStore, Quota, RedisStore, Resilient, Rule, Store, Take};

use super::{ALGORITHMS, COUNTING, Far, rule, settle, take, used};
use kit::clocked::charge;
use kit::stub::Stub;
use kit::{HOUR, PATIENT, behind, connect, millis};

const MINUTE: Duration = Duration::from_secs(60);

/// A denial that is cached, then a settlement: the next denial tells the later time, of this key
/// and of no other, whether it was cached or not.
#[tokio::test]
async fn a_cached_denial_is_void_after_a_settlement() {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    for algorithm in ALGORITHMS {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
        let cached = Resilient::bare(Arc::clone(&inner)).denial_cache(Duration::MAX);
        let cached: Arc<dyn Store> = cached.clock(clock.clone()).build();
        let rule = rule(algorithm, "cached", &[(10, MINUTE)], 1_000);
        let one = take(&rule, "x", 5);
        let charges = [charge(&cached, &one).await, charge(&cached, &one).await];
        let other = take(&rule, "y", 5);
        for _ in 0..2 {
            charge(&cached, &other).await;
        }
        for (charge, used) in charges.iter().zip([40, 300]) {
            clock.set(clock.now() + 900_000);
            for take in [&one, &other] {
                for _ in 0..3 {
                    let denied = cached.take(take).await.expect("a decision");
                    assert!(!denied.is_allowed());
                }
            }
            assert_eq!(settle(charge, used).await.charged, used - 5);
            for cost in [1, 5, 10] {
                let told = cached
                    .take(&one.clone().with_cost(cost))
                    .await
                    .expect("a decision");
                let truth = inner
                    .take(&one.clone().with_cost(cost))
                    .await
                    .expect("a decision");
                let case = format!("{algorithm:?} cost {cost}");
                assert_eq!(told.retry_after(), truth.retry_after(), "{case}: law 11");
                assert!(truth.retry_after().is_some(), "{case}");
            }
            let told = cached.take(&other).await.expect("a decision");
            assert_eq!(
                told.source(),
                Source::Cache,
                "{algorithm:?}: another key stays"
            );
        }
    }
}

/// Denials that are under way while a settlement is: once all have ended, what is told is not
/// earlier than what the server says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_that_race_with_a_settlement() {
    let server = Redis::start();
    let proxy = behind(&server, millis(6)).await;
    let plain = connect(&server.url, PATIENT).await;
    let cached = Resilient::bare(connect(&proxy.url, PATIENT).await);
    let cached: Arc<dyn Store> = cached.denial_cache(Duration::MAX).build();
    for round in 0..30_u64 {
        let rule = rule(Algorithm::Gcra, "race", &[(10, HOUR)], 1_000);
        let one = take(&rule, &format!("{round}"), 10);
        let charge = charge(&cached, &one).await;
        let asked = (0..12_u64).map(|at| {
            let (cached, one) = (Arc::clone(&cached), one.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(at * 700)).await;
                cached.take(&one).await.expect("a decision").is_allowed()
            })
        });
        let asked: Vec<_> = asked.collect();
        tokio::time::sleep(millis(round % 8)).await;
        assert_eq!(settle(&charge, 210).await.charged, 200);
        for one in join_all(asked).await {
            assert!(!one.expect("no panic"), "round {round}");
        }
        let truth = plain.take(&one).await.expect("a decision");
        let told = cached.take(&one).await.expect("a decision");
        let [truth, told] = [truth, told].map(|it| it.retry_after().expect("it owes"));
        assert!(
            told + Duration::from_secs(5) > truth,
            "{round}: law 11: {told:?} of {truth:?}"
        );
    }
}

/// A denial that is asked for while a settlement is under way, and decided before it, is not what
/// callers are told after its answer.
#[tokio::test(start_paused = true)]
async fn denials_that_overtake_a_settlement() {
    for algorithm in ALGORITHMS {
        for pause in 0..14 {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
            let far = Far {
                inner: Arc::clone(&inner),
                of_takes: (millis(1), millis(1)),
                of_others: (millis(9), millis(1)),
            };
            let cached = Resilient::bare(far)
                .denial_cache(Duration::MAX)
                .tokio_clock();
            let cached: Arc<dyn Store> = cached.build();
            let rule = rule(algorithm, "overtakes", &[(10, MINUTE)], 1_000);
            let one = take(&rule, "x", 10);
            let charge = charge(&cached, &one).await;
            tokio::time::sleep(millis(100)).await;
            let denied = tokio::spawn({
                let (cached, one) = (Arc::clone(&cached), one.clone());
                async move {
                    tokio::time::sleep(millis(pause)).await;
                    cached.take(&one).await.expect("a decision")
                }
            });
            assert_eq!(settle(&charge, 300).await.charged, 290);
            assert!(!denied.await.expect("no panic").is_allowed());
            let told = cached.take(&one).await.expect("a decision").retry_after();
            let truth = inner.take(&one).await.expect("a decision").retry_after();
            let (told, truth) = (told.expect("it owes"), truth.expect("it owes"));
            assert!(
                told + millis(20) >= truth,
                "{algorithm:?}, {pause} ms: law 11: {told:?} of {truth:?}"
            );
        }
    }
}

/// Under several subjects a settlement of one tuple makes the denials of others untrue.
#[tokio::test]
async fn denials_that_share_a_count() {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    for algorithm in ALGORITHMS {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
        let cached = Resilient::bare(Arc::clone(&inner)).denial_cache(Duration::MAX);
        let cached: Arc<dyn Store> = cached.clock(clock.clone()).build();
        let minute = |max| Quota::new(MINUTE, max).expect("valid");
        let subjects = [
            Subject::new("user", Everyone).limit(minute(100)),
            Subject::new("address", Everyone).limit(minute(10)),
        ];
        let rule = Rule::joint("tuples", subjects).expect("valid");
        let rule = Arc::new(rule.with_algorithm(algorithm).with_owe_at_most(500));
        let of = |user: &str| {
            let keys = [("user", Key::from(user)), ("address", Key::from("a"))];
            Take::of_subjects(Arc::clone(&rule), keys)
                .expect("subjects")
                .with_cost(10)
        };
        let charge = charge(&cached, &of("alice")).await;
        for _ in 0..3 {
            assert!(
                !cached
                    .take(&of("bob"))
                    .await
                    .expect("a decision")
                    .is_allowed()
            );
        }
        let settled = settle(&charge, 200).await;
        assert_eq!(settled.charged + settled.forgiven, 190, "{algorithm:?}");
        for user in ["bob", "alice", "zoe"] {
            let told = cached.take(&of(user)).await.expect("a decision");
            let truth = inner.take(&of(user)).await.expect("a decision");
            assert_eq!(
                told.retry_after(),
                truth.retry_after(),
                "{algorithm:?} {user}: law 11"
            );
        }
    }
}

/// A random history of takes and settlements of a few keys: a cached store tells what a plain one
/// does, at every microsecond.
#[tokio::test]
async fn a_cached_store_tells_what_a_plain_one_does() {
    for algorithm in ALGORITHMS {
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_777);
        let plain: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
        let inner = MemoryStore::new().clock(clock.clone());
        let cached = Resilient::bare(inner)
            .denial_cache(Duration::MAX)
            .clock(clock.clone());
        let cached: Arc<dyn Store> = cached.build();
        let rule = rule(algorithm, "p", &[(9, millis(900)), (30, millis(8_000))], 50);
        let mut random = Random::new(0x0e);
        let mut open: Vec<[Charge; 2]> = Vec::new();
        let mut by_cache = 0;
        for step in 0..3_000 {
            let case = format!("{algorithm:?} step {step}");
            clock.set(clock.now() + random.below(90_000));
            let one = take(&rule, ["x", "y"][random.below(2) as usize], 3);
            if random.is(20) && !open.is_empty() {
                let at = random.below(open.len() as u64) as usize;
                let [of_cached, of_plain] = open.swap_remove(at);
                let used = random.below(40);
                let answers = (
                    settle(&of_cached, used).await,
                    settle(&of_plain, used).await,
                );
                assert_eq!(answers.0, answers.1, "{case}");
                continue;
            }
            let [told, truth] = [cached.take(&one).await, plain.take(&one).await];
            let [told, truth] = [told, truth].map(|it| it.expect("a decision"));
            assert_eq!(told.verdict(), truth.verdict(), "{case}: law 11");
            by_cache += u64::from(told.source() == Source::Cache);
            if let (Some(first), Some(second)) = (told.receipt(), truth.receipt()) {
                let of =
                    |store: &Arc<dyn Store>, it| Charge::new(Arc::clone(store), one.clone(), it);
                open.push([of(&cached, first), of(&plain, second)]);
            }
        }
        assert!(by_cache > 100, "{algorithm:?}: {by_cache}");
    }
}

/// While a process holds leases and asks for more, a debt arises: no unit is handed out that was
/// not charged, and the key owes no more than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_hand_out_what_was_charged() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    let plain = connect(&server.url, PATIENT).await;
    for algorithm in COUNTING {
        for round in 0..3 {
            let store: Arc<dyn Store> = Resilient::bare(connect(&proxy.url, PATIENT).await).build();
            let rule = rule(algorithm, "leased", &[(2_000, HOUR)], 300);
            let rule = Rule::clone(&rule).with_lease(millis(60)).expect("leases");
            let rule = Arc::new(rule);
            let key = format!("{round}");
            let one = take(&rule, &key, 1);
            let mut admitted = 0;
            let began = Instant::now();
            let charge = loop {
                let decision = store.take(&one).await.expect("a decision");
                admitted += u64::from(decision.is_allowed());
                assert!(
                    decision.is_allowed() && began.elapsed() < PATIENT,
                    "{decision:?}"
                );
                if decision.source() == Source::Lease && admitted > 50 {
                    let receipt = decision.receipt().expect("charged");
                    break Charge::new(Arc::clone(&store), one.clone(), receipt);
                }
                tokio::task::yield_now().await;
            };
            let others = (0..4).map(|_| {
                let (store, one) = (Arc::clone(&store), one.clone());
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..60 {
                        let decision = store.take(&one).await.expect("a decision");
                        admitted += u64::from(decision.is_allowed());
                        tokio::time::sleep(Duration::from_micros(100)).await;
                    }
                    admitted
                })
            });
            let others: Vec<_> = others.collect();
            tokio::time::sleep(millis(round * 3)).await;
            let settled = settle(&charge, 5_000).await;
            let case = format!("{algorithm:?} {round}: {settled:?}");
            for other in others {
                admitted += other.await.expect("no panic");
            }
            assert_eq!(settled.charged + settled.forgiven, 4_999, "{case}");
            // Leases that are under way come back by their own time.
            tokio::time::sleep(millis(150)).await;
            let counted = used(&plain, &rule, &key).await;
            assert!(
                counted >= admitted + settled.charged,
                "{case}: law 1: {counted}, {admitted}"
            );
            assert!(counted <= 2_300, "{case}: {counted}");
        }
    }
}

/// Settlements of a few units all the time, each of which ends the leases of the key, beside takes
/// that use them: what is given back is not handed out as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlements_among_leases() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    let plain = connect(&server.url, PATIENT).await;
    let store = Resilient::bare(connect(&proxy.url, PATIENT).await).build();
    for algorithm in COUNTING {
        let rule = rule(algorithm, "among", &[(1_000_000, HOUR)], None);
        let rule = Rule::clone(&rule).with_lease(millis(30)).expect("leases");
        let rule = Arc::new(rule);
        let tasks = (0..6).map(|task| {
            let (store, one) = (Arc::clone(&store), take(&rule, "x", 1));
            tokio::spawn(async move {
                let (mut units, mut by_lease) = (0, 0);
                for at in 0..500 {
                    let decision = store.take(&one).await.expect("a decision");
                    let receipt = decision.receipt().expect("there is room");
                    by_lease += u64::from(decision.source() == Source::Lease);
                    units += 1;
                    if at % 60 == task * 10 {
                        let charge = Charge::new(Arc::clone(&store), one.clone(), receipt);
                        let used = [3, 0, 1][at as usize % 3];
                        let settled = settle(&charge, used).await;
                        assert_eq!(settled.charged, used.saturating_sub(1));
                        units = units + settled.charged - settled.given_back;
                    }
                    tokio::task::yield_now().await;
                }
                (units, by_lease)
            })
        });
        let (mut units, mut by_lease) = (0, 0);
        for task in tasks.collect::<Vec<_>>() {
            let of_task = task.await.expect("no panic");
            units += of_task.0;
            by_lease += of_task.1;
        }
        tokio::time::sleep(millis(200)).await;
        let counted = used(&plain, &rule, "x").await;
        println!("{algorithm:?}: {units} used, {by_lease} by leases, {counted} counted");
        assert!(
            counted >= units,
            "law 1: {algorithm:?}: {counted} counted, {units} used"
        );
        assert!(by_lease > 0, "{algorithm:?}");
    }
}

/// A lease that is held when a debt arises, and one that is under way then, hand out nothing after
/// the settlement was answered: the store would deny it (law 11).
#[tokio::test(start_paused = true)]
async fn leases_hand_out_nothing_after_a_settlement() {
    for back in [1, 9] {
        admitted_after_a_settlement(1, back).await;
    }
}

/// Nor does one that is asked for while the settlement is under way, and decided before it.
#[tokio::test(start_paused = true)]
async fn leases_that_overtake_a_settlement() {
    admitted_after_a_settlement(9, 1).await;
}

/// The ways, in milliseconds, of a settlement there, and of takes back.
async fn admitted_after_a_settlement(there: u64, back: u64) {
    for algorithm in COUNTING {
        // How long after a lease it is settled.
        for pause in 0..12 {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
            let far = Far {
                inner,
                of_takes: (millis(1), millis(back)),
                of_others: (millis(there), millis(1)),
            };
            let store = Resilient::bare(far).tokio_clock().build();
            let rule = rule(algorithm, "held", &[(20_000, HOUR)], 300);
            let rule = Rule::clone(&rule).with_lease(millis(60)).expect("leases");
            let one = take(&Arc::new(rule), "x", 1);
            let leased = Arc::new(Mutex::new(None));
            // Somebody asks all the time.
            let others = tokio::spawn({
                let (store, one, leased) = (Arc::clone(&store), one.clone(), Arc::clone(&leased));
                async move {
                    loop {
                        let (asked, leased) = (store.take(&one), Arc::clone(&leased));
                        tokio::spawn(async move {
                            let decision = asked.await.expect("a decision");
                            if decision.source() == Source::Lease {
                                *leased.lock().expect("no panic") = decision.receipt();
                            }
                        });
                        tokio::time::sleep(Duration::from_micros(200)).await;
                    }
                }
            });
            let receipt = loop {
                tokio::time::sleep(millis(1)).await;
                if let Some(receipt) = leased.lock().expect("no panic").take() {
                    break receipt;
                }
            };
            tokio::time::sleep(millis(pause)).await;
            let charge = Charge::new(Arc::clone(&store), one.clone(), receipt);
            let settled = settle(&charge, 50_000).await;
            assert!(settled.forgiven > 0, "it owes all that it may");
            let mut late = 0;
            for _ in 0..100 {
                let decision = store.take(&one).await.expect("a decision");
                late += u64::from(decision.is_allowed());
            }
            others.abort();
            let case = format!("{algorithm:?}, {there} ms there, {back} ms back, {pause} ms");
            assert_eq!(late, 0, "{case}: admitted after {settled:?}");
        }
    }
}

/// The same on a server, many times, with leases under way by the flight of the settlement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_the_flight_of_a_settlement() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    let store = Resilient::bare(connect(&proxy.url, PATIENT).await).build();
    let (began, mut rounds) = (Instant::now(), 0);
    let mut late = Vec::new();
    while late.is_empty() && began.elapsed() < Duration::from_secs(20) {
        let rule = rule(Algorithm::FixedWindow, "flight", &[(2_000, HOUR)], 300);
        let rule = Rule::clone(&rule).with_lease(millis(60)).expect("leases");
        let one = take(&Arc::new(rule), &format!("{rounds}"), 1);
        let mut taken = 0;
        let charge = loop {
            let decision = store.take(&one).await.expect("a decision");
            taken += 1;
            if decision.source() == Source::Lease && taken > 50 {
                let receipt = decision.receipt().expect("charged");
                break Charge::new(Arc::clone(&store), one.clone(), receipt);
            }
            assert!(taken < 2_000, "no lease: {decision:?}");
            tokio::task::yield_now().await;
        };
        let others = (0..4).map(|_| {
            let (store, one) = (Arc::clone(&store), one.clone());
            tokio::spawn(async move {
                loop {
                    store.take(&one).await.expect("a decision");
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            })
        });
        let others: Vec<_> = others.collect();
        tokio::time::sleep(Duration::from_micros(700 * (rounds % 16))).await;
        let settled = settle(&charge, 5_000).await;
        assert!(settled.forgiven > 0, "it owes all that it may");
        for _ in 0..3 {
            let decision = store.take(&one).await.expect("a decision");
            if decision.is_allowed() {
                late.push((rounds, decision.source()));
            }
        }
        others.iter().for_each(tokio::task::JoinHandle::abort);
        rounds += 1;
    }
    assert!(
        late.is_empty(),
        "law 11: of {rounds} rounds these were admitted: {late:?}"
    );
}

/// What the fallback charged is settled there, while Redis is back and is not charged; and what
/// Redis charged is settled by Redis or not at all.
#[tokio::test]
async fn whoever_was_charged_is_charged_more() {
    let server = Redis::start();
    for algorithm in COUNTING {
        let proxy = Proxy::start(&server.url).await;
        let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
        let plain = connect(&server.url, PATIENT).await;
        let store = Resilient::new(redis).processes(1).timeout(millis(300));
        let store: Arc<dyn Store> = store.build();
        let rule = rule(algorithm, "f", &[(10, HOUR)], None);
        let one = take(&rule, "x", 1);
        let until = async |source: Source| {
            let began = Instant::now();
            while store.peek(&one).await.ok().map(|it| it.source()) != Some(source) {
                assert!(began.elapsed() < PATIENT, "never {source:?}");
                tokio::time::sleep(millis(10)).await;
            }
        };
        until(Source::Redis).await;
        let of_redis = [charge(&store, &one).await, charge(&store, &one).await];
        proxy.all(Mode::Reset);
        until(Source::Fallback).await;
        let of_fallback = [charge(&store, &one).await, charge(&store, &one).await];
        // Redis is away: the fallback is not charged for it.
        let began = Instant::now();
        of_redis[0].settle(9).await.expect_err("Redis is away");
        assert!(began.elapsed() < Duration::from_secs(5), "law 6");
        let left = store.peek(&one).await.expect("an answer");
        assert_eq!(
            (left.source(), left.remaining()),
            (Source::Fallback, 8),
            "{algorithm:?}"
        );
        proxy.all(Mode::Pass);
        until(Source::Redis).await;
        let before = used(&plain, &rule, "x").await;
        assert_eq!(before, 2, "{algorithm:?}: it was away");
        assert_eq!(settle(&of_fallback[0], 5).await.charged, 4, "{algorithm:?}");
        assert_eq!(
            used(&plain, &rule, "x").await,
            2,
            "{algorithm:?}: of the fallback"
        );
        assert_eq!(settle(&of_redis[1], 5).await.charged, 4, "{algorithm:?}");
        assert_eq!(used(&plain, &rule, "x").await, 6, "{algorithm:?}");
        proxy.all(Mode::Reset);
        until(Source::Fallback).await;
        let left = store.peek(&one).await.expect("an answer");
        assert_eq!(left.remaining(), 4, "{algorithm:?}: 2 and 4 are used there");
        settle(&of_fallback[1], 1_000).await;
        assert!(
            !store.take(&one).await.expect("a decision").is_allowed(),
            "{algorithm:?}"
        );
        kit::run(&server, "FLUSHALL");
    }
}

/// A store that charges nothing beyond a reservation says so, plain and in wrappers, and settles
/// what was not used.
#[tokio::test]
async fn a_store_that_cannot() {
    let plain: Arc<dyn Store> = Arc::new(Stub::that_cannot_owe());
    let share = Share::of_processes(1);
    let wrapped = Resilient::new(Stub::that_cannot_owe())
        .fallback(share)
        .build();
    for (name, store) in [("plain", plain), ("wrapped", wrapped)] {
        assert!(!store.capabilities().owes, "{name}");
        let rule = rule(Algorithm::SlidingLog, "lacks", &[(10, HOUR)], None);
        let one = take(&rule, "x", 3);
        for _ in 0..20 {
            // So often that a breaker would open if these were failures of the store.
            let rejected = charge(&store, &one).await;
            let error = rejected.settle(4).await.expect_err("it cannot");
            assert_eq!(
                error.kind(),
                StoreErrorKind::Configuration,
                "{name}: {error}"
            );
            assert_eq!(rejected.refund().await.expect("an answer"), 0, "{name}");
            let left = store.peek(&one).await.expect("an answer");
            assert_eq!(left.remaining(), 7, "{name}: nothing is charged");
            assert_ne!(left.source(), Source::Fallback, "{name}");
            assert!(store.reset(&one).await.expect("an answer"));
        }
        let charge = charge(&store, &one).await;
        assert_eq!(settle(&charge, 1).await.given_back, 2, "{name}");
    }
}

/// A joint rule: each count without a cost of its own is charged what fits there.
#[tokio::test]
async fn each_count_is_charged_what_fits() {
    let stores = kit::clocked::Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let case = format!("{} {algorithm:?}", clocked.name);
            let minute = |max| Policy::from(Quota::new(MINUTE, max).expect("valid"));
            let subjects = [
                Subject::new("user", Everyone)
                    .limit(minute(10))
                    .limit(minute(4).with_cost(1)),
                Subject::new("tenant", Everyone).limit(minute(30).hidden()),
                Subject::new("device", Everyone)
                    .limit(minute(5))
                    .skip_absent(),
            ];
            let rule = Rule::joint("joint", subjects).expect("valid");
            let rule = Arc::new(rule.with_algorithm(algorithm).with_owe_at_most(6));
            let of = |cost| {
                let keys = [("user", Key::from("u")), ("tenant", Key::from("t"))];
                let take = Take::of_subjects(Arc::clone(&rule), keys).expect("subjects");
                take.with_cost(cost)
            };
            let left = async || {
                let found = clocked.store.peek(&of(1)).await.expect("an answer");
                found
                    .quotas()
                    .iter()
                    .map(|it| it.remaining())
                    .collect::<Vec<_>>()
            };
            let charge = clocked.charge(&of(2)).await;
            let before = left().await;
            // The user may use 16, the tenant 36.
            let settled = settle(&charge, 22).await;
            assert_eq!((settled.charged, settled.forgiven), (14, 6), "{case}");
            let after = left().await;
            println!("{case}: {before:?} {after:?}");
            let changed: Vec<_> = before.iter().zip(&after).map(|it| it.0 - it.1).collect();
            assert_eq!(
                changed.iter().filter(|it| **it == 20).count(),
                1,
                "{case}: {after:?}"
            );
            assert_eq!(
                changed.iter().filter(|it| **it == 8).count(),
                1,
                "{case}: {after:?}"
            );
            assert_eq!(changed.iter().sum::<u64>(), 28, "{case}: {after:?}");
            let denied = clocked.store.take(&of(1)).await.expect("a decision");
            let wait = denied.retry_after().expect("the user owes");
            clocked.advance(wait - Duration::from_micros(1));
            let early = clocked.store.take(&of(1)).await.expect("a decision");
            assert!(!early.is_allowed(), "{case}");
            clocked.advance(Duration::from_micros(1));
            let late = clocked.store.take(&of(1)).await.expect("a decision");
            assert!(late.is_allowed(), "{case}: {late:?}");
            clocked.advance(HOUR);
        }
    }
}
