//! Wrappers pass a settlement on, to whom it concerns, and forget what it makes untrue.

use super::*;

/// A memory store, and a wrapper that caches its denials for as long as they last.
fn cached_memory(clock: &ManualClock) -> [Arc<dyn Store>; 2] {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
    let cached = Resilient::bare(Arc::clone(&inner)).denial_cache(Duration::MAX);
    [inner, cached.clock(clock.clone()).build()]
}

/// A denial that is cached, then a settlement: the next denial tells the later time, of this key
/// and of no other, whether it was cached or not.
#[tokio::test]
async fn a_cached_denial_is_void_after_a_settlement() {
    let clock = clock_at(NOW);
    for algorithm in Algorithm::ALL {
        let [inner, cached] = cached_memory(&clock);
        let rule = rule(algorithm, "cached", &[(10, MINUTE)], 1_000);
        let [one, other] = ["x", "y"].map(|key| take(&rule, key, 5));
        let charges = [charge(&cached, &one).await, charge(&cached, &one).await];
        for _ in 0..2 {
            charge(&cached, &other).await;
        }
        for (charge, used) in charges.iter().zip([40, 300]) {
            clock.set(clock.now() + 900_000);
            for take in [&one, &other] {
                for _ in 0..3 {
                    assert!(!decide(&cached, take).await.is_allowed());
                }
            }
            assert_eq!(settle(charge, used).await.charged, used - 5);
            for cost in [1, 5, 10] {
                let case = format!("{algorithm:?} cost {cost}: law 11");
                let one = one.clone().with_cost(cost);
                let told = decide(&cached, &one).await.retry_after();
                let truth = decide(&inner, &one).await.retry_after();
                assert_eq!(told, truth, "{case}");
                assert!(truth.is_some(), "{case}");
            }
            let source = decide(&cached, &other).await.source();
            assert_eq!(source, Source::Cache, "{algorithm:?}: another key stays");
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
            let far = far_away(Arc::clone(&inner), (1, 1), (9, 1));
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

/// Under several subjects a settlement of one tuple makes the denials of others untrue.
#[tokio::test]
async fn denials_that_share_a_count() {
    let clock = clock_at(NOW);
    for algorithm in Algorithm::ALL {
        let [inner, cached] = cached_memory(&clock);
        let subjects = [
            Subject::new("user", Everyone).limit(quota(100, MINUTE)),
            Subject::new("address", Everyone).limit(quota(10, MINUTE)),
        ];
        let rule = Rule::joint("tuples", subjects).expect("valid");
        let rule = Arc::new(rule.with_algorithm(algorithm).with_owe_at_most(500));
        let of = |user: &str| {
            let keys = [("user", Key::from(user)), ("address", Key::from("a"))];
            let take = Take::of_subjects(Arc::clone(&rule), keys);
            take.expect("subjects").with_cost(10)
        };
        let charge = charge(&cached, &of("alice")).await;
        for _ in 0..3 {
            assert!(!decide(&cached, &of("bob")).await.is_allowed());
        }
        let settled = settle(&charge, 200).await;
        assert_eq!(settled.charged + settled.forgiven, 190, "{algorithm:?}");
        for user in ["bob", "alice", "zoe"] {
            let told = decide(&cached, &of(user)).await.retry_after();
            let truth = decide(&inner, &of(user)).await.retry_after();
            assert_eq!(told, truth, "{algorithm:?} {user}: law 11");
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

/// A joint rule: each count without a cost of its own is charged what fits there.
#[tokio::test]
async fn each_count_is_charged_what_fits() {
    const MICRO: Duration = Duration::from_micros(1);
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let minute = |max| Policy::from(quota(max, MINUTE));
        let user = Subject::new("user", Everyone).limit(minute(10));
        let subjects = [
            user.limit(minute(4).with_cost(1)),
            Subject::new("tenant", Everyone).limit(minute(30).hidden()),
            Subject::new("device", Everyone)
                .limit(minute(5))
                .skip_absent(),
        ];
        let rule = Rule::joint("joint", subjects).expect("valid");
        let rule = Arc::new(rule.with_algorithm(algorithm).with_owe_at_most(6));
        let of = |cost| {
            let keys = [("user", Key::from("u")), ("tenant", Key::from("t"))];
            let take = Take::of_subjects(Arc::clone(&rule), keys);
            take.expect("subjects").with_cost(cost)
        };
        let left = async || {
            let found = clocked.store.peek(&of(1)).await.expect("an answer");
            let states = found.quotas().iter().map(|it| it.remaining());
            states.collect::<Vec<_>>()
        };
        let charge = clocked.charge(&of(2)).await;
        let before = left().await;
        // The user may use 16, the tenant 36.
        let settled = settle(&charge, 22).await;
        assert_eq!((settled.charged, settled.forgiven), (14, 6), "{case}");
        let after = left().await;
        let changed = before.iter().zip(&after).map(|it| it.0 - it.1);
        let mut changed: Vec<_> = changed.filter(|it| *it > 0).collect();
        changed.sort_unstable();
        assert_eq!(changed, [8, 20], "{case}: {after:?}");
        let is_allowed = async || decide(&clocked.store, &of(1)).await.is_allowed();
        let denied = decide(&clocked.store, &of(1)).await;
        clocked.advance(denied.retry_after().expect("the user owes") - MICRO);
        assert!(!is_allowed().await, "{case}");
        clocked.advance(MICRO);
        assert!(is_allowed().await, "{case}: {denied:?}");
        clocked.advance(HOUR);
    }
}
