//! Shadow rules cost nobody anything: not a different answer, not a wait, not a task, not a key
//! that stays.

use std::task::Waker;

use kit::http::send;
use kit::per_hour as of_one;
use kit::random;
use tidegate::store::Ask;
use tokio::runtime::Handle;

use crate::*;
use DecisionOutcome::{Allowed, Never, ShadowDenied};

fn of_quotas(path: &str, quotas: &[(u64, Duration)]) -> Rule {
    let quotas = quotas.iter().map(|(max, window)| quota(*max, *window));
    Rule::new(path, quotas).expect("a valid rule")
}

/// The rule `a`, and a rule `next` that is tried beside it, by the hour.
fn tried(max: u64, next: u64) -> Vec<Rule> {
    vec![of_one("a", max), of_one("next", next).into_shadow()]
}

fn limits(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Limits {
    Limits::new(Rules::from_iter(rules)).store(store)
}

/// A route with the layer of `a`, and around it that of `next`, if there is such a rule.
fn both(limits: &Limits, set: impl Fn(RateLimitLayer) -> RateLimitLayer) -> Router {
    app(set(limits.layer("a"))).layer(set(limits.layer("next")))
}

/// `/?alice,3` is a request of the tenant `alice` that costs 3.
fn tenant(head: &Parts) -> Result<Key, KeyError> {
    let query = head.uri.query().unwrap_or_default();
    match query.split(',').next().unwrap_or_default() {
        "panic" => panic!("an extractor of a test"),
        "" => Err(KeyError::absent("a test has no key")),
        tenant => Ok(Key::from(tenant)),
    }
}

fn cost(head: &Parts) -> u64 {
    let query = head.uri.query().unwrap_or_default();
    let cost = query.split(',').nth(1).unwrap_or("1");
    cost.parse().expect("a number")
}

fn counted(limits: &Limits) -> RuleSnapshot {
    kit::counters(limits, "a")
}

fn is_of_shadow(take: &Ask) -> bool {
    take.name("").contains("~shadow")
}

/// What a client sees of a response.
async fn seen(response: Response<Body>) -> (StatusCode, HeaderMap, Vec<u8>) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes().to_vec();
    (head.status, head.headers, body)
}

fn any_algorithm(random: &mut fastrand::Rng) -> Algorithm {
    *random.choice(Algorithm::ALL.as_slice()).expect("some")
}

fn any_quotas(random: &mut fastrand::Rng, most: usize) -> Vec<(u64, Duration)> {
    let number = random.usize(1..=most);
    let quota = |at| {
        let window = millis(1_000 * (1 + at as u64) + random.u64(0..900));
        (random.u64(0..9), window)
    };
    (0..number).map(quota).collect()
}

