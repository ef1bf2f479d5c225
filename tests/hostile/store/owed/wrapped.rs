//! Wrappers pass a settlement on, to whom it concerns, and forget what it makes untrue.

use kit::stub::travel;

use super::*;

/// A memory store, and a wrapper that caches its denials for as long as they last.
fn cached_memory(clock: &ManualClock) -> [Arc<dyn Store>; 2] {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
    let cached = Resilient::bare(Arc::clone(&inner)).denial_cache(Duration::MAX);
    [inner, cached.clock(clock.clone()).build()]
}

/// A denial that is cached, then a settlement: the next denial tells the later time, of all that
/// share a count with it and of no other, whether it was cached or not.
#[tokio::test]
async fn a_cached_denial_is_void_after_a_settlement() {
    let clock = clock_at(NOW);
    for (algorithm, is_joint) in Algorithm::ALL
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let case = format!("{algorithm:?}, joint: {is_joint}");
        let [inner, cached] = cached_memory(&clock);
        let one = rule(algorithm, "cached", &[(10, MINUTE)], 1_000);
        let subjects = [
            Subject::new("user", Everyone).limit(quota(100, MINUTE)),
            Subject::new("address", Everyone).limit(quota(10, MINUTE)),
        ];
        let both = Rule::joint("tuples", subjects).expect("valid");
        let both = Arc::new(both.with_algorithm(algorithm).with_owe_at_most(1_000));
        let of = |user: &str, address: &str| {
            let keys = [("user", Key::from(user)), ("address", Key::from(address))];
            match is_joint {
                true => Take::of_subjects(Arc::clone(&both), keys)
                    .expect("subjects")
                    .with_cost(5),
                false => take(&one, address, 5),
            }
        };
        let [mine, other] = [of("alice", "x"), of("carol", "y")];
        let charges = [charge(&cached, &mine).await, charge(&cached, &mine).await];
        for _ in 0..2 {
            charge(&cached, &other).await;
        }
        for (charge, used) in charges.iter().zip([40, 300]) {
            clock.set(clock.now() + 900_000);
            for take in [&mine, &other, &of("bob", "x")] {
                for _ in 0..3 {
                    assert!(!decide(&cached, take).await.is_allowed());
                }
            }
            let settled = settle(charge, used).await;
            assert_eq!(settled.charged, used - 5, "{case}");
            for (user, cost) in ["alice", "bob", "zoe"]
                .map(|it| [1, 5, 10].map(|cost| (it, cost)))
                .concat()
            {
                let take = of(user, "x").with_cost(cost);
                let told = decide(&cached, &take).await.retry_after();
                let truth = decide(&inner, &take).await.retry_after();
                assert_eq!(told, truth, "{case}, {user}, cost {cost}: law 11");
                assert!(truth.is_some(), "{case}");
            }
            let source = decide(&cached, &other).await.source();
            assert_eq!(source, Source::Cache, "{case}: another key stays");
        }
    }
}

/// A denial that is asked for while a settlement is under way, and decided before it, is not what
/// callers are told after its answer.
#[tokio::test(start_paused = true)]
async fn denials_that_overtake_a_settlement() {
    for algorithm in Algorithm::ALL {
        for pause in 0..14 {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
            let [taken, owing] = [Arc::clone(&inner), Arc::clone(&inner)];
            let far = Stub::around(Arc::clone(&inner)).capabilities_fn(|it| it.capabilities());
            let far = far.take_fn(move |_, take| {
                let take = take.clone();
                travel(&taken, (millis(1), millis(1)), move |it| it.take(&take))
            });
            let far = far.owe_fn(move |_, take, receipt| {
                let (take, receipt) = (take.clone(), receipt.clone());
                travel(&owing, (millis(9), millis(1)), move |it| {
                    it.owe(&take, &receipt)
                })
            });
            let cached = Resilient::bare(far).denial_cache(Duration::MAX);
            let cached: Arc<dyn Store> = cached.build();
            let rule = rule(algorithm, "overtakes", &[(10, MINUTE)], 1_000);
            let one = take(&rule, "x", 10);
            let charge = charge(&cached, &one).await;
            sleep(millis(100)).await;
            let (asked, of) = (Arc::clone(&cached), one.clone());
            let denied = tokio::spawn(async move {
                sleep(millis(pause)).await;
                decide(&asked, &of).await
            });
            assert_eq!(settle(&charge, 300).await.charged, 290);
            assert!(!denied.await.expect("no panic").is_allowed());
            let told = decide(&cached, &one).await.retry_after().expect("it owes");
            let truth = decide(&inner, &one).await.retry_after().expect("it owes");
            let case = format!("{algorithm:?}, {pause} ms: law 11");
            assert!(told + millis(20) >= truth, "{case}: {told:?} of {truth:?}");
        }
    }
}

