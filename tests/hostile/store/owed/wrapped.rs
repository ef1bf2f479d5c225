//! Wrappers pass a settlement on, to whom it concerns, and forget what it makes untrue.

use super::*;

/// A memory store, and a wrapper that caches its denials for as long as they last.
fn cached_memory(clock: &ManualClock) -> [Arc<dyn Store>; 2] {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().clock(clock.clone()));
    let cached = Resilient::bare(Arc::clone(&inner)).denial_cache(Duration::MAX);
    [inner, cached.clock(clock.clone()).build()]
}

/// A rule of one quota an hour with leases of so many milliseconds.
fn leasing(algorithm: Algorithm, path: &str, max: u64, lease: u64, owes: Option<u64>) -> Arc<Rule> {
    let rule = Rule::clone(&rule(algorithm, path, &[(max, HOUR)], owes));
    Arc::new(rule.with_lease(millis(lease)).expect("leases"))
}

/// Takes more than 50 times, until a lease answers. The decisions, and the lease's charge.
async fn leased_charge(store: &Arc<dyn Store>, one: &Take) -> (u64, Charge) {
    let (mut admitted, began) = (0, Instant::now());
    loop {
        let decision = decide(store, one).await;
        let is_right = decision.is_allowed() && began.elapsed() < PATIENT;
        assert!(is_right, "{admitted}: {decision:?}");
        admitted += 1;
        if decision.source() == Source::Lease && admitted > 50 {
            let receipt = decision.receipt().expect("charged");
            let charge = Charge::new(Arc::clone(store), one.clone(), receipt);
            return (admitted, charge);
        }
        yield_now().await;
    }
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
            let cached: Arc<dyn Store> = cached.tokio_clock().build();
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

/// While a process holds leases and asks for more, a debt arises: no unit is handed out that was
/// not charged, and the key owes no more than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_hand_out_what_was_charged() {
    let (server, plain) = near().await;
    let proxy = behind(&server, millis(2)).await;
    for algorithm in COUNTING {
        for round in 0..3 {
            let store: Arc<dyn Store> = Resilient::bare(connect(&proxy.url, PATIENT).await).build();
            let rule = leasing(algorithm, "leased", 2_000, 60, Some(300));
            let key = format!("{round}");
            let one = take(&rule, &key, 1);
            let (mut admitted, charge) = leased_charge(&store, &one).await;
            let each = (Arc::clone(&store), one.clone());
            let others = spawn_each(0..4, each, |_, (store, one)| async move {
                let mut admitted = 0;
                for _ in 0..60 {
                    admitted += u64::from(decide(&store, &one).await.is_allowed());
                    sleep(Duration::from_micros(100)).await;
                }
                admitted
            });
            sleep(millis(round * 3)).await;
            let settled = settle(&charge, 5_000).await;
            let case = format!("{algorithm:?} {round}: {settled:?}");
            admitted += done(others).await.iter().sum::<u64>();
            assert_eq!(settled.charged + settled.forgiven, 4_999, "{case}");
            // Leases that are under way come back by their own time.
            sleep(millis(150)).await;
            let counted = used(&plain, &rule, &key).await;
            let least = admitted + settled.charged;
            assert!(counted >= least, "{case}: law 1: {counted}, {admitted}");
            assert!(counted <= 2_300, "{case}: {counted}");
        }
    }
}

/// A lease that is held when a debt arises, and one that is under way then, hand out nothing after
/// the settlement was answered: the store would deny it (law 11). Nor does one that is asked for
/// while the settlement is under way, and decided before it.
#[tokio::test(start_paused = true)]
async fn leases_hand_out_nothing_after_a_settlement() {
    // The ways, in milliseconds, of a settlement there, and of takes back.
    for (there, back) in [(1, 1), (1, 9), (9, 1)] {
        admitted_after_a_settlement(there, back).await;
    }
}

async fn admitted_after_a_settlement(there: u64, back: u64) {
    for algorithm in COUNTING {
        // How long after a lease it is settled.
        for pause in 0..12 {
            let memory = Arc::new(MemoryStore::new().tokio_clock());
            let far = far_away(memory, (1, back), (there, 1));
            let store = Resilient::bare(far).tokio_clock().build();
            let one = take(&leasing(algorithm, "held", 20_000, 60, Some(300)), "x", 1);
            let leased = Arc::new(Mutex::new(None));
            // Somebody asks all the time.
            let (asked, of, found) = (Arc::clone(&store), one.clone(), Arc::clone(&leased));
            let others = tokio::spawn(async move {
                loop {
                    let (asked, found) = (asked.take(&of), Arc::clone(&found));
                    tokio::spawn(async move {
                        let decision = asked.await.expect("a decision");
                        if decision.source() == Source::Lease {
                            *found.lock().expect("no panic") = decision.receipt();
                        }
                    });
                    sleep(Duration::from_micros(200)).await;
                }
            });
            let receipt = loop {
                sleep(millis(1)).await;
                if let Some(receipt) = leased.lock().expect("no panic").take() {
                    break receipt;
                }
            };
            sleep(millis(pause)).await;
            let charge = Charge::new(Arc::clone(&store), one.clone(), receipt);
            let settled = settle(&charge, 50_000).await;
            assert!(settled.forgiven > 0, "it owes all that it may");
            let mut late = 0;
            for _ in 0..100 {
                late += u64::from(decide(&store, &one).await.is_allowed());
            }
            others.abort();
            let case = format!("{algorithm:?}, {there} ms there, {back} ms back, {pause} ms");
            assert_eq!(late, 0, "{case}: admitted after {settled:?}");
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
        let charge = charge(&store, &one).await;
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
