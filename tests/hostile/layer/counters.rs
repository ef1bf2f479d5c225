//! Counters are added once: what they say agrees with what clients saw, whatever clients, callbacks
//! and stores do.

use std::hash::Hash;

use kit::counters as of;
use kit::http::send;
use kit::random;

use crate::*;
use DecisionOutcome::{Allowed, Never, ShadowDenied};

const WINDOW: Duration = Duration::from_secs(10);

fn limits(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Limits {
    Limits::new(Rules::from_iter(rules)).store(store)
}

/// The requests that were decided about, whatever became of them.
fn decided(rule: &RuleSnapshot) -> u64 {
    let outcomes = DecisionOutcome::ALL.into_iter();
    outcomes.map(|outcome| rule.decisions(outcome)).sum()
}

fn errors(rule: &RuleSnapshot) -> u64 {
    rule.errors().map(|(_, number)| number).sum()
}

/// The number at this place of the query, as in `/?1,20`.
fn number(head: &Parts, at: usize) -> u64 {
    let query = head.uri.query().unwrap_or_default();
    let number = query.split(',').nth(at).expect("a number");
    number.parse().expect("a number")
}

/// A degrade callback that tells denials of this layer apart.
fn tell(layer: u16) -> impl Fn(Denied) -> std::future::Ready<StatusCode> {
    move |denied| {
        let never = denied.decision.verdict() == Verdict::Never;
        let status = layer + u16::from(never);
        std::future::ready(StatusCode::from_u16(status).expect("a status"))
    }
}

/// Adds these numbers to what stands there.
fn add<K: Eq + Hash>(sums: &Mutex<HashMap<K, [u64; 3]>>, key: K, numbers: [u64; 3]) {
    let mut sums = sums.lock().expect("no panic");
    let sum = sums.entry(key).or_default();
    (0..3).for_each(|at| sum[at] += numbers[at]);
}

const OUTER: u16 = 450;
const INNER: u16 = 460;

/// Two layers of one path around a third one, asked by many at once, with costs from 0 to the
/// largest number, and charges that are refunded by several callers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_counters_agree() {
    let (_server, _proxy, store) = kit::far(millis(4)).await;
    let quick = Policy::new("quick", quota(700, HOUR));
    let daily = Policy::new("daily", quota(900, 24 * HOUR));
    let outer = Rule::with_policies("outer", [quick, daily]).expect("valid");
    let limits = limits([outer, owned_rule("inner", 300, HOUR)], store);
    let inner = limits.layer("inner").cost(|head| number(head, 1));
    let inner = inner.degrade(tell(INNER));
    let nested = || {
        let outer = limits.layer("outer").cost(|head| number(head, 0));
        app(inner.clone()).layer(outer.degrade(tell(OUTER)))
    };
    // Requests and their costs by status; refunds and their units by path.
    let seen = Arc::new(Mutex::new(HashMap::<u16, [u64; 3]>::new()));
    let refunded = Arc::new(Mutex::new(HashMap::<String, [u64; 3]>::new()));
    let mut clients = JoinSet::new();
    for seed in 0..32 {
        let app = nested();
        let (seen, refunded) = (Arc::clone(&seen), Arc::clone(&refunded));
        clients.spawn(async move {
            let mut random = fastrand::Rng::with_seed(random::seed(seed));
            let costs = [0, 1, 1, 2, 3, 11, 701, u64::MAX];
            for _ in 0..40 {
                let (a, b) = (*random.choice(&costs).expect("some"), random.u64(0..5));
                let b = if b == 4 { u64::MAX } else { b };
                let response = send(&app, &format!("/?{a},{b}")).await;
                let status = response.status().as_u16();
                let is_outside = (OUTER..INNER).contains(&status);
                let outer = if is_outside { 0 } else { a };
                let inner = if status == 200 { b } else { 0 };
                add(&seen, status, [1, outer, inner]);
                let charges = Charges::from_extensions(response.extensions());
                for charge in charges.iter().filter(|_| random.u8(..) < 90) {
                    let asked = (0..3).map(|_| {
                        let charge = charge.clone();
                        tokio::spawn(async move { charge.refund().await.expect("an answer") })
                    });
                    for asked in asked.collect::<Vec<_>>() {
                        let units = asked.await.expect("no panic");
                        let path = charge.take().rule().path().to_owned();
                        add(&refunded, path, [u64::from(units > 0), units, 0]);
                    }
                }
            }
        });
    }
    clients.join_all().await;
    let (seen, refunded) = (
        seen.lock().expect("no panic"),
        refunded.lock().expect("no panic"),
    );
    let seen = |status| seen.get(&status).copied().unwrap_or_default();
    let (outer, inner) = (of(&limits, "outer"), of(&limits, "inner"));
    let through = [200, INNER, INNER + 1].map(seen);
    assert!(through.iter().all(|numbers| numbers[0] > 0) && seen(OUTER)[0] > 0);
    let counted = |rule: &RuleSnapshot| {
        [Allowed, DecisionOutcome::Denied, Never, ShadowDenied]
            .map(|outcome| rule.decisions_by(outcome, Source::Redis))
    };
    let outer_allowed = through.iter().map(|numbers| numbers[0]).sum();
    let expected = [outer_allowed, seen(OUTER)[0], seen(OUTER + 1)[0], 0];
    assert_eq!(counted(&outer), expected);
    let expected = [seen(200)[0], seen(INNER)[0], seen(INNER + 1)[0], 0];
    assert_eq!(counted(&inner), expected);
    let units: u64 = through.iter().map(|numbers| numbers[1]).sum();
    assert_eq!(outer.units, units);
    assert_eq!(inner.units, seen(200)[2]);
    for rule in [&outer, &inner] {
        let expected = refunded[&*rule.path];
        assert_eq!([rule.refunds, rule.refunded_units, 0], expected);
        assert_eq!((errors(rule), rule.waiting, rule.proceeded), (0, 0, 0));
        assert_eq!(rule.latency.count(), decided(rule), "one answer each");
    }
    // Denials by quota: those without room, so each denial has one, and the first is tighter.
    let denials = &outer.denials;
    assert_eq!([&*denials[0].0, &*denials[1].0], ["quick", "daily"]);
    let denied = outer.decisions(DecisionOutcome::Denied) + outer.decisions(Never);
    let (quick, daily) = (denials[0].1, denials[1].1);
    assert!(quick <= denied && daily <= denied, "{denials:?}");
    assert!(quick + daily >= denied, "{denials:?} of {denied}");
    assert_eq!(limits.snapshot().unmatched, 0);
}