/// What the fallback charged is settled there, while Redis is back and is not charged; and what
/// Redis charged is settled by Redis or not at all.
#[tokio::test]
async fn whoever_was_charged_is_charged_more() {
    let (server, plain) = near().await;
    for algorithm in COUNTING {
        let proxy = Proxy::start(&server.url).await;
        let redis = RedisStore::connect(&*proxy.url).await.expect("a server");
        let store = Resilient::new(redis).processes(1).timeout(millis(300));
        let store: Arc<dyn Store> = store.build();
        let rule = rule(algorithm, "f", &[(10, HOUR)], None);
        let one = take(&rule, "x", 1);
        let until = async |source: Source| {
            let is_so = async || store.peek(&one).await.is_ok_and(|it| it.source() == source);
            eventually(&format!("{source:?} decides"), is_so).await;
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
        let found = store.peek(&one).await.expect("an answer");
        let told = (found.source(), found.remaining());
        assert_eq!(told, (Source::Fallback, 8), "{algorithm:?}");
        proxy.all(Mode::Pass);
        until(Source::Redis).await;
        let counted = async || used(&plain, &rule, "x").await;
        assert_eq!(counted().await, 2, "{algorithm:?}: it was away");
        assert_eq!(settle(&of_fallback[0], 5).await.charged, 4, "{algorithm:?}");
        assert_eq!(counted().await, 2, "{algorithm:?}: of the fallback");
        assert_eq!(settle(&of_redis[1], 5).await.charged, 4, "{algorithm:?}");
        assert_eq!(counted().await, 6, "{algorithm:?}");
        proxy.all(Mode::Reset);
        until(Source::Fallback).await;
        let left = remaining(&store, &one).await;
        assert_eq!(left, 4, "{algorithm:?}: 2 and 4 are used there");
        settle(&of_fallback[1], 1_000).await;
        assert!(!decide(&store, &one).await.is_allowed(), "{algorithm:?}");
        run(&server, "FLUSHALL");
    }
}

/// A store that charges nothing beyond a reservation says so, and settles what was not used.
#[tokio::test]
async fn a_store_that_cannot() {
    let plain: Arc<dyn Store> = Arc::new(Stub::that_cannot_owe());
    let wrapped = Resilient::new(Stub::that_cannot_owe()).fallback(Share::of_processes(1));
    for (name, store) in [("plain", plain), ("wrapped", wrapped.build())] {
        assert!(!store.capabilities().owes, "{name}");
        let lacks = rule(Algorithm::SlidingLog, "lacks", &[(10, HOUR)], None);
        let one = take(&lacks, "x", 3);
        for _ in 0..20 {
            // So often that a breaker would open if these were failures of the store.
            let rejected = charge(&store, &one).await;
            let answer = rejected.settle(4).await;
            assert_eq!(kind(&answer), Some(StoreErrorKind::Configuration), "{name}");
            assert_eq!(give_back(&rejected).await, 0, "{name}");
            let found = store.peek(&one).await.expect("an answer");
            assert_eq!(found.remaining(), 7, "{name}: nothing is charged");
            assert_ne!(found.source(), Source::Fallback, "{name}");
            assert!(reset(&store, &one).await);
        }
        // One key's charge may be in the same microsecond as its reset, and then gives nothing back.
        let charge = charge(&store, &take(&lacks, "y", 3)).await;
        assert_eq!(settle(&charge, 1).await.given_back, 2, "{name}");
    }
}
