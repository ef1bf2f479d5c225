//! Shadow rules cost nobody anything: not a different answer, not a wait, not a task, not a key
//! that stays.

use std::task::Waker;

use kit::http::send;
use kit::per_hour as of_one;
use kit::random;
use tokio::runtime::Handle;

use crate::*;
use DecisionOutcome::{Allowed, Never, ShadowDenied};

fn of_quotas(path: &str, quotas: &[(u64, Duration)]) -> Rule {
    let quotas = quotas.iter().map(|(max, window)| quota(*max, *window));
    Rule::new(path, quotas).expect("a valid rule")
}

/// The rule `a` with the candidate `a`, by the hour.
fn tried(max: u64, candidate: u64) -> Rule {
    of_one("a", max).with_shadow(of_one("a", candidate))
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new(Rules::from_iter([rule])).store(store)
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

fn is_of_shadow(take: &Take) -> bool {
    take.rule().is_shadow()
}

/// What a client sees of a response.
type Seen = (StatusCode, HeaderMap, Vec<u8>);

async fn seen(response: Response<Body>) -> Seen {
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

fn clocked() -> ManualClock {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_123);
    clock
}

/// The statuses of so many requests at once, each in a task of its own.
async fn statuses_at_once(app: &Router, targets: impl Iterator<Item = String>) -> Vec<u16> {
    let requests = targets.map(|target| {
        let app = app.clone();
        tokio::spawn(async move { status(&app, &target).await })
    });
    let answers = join_all(requests.collect::<Vec<_>>()).await.into_iter();
    answers.map(|answer| answer.expect("no panic")).collect()
}

/// Random histories: each answer, each decision and each refund is as without a candidate, whatever
/// the candidate is.
async fn equal_histories(seeds: std::ops::Range<u64>, redis: Option<&Redis>) {
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(random::seed(seed));
        let rule = of_quotas("a", &any_quotas(&mut random, 3));
        let rule = rule.with_algorithm(any_algorithm(&mut random));
        let candidate = of_quotas("a", &any_quotas(&mut random, 16));
        let candidate = candidate.with_algorithm(any_algorithm(&mut random));
        let clock = clocked();
        let store: Arc<dyn Store> = match redis {
            None => Arc::new(MemoryStore::new().clock(clock.clone())),
            Some(server) => Arc::new(connect(&server.url, PATIENT).await.clock(clock.clone())),
        };
        let plain = rule.clone().with_prefix(format!("plain{seed}:"));
        let tried = rule
            .with_prefix(format!("tried{seed}:"))
            .with_shadow(candidate.with_prefix(format!("tried{seed}:")));
        let headers = *random
            .choice([Headers::Draft11, Headers::Draft7, Headers::Legacy].as_slice())
            .expect("some");
        // The memory store has no prefix for a key: each has a store of its own.
        let other: Arc<dyn Store> = match redis {
            None => Arc::new(MemoryStore::new().clock(clock.clone())),
            Some(_) => Arc::clone(&store),
        };
        let make = |rule, store| {
            let limits = limits(rule, store);
            let layer = limits.layer("a").key(tenant).cost(cost).headers(headers);
            (app(layer), limits)
        };
        let (plain, tried) = (make(plain, other), make(tried, store));
        let (mut asked, mut charges) = (0, Vec::new());
        for step in 0..60 {
            let tenant = random.choice(["x", "y", "z", ""]).expect("some");
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
        assert!(two.decisions(ShadowDenied) <= asked, "seed {seed}");
    }
}

#[tokio::test]
async fn histories_are_as_without_a_candidate() {
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
        StoreFuture::boxed(async {
            sleep(HOUR).await;
            Err(refused())
        })
    }),
    ("says nothing", || {
        StoreFuture::ready(Err(StoreError::new(StoreErrorKind::Protocol, "")))
    }),
    // As a panic of its key or of its cost.
    ("panics late", || {
        StoreFuture::boxed(async {
            yield_now().await;
            panic!("a store of a test")
        })
    }),
    ("panics", || {
        StoreFuture::boxed(async { panic!("a store of a test") })
    }),
    ("panics when it is asked", || panic!("a store of a test")),
];