/// Random histories: each answer, each decision and each refund is as without a rule that is tried
/// beside it, whatever that is, for the client and for the handler, also without a key.
async fn equal_histories(seeds: std::ops::Range<u64>, redis: Option<&Redis>) {
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(random::seed(seed));
        let rule = of_quotas("a", &any_quotas(&mut random, 3));
        let rule = rule.with_algorithm(any_algorithm(&mut random));
        let next = of_quotas("next", &any_quotas(&mut random, 16));
        let next = next.with_algorithm(any_algorithm(&mut random));
        let (clock, memory) = clocked();
        let store: Arc<dyn Store> = match redis {
            None => Arc::new(memory),
            Some(server) => Arc::new(connect(&server.url, PATIENT).await.clock(clock.clone())),
        };
        let plain = vec![rule.clone().with_prefix(format!("plain{seed}:"))];
        let prefix = format!("tried{seed}:");
        let tried = [rule, next.into_shadow()].map(|rule| rule.with_prefix(&*prefix));
        let kinds = [Headers::Draft11, Headers::Draft7, Headers::Legacy];
        let headers = *random.choice(&kinds).expect("some");
        // The memory store has no prefix for a key: each has a store of its own.
        let other: Arc<dyn Store> = match redis {
            None => Arc::new(MemoryStore::new().clock(clock.clone())),
            Some(_) => Arc::clone(&store),
        };
        // The trial stands outside, or inside of the other one; the handler shows what it finds.
        let [inner, outer] = [["a", "next"], ["next", "a"]][seed as usize % 2];
        let make = |rules: Vec<Rule>, store| {
            let limits = limits(rules, store);
            let layer = |path| limits.layer(path).key(tenant).cost(cost);
            let shows = async |charges: Charges, decision: Option<Decision>| {
                format!("{} {:?}", charges.len(), decision.map(|it| it.remaining()))
            };
            let app = Router::new().route("/", any(shows).layer(layer(inner).headers(headers)));
            (app.layer(layer(outer).headers(headers)), limits)
        };
        let (plain, tried) = (make(plain, other), make(tried.into(), store));
        let (mut asked, mut charges) = (0, Vec::new());
        for step in 0..60 {
            let tenant = random.choice(["x", "y", "z", "", "panic"]).expect("some");
            let target = format!("/?{tenant},{}", random.u64(0..6));
            let (one, two) = (send(&plain.0, &target).await, send(&tried.0, &target).await);
            asked += u64::from(!tenant.is_empty());
            let case = format!("seed {seed}, step {step}: {target}");
            let both = [&one, &two].map(Response::extensions);
            let [decision, same] = both.map(Decision::from_extensions);
            assert_eq!(decision, same, "{case}");
            match both.map(Charges::from_extensions) {
                [one, two] if (one.len(), two.len()) == (1, 1) => charges.push((one, two)),
                [one, two] if (one.len(), two.len()) == (0, 0) => {}
                other => panic!("{case}: {other:?}"),
            }
            assert_eq!(seen(one).await, seen(two).await, "{case}");
            if random.u8(..) < 40 && !charges.is_empty() {
                let (one, two) = &charges[random.usize(..charges.len())];
                let (one, two) = (one.refund().await, two.refund().await);
                assert_eq!(one.expect("an answer"), two.expect("an answer"), "{case}");
            }
            clock.set(clock.now() + random.u64(0..700_000));
        }
        let (one, two) = (counted(&plain.1), counted(&tried.1));
        let counts = |it: &RuleSnapshot| {
            let outcomes = [Allowed, DecisionOutcome::Denied, Never];
            let decisions = outcomes.map(|outcome| it.decisions(outcome));
            (decisions, it.units, it.refunded_units, it.denials.clone())
        };
        assert_eq!(counts(&one), counts(&two), "seed {seed}");
        let next = kit::counters(&tried.1, "next");
        assert!(next.decisions(ShadowDenied) <= asked, "seed {seed}");
    }
}

#[tokio::test]
async fn histories_are_as_without_a_trial() {
    equal_histories(0..150, None).await;
    let server = Redis::start();
    equal_histories(0..12, Some(&server)).await;
}

type Answer = fn() -> StoreFuture<tidegate::Decision>;

/// What a store may do about a shadow rule, and nothing of it changes an answer.
const BAD_ANSWERS: [(&str, Answer); 8] = [
    ("hangs", || StoreFuture::boxed(std::future::pending())),
    ("fails at once", || StoreFuture::ready(Err(refused()))),
    ("fails", || StoreFuture::boxed(async { Err(refused()) })),
    ("fails late", || {
        StoreFuture::boxed(sleep(HOUR).map(|()| Err(refused())))
    }),
    ("says nothing", || {
        StoreFuture::ready(Err(StoreError::new(StoreErrorKind::Protocol, "")))
    }),
    // As a panic of its key or of its cost.
    ("panics late", || {
        StoreFuture::boxed(yield_now().map(|()| panic!("a store of a test")))
    }),
    ("panics", || {
        StoreFuture::boxed(async { panic!("a store of a test") })
    }),
    ("panics when it is asked", || panic!("a store of a test")),
];