fn memory() -> MemoryStore {
    MemoryStore::new().tokio_clock()
}

/// What a store of somebody else may answer: no quotas, or other quotas.
#[tokio::test]
async fn decisions_that_do_not_fit_the_rule() {
    let retry_after = Duration::MAX;
    let denied = Verdict::Denied { retry_after };
    for quotas in [0, 1, 3, 40] {
        for verdict in [Verdict::Allowed, denied, Verdict::Never] {
            let states = std::iter::repeat_n(QuotaState::new(u64::MAX, Duration::MAX), quotas);
            let decision = Decision::new(verdict, Source::Other, 1, states);
            let store = Stub::answering(MemoryStore::new(), move |_| {
                Some(StoreFuture::ready(Ok(decision.clone())))
            });
            let limits = limits([per_hour("a", 2)], store);
            let app = app(limits.layer("a").wait(millis(10)));
            let expected = [429, 200][usize::from(verdict == Verdict::Allowed)];
            assert_eq!(status(&app, "/").await, expected);
            let a = of(&limits, "a");
            assert_eq!(decided(&a), 1, "{quotas} {verdict:?}: {a:?}");
            assert_eq!((a.waiting, errors(&a)), (0, 0));
        }
    }
}

/// Every request that reaches the handler was allowed or proceeded, every other one was denied or
/// failed; whichever callbacks, policies and fallbacks there are.
#[tokio::test]
async fn every_request_is_counted_by_one_outcome() {
    let said: [Option<fn() -> Recovery>; 5] = [
        None,
        Some(|| Recovery::Proceed),
        Some(|| Recovery::Propagate),
        Some(|| Recovery::Respond(Response::new(Body::empty()))),
        Some(|| panic!("an error callback of a test")),
    ];
    let policies = [OnError::Respond, OnError::Proceed, OnError::Fallback];
    let policies = policies.into_iter().map(Some).chain([None]);
    let cases = policies.flat_map(|policy| {
        let said = said.iter().enumerate();
        said.flat_map(move |said| [(policy, said, false), (policy, said, true)])
    });
    let mut wrong = Vec::new();
    for (policy, (at, said), has_fallback) in cases {
        let case = format!("{policy:?} {at} {has_fallback}");
        let failing = Stub::failing(StoreErrorKind::Refused);
        let store: Arc<dyn Store> = match has_fallback {
            true => Arc::new(Resilient::bare(failing).fallback(Share::of_processes(1))),
            false => Arc::new(failing),
        };
        let mut rule = per_hour("a", 2);
        if let Some(policy) = policy {
            rule = rule.with_on_error(policy);
        }
        let limits = limits([rule], store);
        let denies = async |_: Denied| StatusCode::IM_A_TEAPOT;
        let mut layer = limits.layer("a").degrade(denies);
        if let Some(said) = *said {
            layer = layer.on_error(AlsoWithFallback(move |_: Failed| async move { said() }));
        }
        let app = Router::new().route("/", get(async || StatusCode::ACCEPTED).layer(layer));
        let statuses = kit::http::statuses(&app, "/", "", 5).await;
        let number = |it: u16| statuses.iter().filter(|status| **status == it).count() as u64;
        let a = of(&limits, "a");
        let seen = [202, 418].map(number);
        let passed = a.decisions(Allowed) + a.proceeded;
        let told = [passed, a.decisions(DecisionOutcome::Denied)];
        if told != seen {
            wrong.push(format!("{case}: {told:?}, not {seen:?}"));
        }
        assert_eq!(a.store_errors(StoreErrorKind::Refused), 5, "{case}: {a:?}");
        assert_eq!(errors(&a), 5, "{case}: {a:?}");
        assert_eq!(a.units, a.decisions(Allowed), "{case}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A rule whose quotas get new names again and again does not fill the memory, and its snapshot has
/// the names of today.
#[test]
fn names_that_change_all_the_time() {
    let runtime = still_runtime();
    let limits = limits([per_hour("a", 0)], memory());
    let app = app(limits.layer("a"));
    let mut rounds = 0..;
    let mut replace = |times: usize| {
        for round in rounds.by_ref().take(times) {
            let name = format!("{round}-{}", "n".repeat(500));
            let policy = Policy::new(&name, quota(0, HOUR));
            let rule = Rule::with_policies("a", [policy]).expect("valid");
            replace(&limits, [rule]);
            assert_eq!(runtime.block_on(status(&app, "/")), 429);
            let a = of(&limits, "a");
            assert_eq!(a.denials, [(name, 1)]);
        }
    };
    replace(1_000);
    let memory = allocation_counter::measure(|| replace(4_000));
    let bytes = memory.bytes_current;
    assert!(bytes < 500_000, "{bytes} bytes for 4,000 names");
}

/// More paths than are remembered: each layer goes on to limit and to count.
#[tokio::test]
async fn ten_thousand_and_one_paths() {
    let paths: Vec<_> = (0..10_050).map(|number| format!("p{number:05}")).collect();
    let rules = paths.iter().map(|path| owned_rule(path, 1, HOUR));
    let limits = limits(rules, MemoryStore::new());
    let layers: Vec<_> = paths.iter().map(|path| limits.layer(path)).collect();
    for (path, layer) in paths.iter().zip(&layers).skip(9_900) {
        let app = app(layer.clone());
        assert_eq!(status(&app, "/").await, 200, "{path}");
        assert_eq!(status(&app, "/").await, 429, "{path}");
        let counted = layer.snapshot().expect("a rule");
        assert_eq!(counted.path, *path);
        let outcomes = [Allowed, DecisionOutcome::Denied].map(|it| counted.decisions(it));
        assert_eq!(outcomes, [1, 1], "{path}");
        assert_eq!(counted.denials, [(path.clone(), 1)]);
    }
    let snapshot = limits.snapshot();
    let rules = snapshot.rules;
    assert!((10_000..=10_050).contains(&rules.len()), "{}", rules.len());
    assert!(rules.is_sorted_by_key(|rule| &rule.path));
    assert!(limits.paths_without_rule().is_empty());
}

/// Which of many quotas denied? Those without room, whatever their order is in each round. Some
/// have no room at all, the others have much. They move, or they come and go, as when an edit of
/// the file is taken back: numbers only grow.
#[tokio::test(start_paused = true)]
async fn denials_keep_their_names_while_quotas_move() {
    for do_some_leave in [false, true] {
        let names: Vec<_> = (0..16).map(|number| format!("q{number}")).collect();
        let mut random = fastrand::Rng::with_seed(random::seed(7));
        let limits = limits([owned_rule("a", 1, WINDOW)], memory());
        let app = app(limits.layer("a"));
        let mut expected = HashMap::<String, u64>::new();
        for round in 0..200 {
            let mut max = || if random.bool() { 0 } else { 1_000_000 };
            let quotas = names.iter().map(|name| (name.clone(), max()));
            let mut quotas: Vec<_> = quotas.collect();
            random.shuffle(&mut quotas);
            if do_some_leave {
                quotas.truncate(random.usize(1..=16));
            }
            let policy = |(at, (name, max)): (usize, &(String, u64))| {
                Policy::new(name, quota(*max, WINDOW + millis(at as u64)))
            };
            let policies = quotas.iter().enumerate().map(policy);
            let rule = Rule::with_policies("a", policies);
            replace(&limits, [rule.expect("valid")]);
            let full: Vec<_> = quotas.iter().filter(|(_, max)| *max == 0).collect();
            let status = status(&app, "/").await;
            assert_eq!(status, if full.is_empty() { 200 } else { 429 });
            for (name, _) in full {
                *expected.entry(name.clone()).or_default() += 1;
            }
            let denials = of(&limits, "a").denials;
            let now = |name: &str| expected.get(name).copied().unwrap_or_default();
            let wanted = quotas.iter().map(|(name, _)| (name.clone(), now(name)));
            assert_eq!(denials, wanted.collect::<Vec<_>>(), "round {round}");
            advance(2 * WINDOW).await;
        }
    }
}

/// Two orders of the same quotas in turns, while threads are denied by one or the other: no denial
/// is lost, and none is told of the wrong quota.
#[test]
fn denials_while_rules_are_replaced() {
    let rule = |full: &str, free: &str| {
        let (none, much) = (quota(0, HOUR), quota(1_000_000, 2 * HOUR));
        let policies = [Policy::new(full, none), Policy::new(free, much)];
        Rule::with_policies("a", policies).expect("valid")
    };
    let limits = Limits::new([rule("x", "y")]);
    let is_over = AtomicU64::new(0);
    let seen = std::thread::scope(|scope| {
        let clients = (0..3).map(|_| {
            scope.spawn(|| {
                let runtime = still_runtime();
                let mut seen = [0_u64; 2];
                let by = |denied: Denied| {
                    let name = denied.rule.policies()[0].name().to_owned();
                    async move { (StatusCode::TOO_MANY_REQUESTS, [("x-by", name)]) }
                };
                let app = app(limits.layer("a").degrade(by));
                for _ in 0..4_000 {
                    let response = runtime.block_on(send(&app, "/"));
                    seen[usize::from(response.headers()["x-by"] == "y")] += 1;
                }
                seen
            })
        });
        let clients: Vec<_> = clients.collect();
        scope.spawn(|| {
            while is_over.load(Ordering::Relaxed) == 0 {
                replace(&limits, [rule("y", "x")]);
                replace(&limits, [rule("x", "y")]);
            }
        });
        let clients = clients.into_iter();
        let seen = clients.map(|client| client.join().expect("no panic"));
        let seen = seen.fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
        is_over.store(1, Ordering::Relaxed);
        seen
    });
    assert!(seen.iter().all(|number| *number > 0), "{seen:?}");
    // Numbers of what denied last are shown under today's names.
    replace(&limits, [rule("x", "y")]);
    let a = of(&limits, "a");
    assert_eq!(a.decisions(Never), 12_000);
    let expected = [("x".to_owned(), seen[0]), ("y".to_owned(), seen[1])];
    assert_eq!(a.denials, expected);
}