async fn bad_answers(name: &str, answer: Answer) {
    for (rule, expected) in [
        (tried(3, 1), [200, 200, 200, 429, 429]),
        (of_one("a", 1).into_shadow(), [200; 5]),
    ] {
        let store = Stub::answering(MemoryStore::new(), move |take| {
            is_of_shadow(take).then(answer)
        });
        let limits = limits(rule, store);
        let layer = limits.layer("a");
        let app = app(layer.on_error(async |_: Failed| StatusCode::IM_A_TEAPOT));
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

/// No callback, no field, no extension: not for the client, not for the handler.
#[tokio::test]
async fn a_shadow_rule_shows_nothing_in_nested_layers() {
    let rules = [
        of_one("outer", 0).into_shadow(),
        of_one("middle", 2).with_shadow(of_one("middle", 0)),
        of_one("inner", 0).into_shadow(),
    ];
    let limits = Limits::new(rules).store(MemoryStore::new());
    let handler = async |request: Request<Body>| {
        let charges = Charges::from_extensions(request.extensions());
        assert_eq!(charges.len(), 1);
        let decision = Decision::from_extensions(request.extensions()).expect("the middle's");
        assert!(decision.is_allowed());
    };
    let quiet = |path| {
        let degrade = async |_: Denied| -> StatusCode { unreachable!("it never denies") };
        let failing = async |_: Failed| -> Recovery { unreachable!("it never fails") };
        let layer = limits.layer(path).degrade(degrade);
        layer.on_error(failing).wait(HOUR)
    };
    let routes = Router::new().route("/", any(handler).layer(quiet("inner")));
    let app = routes.layer(limits.layer("middle")).layer(quiet("outer"));
    for expected in [200, 200, 429] {
        let response = send(&app, "/").await;
        assert_eq!(response.status().as_u16(), expected);
        let policy = &response.headers()["ratelimit-policy"];
        assert_eq!(policy, "\"middle\";q=2;w=3600");
        let decision = Decision::from_extensions(response.extensions()).expect("the middle's");
        assert_eq!(decision.is_allowed(), expected == 200);
    }
    let snapshot = limits.snapshot();
    let denied = |path| snapshot.rule(path).expect("in use").decisions(ShadowDenied);
    assert_eq!(["outer", "middle", "inner"].map(denied), [3, 3, 2]);
}

/// A key that is missing is no decision for the rule, and no question for its candidate.
#[tokio::test]
async fn keys_that_are_missing_or_panic() {
    let store = Stub::listening(MemoryStore::new());
    let limits_of = |rule| limits(rule, store.clone());
    let plain = limits_of(of_one("a", 5));
    let tried = limits_of(of_one("a", 5).with_shadow(of_one("a", 0)));
    for target in ["/?,1", "/?panic,1"] {
        let [one, two] = [&plain, &tried].map(|limits| app(limits.layer("a").key(tenant)));
        let (one, two) = (send(&one, target).await, send(&two, target).await);
        assert!(!one.status().is_success());
        assert_eq!(seen(one).await, seen(two).await);
    }
    assert_eq!(store.asked(|_| true), 0);
    let alone = limits_of(of_one("a", 0).into_shadow());
    for target in ["/?,1", "/?panic,1"] {
        let app = app(alone.layer("a").key(tenant));
        assert_eq!(status(&app, target).await, 200, "{target}");
    }
    assert_eq!(store.asked(|_| true), 0);
    assert_eq!(counted(&alone).decisions(ShadowDenied), 0);
}

/// A request that waits asks for itself again and again, and its candidate once.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_asks_its_candidate_once() {
    let store = Stub::listening(MemoryStore::new().tokio_clock());
    let window = Duration::from_secs(10);
    let rule = of_quotas("a", &[(1, window)]).with_shadow(of_quotas("a", &[(2, window)]));
    let limits = limits(rule, store.clone());
    let app = app(limits.layer("a").wait(HOUR));
    let targets = (0..5).map(|_| "/".to_owned());
    assert_eq!(statuses_at_once(&app, targets).await, [200; 5]);
    assert!(store.asked(|take| !is_of_shadow(take)) > 10);
    assert_eq!(store.asked(is_of_shadow), 5);
    let repeats = store.asked(|take| is_of_shadow(take) && take.is_repeat());
    assert_eq!(repeats, 0);
    let a = counted(&limits);
    assert_eq!((a.decisions(Allowed), a.decisions(ShadowDenied)), (5, 3));
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
        let candidate = rule.clone().with_shadow(rule.clone());
        let shadow = candidate.shadow().expect("a candidate");
        assert_eq!(shadow.id(), rule.clone().into_shadow().id(), "{path}");
        for rule in [&Arc::new(rule), shadow] {
            for key in &keys {
                let name = Take::new(Arc::clone(rule), key.clone()).name("p:");
                let is_new = names.insert(name.clone());
                assert!(is_new, "{name} twice, by {path} {algorithm:?}");
            }
        }
    }
}