async fn bad_answers(name: &str, answer: Answer) {
    let bare = || {
        let bad = move |take: &Ask| is_of_shadow(take).then(answer);
        Arc::new(Stub::answering(MemoryStore::new(), bad)) as Arc<dyn Store>
    };
    let bounded = Resilient::bare(bare()).timeout(SECOND).build();
    let shadow = of_one("a", 1).into_shadow();
    for (rules, store, expected) in [
        (tried(3, 1), bare(), [200, 200, 200, 429, 429]),
        (tried(3, 1), bounded, [200, 200, 200, 429, 429]),
        (vec![shadow], bare(), [200; 5]),
    ] {
        let limits = limits(rules, store);
        let app = both(&limits, |layer| {
            layer.on_error(async |_: Failed| StatusCode::IM_A_TEAPOT)
        });
        for expected in expected {
            let began = tokio::time::Instant::now();
            assert_eq!(status(&app, "/").await, expected, "{name}");
            assert_eq!(began.elapsed(), Duration::ZERO, "{name}: nobody waits");
        }
        let a = counted(&limits);
        assert_eq!((a.waiting, a.proceeded), (0, 0), "{name}: {a:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bad_answers_to_shadow_rules_change_nothing() {
    let mut wrong = Vec::new();
    for (name, answer) in BAD_ANSWERS {
        let request = tokio::spawn(bad_answers(name, answer));
        wrong.extend(request.await.is_err().then_some(name));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A key that is missing is no decision, and no question.
#[tokio::test]
async fn keys_that_are_missing_or_panic() {
    let store = Stub::listening(MemoryStore::new());
    let beside = both(&limits(tried(5, 0), store.clone()), |it| it.key(tenant));
    let alone = limits([of_one("a", 0).into_shadow()], store.clone());
    for (target, expected) in [("/?,1", 400), ("/?panic,1", 500)] {
        assert_eq!(status(&beside, target).await, expected, "{target}");
        let app = app(alone.layer("a").key(tenant));
        assert_eq!(status(&app, target).await, 200, "{target}");
    }
    assert_eq!(store.asked(|_| true), 0);
    assert_eq!(counted(&alone).decisions(ShadowDenied), 0);
}

/// A request that waits asks for itself again and again, and the rule that is tried once.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_asks_in_shadow_once() {
    let store = Stub::listening(MemoryStore::new().tokio_clock());
    let window = Duration::from_secs(10);
    let next = of_quotas("next", &[(2, window)]).into_shadow();
    let limits = limits([of_quotas("a", &[(1, window)]), next], store.clone());
    let app = both(&limits, |layer| layer.wait(HOUR));
    let asked = (0..5).map(|_| kit::http::start(&app, 0, "/", ""));
    let answers = done(asked).await.into_iter();
    assert!(answers.map(|it| it.status).eq([200; 5]));
    assert!(store.asked(|take| !is_of_shadow(take)) > 10);
    assert_eq!(store.asked(is_of_shadow), 5);
    let repeats = store.asked(|take| is_of_shadow(take) && take.is_repeat());
    assert_eq!(repeats, 0);
    let next = kit::counters(&limits, "next");
    assert_eq!(counted(&limits).decisions(Allowed), 5);
    assert_eq!(next.decisions(ShadowDenied), 3);
}

/// Whatever a path is called, its counts are not those of another path's shadow.
#[tokio::test]
async fn no_path_has_the_keys_of_a_shadow() {
    let paths = [
        words(
            "a a~ a~shadow a~shadow~shadow a~gcra a~gcra~shadow a~window~shadow a~shadow~gcra
        a%7Eshadow a%7eshadow a%257Eshadow ~shadow shadow ~ a:b a%3Ab a{b} a~fixed a% a%% é %C3%A9",
        ),
        vec!["a b", "a\n", "a\0"],
    ]
    .concat();
    let nothing = Key::default().with_nothing();
    let keys = [Key::default(), Key::from(""), Key::from("~shadow"), nothing];
    let mut names = HashSet::new();
    let all = paths
        .iter()
        .flat_map(|path| Algorithm::ALL.map(|it| (path, it)));
    for (path, algorithm) in all {
        let rule = of_one(path, 1).with_algorithm(algorithm);
        for rule in [rule.clone(), rule.into_shadow()].map(Arc::new) {
            for key in &keys {
                let name = Take::new(Arc::clone(&rule), key.clone()).name("p:");
                let is_new = names.insert(name.clone());
                assert!(is_new, "{name} twice, by {path} {algorithm:?}");
            }
        }
    }
}

/// A store whose answers to shadow rules never come: what waits for them is given up some time.
#[tokio::test(start_paused = true)]
async fn no_task_waits_for_ever() {
    let store = Stub::answering(MemoryStore::new(), |take| {
        is_of_shadow(take).then(|| StoreFuture::boxed(std::future::pending()))
    });
    let limits = limits(tried(1_000_000, 1), store);
    let app = both(&limits, |layer| layer);
    for _ in 0..1_000 {
        assert_eq!(status(&app, "/").await, 200);
    }
    drop((app, limits));
    sleep(HOUR).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

/// Without a tokio runtime, a store may still answer later: beside a rule that is tried, too.
#[test]
fn without_a_runtime() {
    let later = || {
        let mut polls = 0;
        StoreFuture::boxed(std::future::poll_fn(move |context| {
            polls += 1;
            context.waker().wake_by_ref();
            let states = [QuotaState::new(1, HOUR)].into_iter();
            let decision = Decision::new(Verdict::Allowed, Source::Other, 1, states);
            if polls < 3 {
                Poll::Pending
            } else {
                Poll::Ready(Ok(decision))
            }
        }))
    };
    for (is_shadow_late, rules) in [
        (false, vec![of_one("a", 9)]),
        (false, tried(9, 9)),
        (true, tried(9, 9)),
        (true, vec![of_one("a", 9).into_shadow()]),
    ] {
        let store = Stub::answering(MemoryStore::new(), move |take| {
            (is_of_shadow(take) == is_shadow_late).then(later)
        });
        let limits = limits(rules, store);
        let app = both(&limits, |layer| layer);
        let mut request = Box::pin(status(&app, "/"));
        let mut context = Context::from_waker(Waker::noop());
        let answer = (0..100).find_map(|_| match request.as_mut().poll(&mut context) {
            Poll::Ready(status) => Some(status),
            Poll::Pending => None,
        });
        assert_eq!(answer, Some(200), "late for the shadow: {is_shadow_late}");
    }
}

/// A memory store of few keys: a shadow rule takes no room that an enforced key needs.
#[tokio::test]
async fn a_shadow_rule_takes_no_room_in_a_small_store() {
    let all = |rules: Vec<Rule>| async move {
        let limits = limits(rules, MemoryStore::with_max_keys(8));
        let app = both(&limits, |layer| layer.key(tenant));
        let mut statuses = Vec::new();
        for number in 0..8 {
            statuses.push(status(&app, &format!("/?{number}")).await);
        }
        statuses
    };
    let plain = all(vec![of_one("a", 1)]).await;
    assert_eq!(plain, [200; 8]);
    assert_eq!(all(tried(1, 1)).await, plain, "beside a trial");
}

/// As many callers as may be in flight: a shadow rule takes no caller's place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shadow_rule_takes_no_place_in_flight() {
    let (_server, _proxy, store) = kit::far(millis(6)).await;
    let all = |rules: Vec<Rule>| {
        let store = store.clone();
        async move {
            let limits = limits(rules, Resilient::bare(store).in_flight(4));
            let app = both(&limits, |layer| layer);
            let mut clients = JoinSet::new();
            for _ in 0..4 {
                let app = app.clone();
                clients.spawn(async move {
                    let mut failed = 0;
                    for _ in 0..50 {
                        failed += u64::from(status(&app, "/").await == 503);
                    }
                    failed
                });
            }
            clients.join_all().await.into_iter().sum::<u64>()
        }
    };
    assert_eq!(all(vec![of_one("a", 1_000_000)]).await, 0);
    let beside = all(tried(1_000_000, 1_000_000)).await;
    assert_eq!(beside, 0, "of 200 requests beside a trial");
}