/// The candidate is asked with the rule's key and cost, not with its own, and not at all beside a
/// rule that is a shadow itself.
#[tokio::test]
async fn what_a_candidate_is_asked() {
    let foreign = |_: &Parts| -> Result<Key, KeyError> { panic!("not the rule's key") };
    let candidate = of_one("b", 4).with_cost(3).with_key(foreign);
    let candidate = candidate.with_shadow(of_one("a", 0));
    let rule = of_one("a", 9).with_cost(2).with_key(tenant);
    let rule = rule.with_shadow(candidate);
    for (rule, asked) in [(rule.clone(), [1, 1]), (rule.into_shadow(), [0, 1])] {
        let store = Stub::listening(MemoryStore::new());
        let limits = limits(rule, store.clone());
        assert_eq!(status(&app(limits.layer("a")), "/?alice").await, 200);
        let is_right = |take: &Take| {
            (take.cost(), take.key().as_str(), take.rule().path()) == (2, "alice", "a")
        };
        let of = |shadow| store.asked(|take| is_right(take) && is_of_shadow(take) == shadow);
        assert_eq!([of(false), of(true)], asked);
        assert_eq!(store.asked(|_| true), asked[0] + asked[1]);
    }
}

/// A store whose answers to candidates never come: what waits for them is given up some time.
#[tokio::test(start_paused = true)]
async fn no_task_waits_for_ever() {
    let store = Stub::answering(MemoryStore::new(), |take| {
        is_of_shadow(take).then(|| StoreFuture::boxed(std::future::pending()))
    });
    let limits = limits(tried(1_000_000, 1), store);
    let app = app(limits.layer("a"));
    for _ in 0..1_000 {
        assert_eq!(status(&app, "/").await, 200);
    }
    drop((app, limits));
    sleep(HOUR).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

/// Without a tokio runtime, a store may still answer later: with a candidate, too.
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
    for (is_shadow_late, rule) in [
        (false, of_one("a", 9)),
        (false, tried(9, 9)),
        (true, tried(9, 9)),
        (true, of_one("a", 9).into_shadow()),
    ] {
        let store = Stub::answering(MemoryStore::new(), move |take| {
            (is_of_shadow(take) == is_shadow_late).then(later)
        });
        let limits = limits(rule, store);
        let app = app(limits.layer("a"));
        let mut request = Box::pin(status(&app, "/"));
        let mut context = Context::from_waker(Waker::noop());
        let answer = (0..100).find_map(|_| match request.as_mut().poll(&mut context) {
            Poll::Ready(status) => Some(status),
            Poll::Pending => None,
        });
        assert_eq!(answer, Some(200), "late for the shadow: {is_shadow_late}");
    }
}

/// A memory store of few keys: a candidate takes no room that an enforced key needs.
#[tokio::test]
async fn a_candidate_takes_no_room_in_a_small_store() {
    let all = |rule: Rule| async move {
        let limits = limits(rule, MemoryStore::with_max_keys(8));
        let app = app(limits.layer("a").key(tenant));
        let mut statuses = Vec::new();
        for number in 0..8 {
            statuses.push(status(&app, &format!("/?{number}")).await);
        }
        statuses
    };
    let plain = all(of_one("a", 1)).await;
    assert_eq!(plain, [200; 8]);
    assert_eq!(all(tried(1, 1)).await, plain, "beside a candidate");
}

/// As many callers as may be in flight: a candidate takes no caller's place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_takes_no_place_in_flight() {
    let (_server, _proxy, store) = kit::far(millis(6)).await;
    let all = |rule: Rule| {
        let store = store.clone();
        async move {
            let limits = limits(rule, Resilient::bare(store).in_flight(4));
            let app = app(limits.layer("a"));
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
    assert_eq!(all(of_one("a", 1_000_000)).await, 0);
    let beside = all(tried(1_000_000, 1_000_000)).await;
    assert_eq!(beside, 0, "of 200 requests beside a candidate");
}
