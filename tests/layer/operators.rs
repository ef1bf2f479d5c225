//! What an operator does to a key from code: blocked, let through, raised.

use axum::routing::get;
use tidegate::layer::SubjectKeys;
use tidegate::limits::OperatorError;
use tidegate::rule::Factor;
use tidegate::store::{OperatorKey, OperatorKind};

use crate::*;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const END: Duration = Duration::ZERO;
/// In which all processes obey.
const OBEYS: Duration = Duration::from_secs(2);

/// Requests with these costs that are admitted now, one after the other.
async fn admitted(limits: &Limits, path: &str, key: impl Into<SubjectKeys> + Clone) -> u64 {
    let mut admitted = 0;
    while limits.check(path, key.clone()).await.is_ok() {
        admitted += 1;
        assert!(admitted < 1_000, "it does not end");
    }
    admitted
}

/// What an operator does, which nothing hinders.
#[track_caller]
fn done(change: impl IntoFuture<Output = Result<(), OperatorError>>) -> impl Future<Output = ()> {
    let line = std::panic::Location::caller();
    change
        .into_future()
        .map(move |it| it.unwrap_or_else(|error| panic!("{line}: {error}")))
}

/// A process of the fleet.
fn joined(rules: impl IntoIterator<Item = Rule>, store: &RedisStore) -> Limits {
    let limits = limits(rules, store.clone());
    limits.join_fleet();
    limits
}

/// A joint rule of a user and of all.
fn joint(user: u32, all: u32) -> Rule {
    let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(user));
    let all = Subject::new("all", Everyone).limit(Quota::per_hour(all));
    Rule::joint("joint", [user, all]).expect("valid")
}

async fn raise(limits: &Limits, key: impl Into<SubjectKeys>, factor: f64) {
    done(limits.raise("api", key, factor, HOUR, "ops").replace()).await;
}

async fn end_raise(limits: &Limits, key: impl Into<SubjectKeys>) {
    done(limits.raise("api", key, 1.0, END, "ops")).await;
}

/// What operators do to keys of requests and calls.
#[test]
fn scenes() {
    kit::call_steps::play_calls("tests/layer/operators.txt");
}

/// What was used counts on, and nobody is denied whom the plan would admit.
#[tokio::test(start_paused = true)]
async fn raise_and_back() {
    for algorithm in Algorithm::ALL {
        let mut numbers = Random::new(7);
        let rule = Rule::new("api", [quota(6, WINDOW), quota(9, 3 * WINDOW)]);
        let rule = rule.expect("valid").with_algorithm(algorithm);
        let [raised, plain] = [(); 2].map(|()| Limits::new([rule.clone()]));
        let mut asked = 0;
        for _ in 0..2_000 {
            match numbers.below(8) {
                0 => {
                    let factor = [1.0, 1.5, 3.0, 700.0][numbers.below(4) as usize];
                    raise(&raised, "alice", factor).await;
                }
                1 => end_raise(&raised, "alice").await,
                _ if plain.check("api", "alice").await.is_ok() => {
                    asked += 1;
                    let checked = raised.check("api", "alice").await;
                    assert!(checked.is_ok(), "{algorithm:?}, {asked}: {checked:?}");
                }
                _ => {}
            }
            advance(Duration::from_millis(numbers.below(20_000))).await;
        }
        assert!(asked > 400, "{asked}");
        // Used above the plan: denied until it has left.
        let limits = Limits::new([rule]);
        raise(&limits, "bob", 2.0).await;
        assert_eq!(admitted(&limits, "api", "bob").await, 12);
        end_raise(&limits, "bob").await;
        assert_eq!(admitted(&limits, "api", "bob").await, 0);
        advance(WINDOW).await;
        let expected = u64::from(algorithm == Algorithm::Gcra) * 3;
        assert_eq!(admitted(&limits, "api", "bob").await, expected);
        advance(3 * WINDOW).await;
        assert_eq!(admitted(&limits, "api", "bob").await, 6);
    }
}

/// A customer buys more for the month, and no more at a time: of one quota by its name, of the rule
/// and of its plans, in all processes.
#[tokio::test]
async fn a_raise_of_some_quotas_alone() {
    let month = |max| Policy::calendar(tidegate::rule::Period::MONTH, max).named("monthly");
    let policies = |max| {
        [
            Quota::per_hour(20).into(),
            month(max),
            Policy::concurrent(2),
        ]
    };
    let plan = Quotas::with_policies(policies(500)).expect("valid");
    let one = Rule::with_policies("api", policies(100)).expect("valid");
    let one = one.with_plan("pro", plan).expect("valid");
    let subject = |name: &str, policies: [Policy; 3]| {
        policies
            .into_iter()
            .fold(Subject::new(name, Everyone), Subject::limit)
    };
    let org = Subject::new("org", Everyone).limit(Policy::new("others", Quota::per_hour(900)));
    let joint = [subject("user", policies(100)), org];
    let joint = Rule::joint("api", joint).expect("valid");
    let stores = Stores::start().await;
    for (store, is_shared) in stores.all.iter().zip([false, true]) {
        for (name, rule, key) in [
            ("one", &one, SubjectKeys::from("acme")),
            ("joint", &joint, [("user", "acme")].into()),
        ] {
            let [here, there] = [(); 2].map(|()| {
                let rule = rule.clone().with_prefix(format!("{name}:"));
                Limits::new([rule]).store(Arc::clone(store))
            });
            let maxes = async |limits: &Limits, plan: &str| {
                let peeked = limits.peek("api", key.clone()).plan(plan).await;
                let peeked = peeked.expect("an answer").expect("a rule");
                let maxes = peeked.quotas().iter().map(QuotaState::max);
                maxes.take(3).collect::<Vec<_>>()
            };
            let raise = |factor| here.raise("api", key.clone(), factor, HOUR, "ops");
            let of_month = raise(3.0).note("ticket").only(["monthly"]);
            of_month.await.expect("it can be raised");
            assert_eq!(maxes(&here, "").await, [20, 300, 2], "{name}");
            if name == "one" {
                assert_eq!(maxes(&here, "pro").await, [20, 1_500, 2]);
            }
            if is_shared {
                there.join_fleet();
                let is_known = async || maxes(&there, "").await == [20, 300, 2];
                eventually("the other process obeys", is_known).await;
                let told = &there.operator_keys()[0];
                assert_eq!(told.note.as_deref(), Some("ticket"));
                assert_eq!(*told.only, [Box::from("monthly")]);
            }
            // Another raise replaces it.
            let other = raise(2.0).replace().await;
            other.expect("it can be raised");
            assert_eq!(maxes(&here, "").await, [40, 200, 4], "{name}");
            let unknown = raise(2.0).only(["monthly", "month"]).await;
            let unknown = unknown.expect_err("no such quota").to_string();
            let expected = "there is no quota \"month\" to raise, expected of [";
            assert!(unknown.starts_with(expected), "{unknown}");
            assert!(unknown.contains("\"monthly\""), "{unknown}");
            let none = raise(2.0).only([""; 0]).await;
            assert!(matches!(none, Err(OperatorError::NoQuota { .. })));
            if name == "joint" {
                // A quota of another subject would not be raised by this key.
                let other = raise(2.0).only(["others"]).await;
                assert!(matches!(other, Err(OperatorError::NoQuota { .. })));
            }
            let block = here.block("api", key.clone(), HOUR, "ops");
            let block = block.only(["monthly"]).await;
            assert!(matches!(block, Err(OperatorError::NoQuota { .. })));
            assert_eq!(maxes(&here, "").await, [40, 200, 4], "{name}");
            done(here.raise("api", key.clone(), 1.0, END, "ops")).await;
        }
    }
}

/// Of the second subject's bucket of eight four more are owed; of the first one's as before.
#[tokio::test]
async fn a_raise_of_the_second_subject_raises_what_may_be_owed() {
    let rule = joint(2, 4).with_algorithm(Algorithm::Gcra);
    let limits = limits([rule.with_owe_at_most(2)], MemoryStore::new());
    done(limits.raise("joint", [("all", "")], 2.0, HOUR, "ops")).await;
    let both = || [("user", "alice"), ("all", "")];
    let first = limits.check("joint", both()).await.expect("there is room");
    let charge = first.charge.expect("a charge");
    charge.settle(50).await.expect("an answer");
    let left = limits.peek("joint", both()).await.expect("an answer");
    let left = left.expect("a rule");
    let hours = left
        .quotas()
        .iter()
        .map(|it| it.reset_after().as_secs_f64() / 3_600.0);
    let units = hours
        .zip([2.0, 8.0])
        .map(|(hours, max)| (hours * max).round());
    assert_eq!(units.collect::<Vec<_>>(), [4.0, 12.0]);
}

/// Of one subject alone, at a time, owed, and by the share of a fallback.
#[tokio::test]
async fn a_raise_reaches_everything_that_has_a_max() {
    let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(2));
    let all = Subject::new("everyone", Everyone).limit(Quota::per_hour(9));
    let rule = Rule::joint("api", [user.limit(Policy::concurrent(1)), all]).expect("valid");
    let limits = limits([rule.with_owe_at_most(2)], MemoryStore::new());
    let alice = [("user", "alice")];
    raise(&limits, alice, 3.0).await;
    let both = [("user", "alice")];
    let first = limits.check("api", both).await.expect("there is room");
    let second = limits.check("api", both).await.expect("two at a time");
    let left = limits.peek("api", both).await.expect("an answer");
    let left = left.expect("a rule");
    let left: Vec<_> = left.quotas().iter().map(|it| it.remaining()).collect();
    assert_eq!(left, [4, 1, 9], "the other subject is as before");
    // Also where the other one is let through.
    let everyone = [("everyone", Key::default())];
    done(limits.let_through("api", everyone, HOUR, "")).await;
    drop(limits.check("api", both).await.expect("three at a time"));
    // Six may be owed above six; of the other subject two above nine.
    let charge = first.charge.expect("a charge");
    assert_eq!(charge.settle(50).await.expect("an answer").charged, 9);
    drop(second);
    end_raise(&limits, alice).await;
    assert!(limits.check("api", both).await.is_err());

    let rule = per_hour("api", 4).with_on_error(tidegate::rule::OnError::Fallback);
    let down = Resilient::new(Stub::down()).fallback(Share::of_processes(2));
    let limits = kit::limits([rule], down);
    raise(&limits, "alice", 3.0).await;
    assert_eq!(admitted(&limits, "api", "alice").await, 6);
    assert_eq!(admitted(&limits, "api", "bob").await, 2);
}

/// Who asks what is left is told of a raise, and of a block.
#[tokio::test(start_paused = true)]
async fn usage_tells_what_operators_do() {
    let limits = Limits::new([per_hour("api", 1)]).key(Header::new("x-user"));
    let usage = limits.usage(["api"]).expect("a key").handler();
    let usage = Router::new().route("/", get(usage));
    let shown = async || ask(&usage, "/", "x-user: alice").await.body;
    raise(&limits, "alice", 2.5).await;
    let (told, raised) = (
        shown().await,
        r#""raised":2.5,"policies":[{"name":"api","limit":2,"#,
    );
    assert!(
        told.contains(&format!("{raised}\"remaining\":2,")),
        "{told}"
    );
    done(limits.block("api", "alice", Duration::from_secs(60), "eve")).await;
    let told = shown().await;
    assert!(told.contains(r#""remaining":0,"reset":60"#), "{told}");
}

#[tokio::test(start_paused = true)]
async fn mistakes_say_what_was_expected() {
    let limits = limits([per_hour("api", 1), joint(1, 9)], MemoryStore::new());
    let said = |raised: Result<(), OperatorError>| raised.expect_err("a mistake").to_string();
    let of = async |path, factor, time| said(limits.raise(path, "alice", factor, time, "").await);
    let second = Duration::from_secs(1);
    let blocked = limits.block("api", "alice", OperatorKey::MAX_TIME * 2, "");
    let of_subject = limits.block("api", [("user", "alice")], HOUR, "");
    for (said, expected) in [
        (of("apy", 2.0, HOUR).await, "there is no rule \"apy\""),
        (of("api", f64::NAN, HOUR).await, "expected 0.01 to 1000"),
        (of("api", 0.0, HOUR).await, "the factor is 0"),
        (
            of("api", 2.0, 59 * second).await,
            "expected 60 to 7776000 seconds",
        ),
        (
            of("api", 2.0, Duration::MAX).await,
            "expected 60 to 7776000 seconds",
        ),
        (
            of("joint", 2.0, HOUR).await,
            "expected a key by the name of each: user",
        ),
        (said(blocked.await), "1 to 86400"),
        (said(of_subject.await), "expected its key alone"),
    ] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(limits.operator_keys().is_empty());
    limits.join_fleet();
    done(limits.raise("api", "alice", f64::NAN, END, "")).await;
    let outside = kit::limits([per_hour("api", 1)], MemoryStore::new());
    for limits in [outside, limits] {
        let blocked = std::thread::spawn(move || {
            let blocked = limits.block("api", "alice", HOUR, "");
            futures_util::FutureExt::now_or_never(blocked.into_future())
        });
        let blocked = blocked.join().expect("no panic").expect("no wait");
        assert!(matches!(blocked, Err(OperatorError::NoRuntime)));
    }
}

/// All processes, also one that comes later, one that lost the version, and while Redis is gone.
#[tokio::test]
async fn all_processes_raise_within_two_seconds() {
    let mut server = Redis::start();
    let store = store_on(&server).await;
    let process = || joined([per_hour("api", 1), per_hour("new", 1)], &store);
    let [here, there] = [process(), process()];
    let day = OperatorKey::MAX_RAISE_TIME;
    here.raise("api", "alice", 20.0, day, "ops")
        .await
        .expect("an answer");
    let obeys = async || left(&there, "api", "alice").await == 20;
    within(OBEYS, "it is raised", obeys).await;
    assert_eq!(there.operator_keys()[0].by.as_deref(), Some("ops"));
    // A foreign member hinders nobody.
    run(&server, "ZADD {CurrentLimiter:~fleet}:raised +inf junk");
    done(there.block("api", "bob", Duration::from_secs(1), "")).await;
    let times = ["raised", "version"]
        .map(|it| query::<i64>(&server, &format!("PTTL {{CurrentLimiter:~fleet}}:{it}")));
    let is_so = times[0] > 89 * 86_400_000 && times[1] > times[0];
    assert!(is_so, "{times:?}");
    run(&server, "DEL {CurrentLimiter:~fleet}:version");
    let late = process();
    let obeys = async || left(&late, "api", "alice").await == 20;
    within(OBEYS, "it comes later", obeys).await;
    server.kill();
    sleep(OBEYS).await;
    assert_eq!(late.operator_keys().len(), 1, "it stays in force");
    assert!(here.raise("api", "carol", 2.0, HOUR, "").await.is_err());
    server.restart();
    let ended = async || here.raise("api", "alice", 1.0, END, "").await.is_ok();
    eventually("it is ended", ended).await;
    within(OBEYS, "it ends", async || late.operator_keys().is_empty()).await;
}

/// A raise that would take something from another one of its key is refused, unless it replaces it.
#[tokio::test(start_paused = true)]
async fn a_raise_ends_no_better_one_unawares() {
    let rule = || {
        let [minute, month] = [("minute", WINDOW), ("month", 30 * DAY)];
        let policy = |(name, window)| Policy::new(name, quota(10, window));
        Rule::with_policies("api", [minute, month].map(policy)).expect("valid")
    };
    let all = &[][..];
    for (first, second, is_refused) in [
        ((5.0, 30 * DAY, all), (2.0, HOUR, all), true),
        ((5.0, 30 * DAY, all), (9.0, HOUR, all), true),
        ((5.0, HOUR, all), (2.0, 30 * DAY, all), true),
        ((5.0, HOUR, all), (5.0, HOUR, all), false),
        ((5.0, HOUR, all), (5.0, 30 * DAY, all), false),
        ((5.0, HOUR, all), (9.0, 2 * HOUR, all), false),
        ((5.0, DAY, &["month"]), (5.0, DAY, &["month"]), false),
        ((5.0, DAY, &["month"]), (5.0, DAY, all), false),
        ((5.0, DAY, &["month"]), (9.0, 2 * DAY, &["minute"]), true),
        (
            (5.0, DAY, &["month", "minute"]),
            (9.0, 2 * DAY, &["month"]),
            true,
        ),
        ((5.0, DAY, all), (9.0, 2 * DAY, &["month"]), true),
    ] {
        let limits = Limits::new([rule()]);
        let raise = |(factor, time, only): (f64, Duration, &[&str])| {
            let raise = limits.raise("api", "alice", factor, time, "ops");
            match only {
                [] => raise,
                only => raise.only(only.iter().copied()),
            }
        };
        let stands = || {
            let one = limits.operator_keys().remove(0);
            let only = Vec::from_iter(one.only.iter().map(|it| it.to_string()));
            (one.kind, one.time, only)
        };
        let is = |(factor, time, only): (f64, Duration, &[&str])| {
            let factor = Factor::new(factor).expect("in range");
            let only = Vec::from_iter(only.iter().map(|it| it.to_string()));
            (OperatorKind::Raised(factor), time, only)
        };
        done(raise(first)).await;
        let answer = raise(second).await;
        assert_eq!(answer.is_err(), is_refused, "{first:?} {second:?}");
        if let Err(error) = answer {
            assert_eq!(stands(), is(first));
            let said = error.to_string();
            assert!(said.contains("is raised by 5 for"), "{said}");
            assert!(first.2.iter().all(|name| said.contains(name)), "{said}");
            assert!(
                matches!(error, OperatorError::Stands(one) if one.by.as_deref() == Some("ops"))
            );
            done(raise(second).replace()).await;
        }
        assert_eq!(stands(), is(second));
        // Neither what has ended nor that of another key stands against it.
        done(raise((0.5, END, all))).await;
        done(raise((0.5, HOUR, all))).await;
        done(limits.raise("api", "bob", 0.25, HOUR / 2, "ops")).await;
        advance(HOUR).await;
        done(raise((0.25, HOUR / 2, all))).await;
    }
}

/// Of two processes that have not heard of each other yet the larger raise wins, then the longer.
#[tokio::test]
async fn of_two_processes_the_larger_raise_wins() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let [here, there] = [(); 2].map(|()| joined([per_hour("api", 1)], &store));
    let fleet = store.fleet().expect("a fleet");
    for (at, second, replaces, wins) in [
        (0, (2.0, 48), false, false),
        (1, (9.0, 1), false, true),
        (2, (5.0, 1), false, false),
        (3, (5.0, 48), false, true),
        (4, (5.0, 24), false, true),
        (5, (2.0, 1), true, true),
    ] {
        let raise = |(factor, hours): (f64, u32), replaces| OperatorKey {
            kind: OperatorKind::Raised(Factor::new(factor).expect("in range")),
            path: "api".into(),
            key: format!("key{at}").into(),
            by: Some("ops".into()),
            note: None,
            only: [].into(),
            replaces,
            time: hours * HOUR,
        };
        let stands = async |one| {
            let stands = fleet.set_key(&one).await.expect("an answer");
            stands.expect("there is room").kind
        };
        let (first, second) = (raise((5.0, 24), false), raise(second, replaces));
        assert_eq!(stands(first.clone()).await, first.kind);
        let kind = if wins { second.kind } else { first.kind };
        assert_eq!(stands(second).await, kind, "{at}");
    }
    done(here.raise("api", "alice", 5.0, HOUR, "ops")).await;
    let refused = there.raise("api", "alice", 2.0, 2 * HOUR, "").await;
    let is_told = |it: &OperatorKey| it.by.as_deref() == Some("ops");
    assert!(matches!(&refused, Err(OperatorError::Stands(it)) if is_told(it)));
    let obeys = async || left(&there, "api", "alice").await == 5;
    within(OBEYS, "the larger stands", obeys).await;
    assert_eq!(left(&here, "api", "alice").await, 5);
}

/// Nothing ends, for whoever changes something next, while the server's clock is a little behind
/// what it was; what is a day further off than it may be is damage.
#[tokio::test]
async fn a_clock_that_steps_back_ends_nothing() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let process = || joined([per_hour("api", 1)], &store);
    let [here, there] = [process(), process()];
    let (day, longest) = (OperatorKey::MAX_TIME, OperatorKey::MAX_RAISE_TIME);
    done(here.block("api", "alice", day, "")).await;
    done(here.let_through("api", "bob", day, "")).await;
    done(here.raise("api", "carol", 20.0, longest, "")).await;
    let later = |list: &str, key: &str, millis: u64| {
        let list = format!("{{CurrentLimiter:~fleet}}:{list}");
        let member: Vec<String> = query(&server, &format!("ZRANGE {list} 0 -1"));
        let member = member.iter().find(|it| it.starts_with(key));
        let mut step = redis::cmd("ZINCRBY");
        step.arg(&list)
            .arg(millis)
            .arg(member.expect("it is there"));
        step.exec(&mut server.connection()).expect("an answer");
    };
    for (list, key) in [
        ("blocked", "alice"),
        ("let-through", "bob"),
        ("raised", "carol"),
    ] {
        later(list, key, 10_000);
    }
    done(there.block("api", "dave", day, "")).await;
    later("blocked", "dave", 86_400_000 + 10_000);
    done(there.block("api", "erin", HOUR, "")).await;
    done(there.let_through("api", "frank", HOUR, "")).await;
    done(there.raise("api", "grace", 2.0, HOUR, "")).await;
    let late = process();
    let known = async || late.operator_keys().len() == 6;
    within(OBEYS, "a process that comes later knows them", known).await;
    for key in late.operator_keys() {
        let is_so = key.time <= key.kind.max_time() && &*key.key != "dave";
        assert!(is_so, "{key:?}");
    }
}

/// Each change says that there is no timer, also one whose process is watched from elsewhere; and a
/// process joins once it is asked where there is one.
#[test]
fn a_runtime_without_a_timer_is_told_each_time() {
    let server = Redis::start();
    let [timed, untimed] = [true, false].map(|is_timed| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_io();
        let runtime = match is_timed {
            true => runtime.enable_time(),
            false => runtime,
        };
        runtime.build().expect("a runtime")
    });
    let store = timed.block_on(store_on(&server));
    let limits = limits([per_hour("api", 1)], store);
    let block = async || limits.block("api", "alice", HOUR, "").await;
    let is_told = |blocked| {
        assert!(
            matches!(blocked, Err(OperatorError::NoRuntime)),
            "{blocked:?}"
        )
    };
    (0..2).for_each(|_| is_told(untimed.block_on(block())));
    timed.block_on(block()).expect("there is a timer");
    let joined = async || query::<bool>(&server, "EXISTS {CurrentLimiter:~fleet}:processes");
    timed.block_on(within(PATIENT, "it joins", joined));
    is_told(untimed.block_on(block()));
}

/// A key of another type stops a change, and the message says which one.
#[tokio::test]
async fn a_foreign_value_is_named() {
    let server = Redis::start();
    let limits = limits([per_hour("api", 1)], store_on(&server).await);
    for (list, foreign) in [("raised", "SET"), ("version", "SADD"), ("blocked", "SET")] {
        let name = format!("{{CurrentLimiter:~fleet}}:{list}");
        run(&server, "FLUSHALL");
        run(&server, &format!("{foreign} {name} junk"));
        let error = limits.block("api", "alice", HOUR, "").await;
        let said = error.expect_err(list).to_string();
        let is_so = said.contains(&name) && said.contains("wrong type");
        assert!(is_so, "{said}");
    }
}

/// Why it is done, for who comes later, in all processes and in the log: in one line, however
/// somebody breaks it.
#[tokio::test]
async fn a_note_says_why() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let [here, there] = [(); 2].map(|()| joined([per_hour("api", 1)], &store));
    let log = Log::start();
    let by = "eve\rWARN mallory\r\n\u{1b}[2K\u{85}\u{2028}\u{202e}";
    done(here.block("api", "alice", HOUR, by).note(by)).await;
    let note = "spam, \nticket 4711 ";
    done(here.block("api", "carol", HOUR, "eve").note(note)).await;
    let long = "ä".repeat(300);
    done(here.raise("api", "alice", 2.5, HOUR, "").note(&long)).await;
    done(here.let_through("api", "bob", HOUR, "eve")).await;
    let lines = log.lines().join("\n");
    assert!(lines.contains("note=\"spam,  ticket 4711 \""), "{lines}");
    let unseen = ['\r', '\u{1b}', '\u{85}', '\u{2028}', '\u{202e}'];
    assert!(!lines.contains(unseen), "{lines:?}");
    let known = async || there.operator_keys().len() == 4;
    within(OBEYS, "all processes know it", known).await;
    let line = "eve WARN mallory   [2K   ";
    let mut expected = [
        (None, Some(&long[..400])),
        (Some(line), Some(line)),
        (Some("eve"), Some("spam,  ticket 4711 ")),
        (Some("eve"), None),
    ];
    expected.sort_unstable();
    for limits in [&here, &there] {
        let said = limits.operator_keys();
        let said = said.iter().map(|it| (it.by.as_deref(), it.note.as_deref()));
        let mut said: Vec<_> = said.collect();
        said.sort_unstable();
        assert_eq!(said, expected);
    }
}

/// An address alone is the key of its /64 network, or of itself. Where a rule counts by networks of
/// another size, no request has that key, and an operator who blocks it blocks nobody.
#[tokio::test(start_paused = true)]
async fn an_address_that_is_no_key_of_the_rule() {
    const FILE: &str = r#"
        client-ip = { hops = 1 }
        rules.all = { max-count = 9, window = "1m", key = "client-ip" }
        rules.site = { max-count = 9, window = "1m", key = "client-ip/24/48" }
        rules.either = { max-count = 9, window = "1m", key = "bearer | client-ip/48" }
        rules.field = { max-count = 9, window = "1m", key = "header:x-real-ip" }
        rules.nothing = { max-count = 9, window = "1m" }
        [rules.joint]
        quotas = [
            { max-count = 9, window = "1m", key = "client-ip" },
            { max-count = 9, window = "1m", key = "client-ip/48" },
        ]
    "#;
    let [v4, v6] = ["203.0.113.9", "2001:db8:1:2::3"];
    let address = |text: &str| text.parse::<std::net::IpAddr>().expect("an address");
    let sites = ClientIp::behind_hops(1).ipv4_prefix(24).ipv6_prefix(48);
    let limits = of_toml(FILE).store(paused()).key(sites.clone());
    let by_code = limits.layer("all").key(sites.clone());
    let custom = |head: &http::request::Parts| PeerIp.extract(head);
    let _layers = [by_code, limits.layer("site"), limits.layer("either")];
    let _other = limits.layer("either").key_by(custom);
    for (path, subject, ip, is_right) in [
        ("all", "", v4, false),
        ("all", "", v6, false),
        ("site", "", v4, false),
        ("site", "", v6, false),
        ("field", "", v4, true),
        ("nothing", "", v6, false),
        // Code of its own may make any key.
        ("either", "", v6, true),
        ("joint", "client-ip", v6, true),
        ("joint", "client-ip/48", v6, false),
        ("joint", "client-ip/48", v4, true),
    ] {
        let keys = |key: Key| match subject {
            "" => SubjectKeys::from(key),
            name => [(name, key)].into(),
        };
        let key = || keys(address(ip).into());
        for done in [
            limits.block(path, key(), HOUR, "ops").await,
            limits.let_through(path, key(), HOUR, "ops").await,
            limits.raise(path, key(), 2.0, HOUR, "ops").await,
        ] {
            let case = format!("{path} {subject} {ip}: {done:?}");
            assert_eq!(done.is_ok(), is_right, "{case}");
            let is_told = |error: OperatorError| error.to_string().contains("ClientIp::key");
            assert!(done.err().is_none_or(is_told), "{case}");
        }
        done(limits.block(path, key(), END, "ops")).await;
        if !is_right {
            let of_rule = limits.block(path, keys(sites.key(address(ip))), HOUR, "ops");
            assert!(of_rule.await.is_ok(), "{path} {subject} {ip}");
        }
    }
    let alone = of_toml(FILE).store(paused());
    let either = alone.block("either", address(v6), HOUR, "ops").await;
    assert!(either.is_err(), "a bearer token is no address");
    // Somebody asks with it.
    alone.check("site", address(v6)).await.expect("room");
    done(alone.block("site", address(v6), HOUR, "ops")).await;
}

/// Also a key whose month only another process knows has had requests.
#[tokio::test(start_paused = true)]
async fn a_key_with_a_plan_of_another_process_is_known() {
    let store: Arc<dyn Store> = paused();
    let [shop, office] = [(); 2].map(|()| limits_of(&per_minute("api", 4), &store));
    let month = Policy::calendar(tidegate::rule::Period::MONTH, 9);
    let plan = Plan::of([month]).expect("valid");
    let check = shop.check("api", "alice").plan_value(plan);
    check.await.expect("there is room");
    let log = Log::start();
    for (key, is_warned) in [("alice", false), ("alcie", true)] {
        done(office.block("api", key, HOUR, "")).await;
        let lines = log.lines().join("\n");
        let warns = lines.contains("no request had lately");
        assert_eq!(warns, is_warned, "{lines}");
    }
}

/// A key that is written as a text without its mark, or with that of another rule, is none of a
/// request: the one that it should have been is named.
#[tokio::test(start_paused = true)]
async fn the_key_that_is_meant_is_told() {
    let one = per_minute("one", 4).with_key(Header::new("x-user"));
    let two = per_minute("two", 4).with_key(Header::new("x-user").or(PeerIp));
    let both = [
        Subject::new("who", Header::new("x-user").or(PeerIp)),
        Subject::new("all", Everyone),
    ];
    let both = Rule::joint("both", both.map(|it| it.limit(Quota::per_minute(4)))).expect("valid");
    let limits = kit::limits([one, two, both], paused());
    let _page = limits.page().show_keys().router();
    for path in ["one", "two", "both"] {
        let app = app_at("/", limits.layer(path));
        assert_eq!(
            call(&app, request("/", "x-user: alice")).await.status(),
            200
        );
    }
    let log = Log::start();
    let key = |name: &str| Key::from(name);
    let user = |name| Header::new("x-user").marked(key(name));
    let cookie = tidegate::key::Cookie::new("id").marked(key("alice"));
    for (path, key, meant) in [
        ("two", key("alice"), "header.x-user|alice"),
        ("one", user("alice"), "alice"),
        ("two", cookie, "header.x-user|alice"),
        ("both", key("alice"), "who>header.x-user|alice"),
        ("two", user("alice"), ""),
        ("two", key("bob"), ""),
        ("one", user("bob"), ""),
    ] {
        let keys = match path {
            "both" => [("who", key)].into(),
            _ => SubjectKeys::from(key),
        };
        done(limits.block(path, keys, HOUR, "ops")).await;
        let lines = log.lines().join("\n");
        let expected = format!("meant={meant:?}");
        assert_eq!(lines.contains("meant="), !meant.is_empty(), "{lines}");
        assert!(meant.is_empty() || lines.contains(&expected), "{lines}");
    }
}

/// What code and the page do to a key is logged alike, an end as one: the key itself only where the
/// page shows keys, and its row always.
#[tokio::test(start_paused = true)]
async fn the_log_names_keys_as_the_page_does() {
    const BEGINS: [&str; 3] = ["is blocked ", "is let through ", "is raised by 2 "];
    const ENDS: [&str; 3] = [
        "no longer blocked ",
        "no longer let through ",
        "no longer raised ",
    ];
    for shows in [None, Some(false), Some(true)] {
        let limits = limits([per_hour("api", 1), joint(1, 9)], paused());
        let page = shows.map(|shows| match limits.page().allow_changes() {
            page if shows => page.show_keys().router(),
            page => page.router(),
        });
        let log = Log::start();
        for (key, subject) in [("alice", None), ("user>alice", Some("user"))] {
            let path = subject.map_or("api", |_| "joint");
            let keys = || match subject {
                Some(name) => SubjectKeys::from([(name, "alice")]),
                None => "alice".into(),
            };
            let reset = limits.reset(path, keys()).by("o\nps").await;
            assert!(!reset.expect("an answer"));
            let mut expected = vec!["the count of a key was reset "];
            for (time, said) in [(HOUR, BEGINS), (END, ENDS)] {
                done(limits.block(path, keys(), time, "ops")).await;
                done(limits.let_through(path, keys(), time, "ops")).await;
                done(limits.raise(path, keys(), 2.0, time, "ops")).await;
                expected.extend(said);
            }
            if let Some(page) = &page {
                for (what, seconds) in [("let-through", 60), ("let-through", 0), ("reset", 0)] {
                    let body = json!({"rule": path, "subject": subject, "key": "alice",
                        "seconds": seconds});
                    let done = operate(page, &format!("/api/{what}"), &body.to_string()).await;
                    assert_eq!(done.0, 200, "{done:?}");
                }
                expected.extend([BEGINS[1], ENDS[1], expected[0]]);
            }
            let lines = log.lines();
            assert_eq!(lines.len(), expected.len(), "{lines:?}");
            let row = |line: &str| {
                let rest = line.split("row=\"").nth(1).expect("a row");
                rest[..32].to_owned()
            };
            for (line, said) in lines.iter().zip(expected) {
                assert!(line.contains(said), "{line}");
                assert!(line.contains(&format!("path=\"{path}\"")), "{line}");
                assert_eq!(row(line), row(&lines[0]));
                let is_shown = line.contains(&format!("key=\"{key}\""));
                assert_eq!(is_shown, shows == Some(true), "{line}");
                assert_eq!(line.contains("alice"), is_shown, "{line}");
            }
            assert!(lines[0].contains("by=\"o ps\" found=false"), "{lines:?}");
        }
    }
}

/// Code that resets at each login does not flood the log.
#[tokio::test(start_paused = true)]
async fn resets_that_nobody_is_named_for_are_counted() {
    let limits = limits([per_hour("api", 9), per_hour("login", 9)], paused());
    let log = Log::start();
    for (resets, told) in [(1, 1), (30, 0), (1, 31), (1, 0)] {
        if told == 31 {
            sleep(Duration::from_secs(10)).await;
        }
        for path in ["api", "login"] {
            for _ in 0..resets {
                limits.reset(path, "alice").await.expect("an answer");
            }
            let lines = log.lines();
            assert_eq!(lines.len(), told.min(1), "{lines:?}");
            for line in lines {
                let expected = format!("path=\"{path}\" resets={told}");
                assert!(line.contains(&expected), "{line}");
                assert!(!line.contains("alice"), "{line}");
            }
        }
    }
}

/// Whoever mistypes a path is told, and nothing is done.
#[tokio::test(start_paused = true)]
async fn a_path_that_neither_a_rule_nor_a_layer_has() {
    let limits = limits([per_hour("api", 9)], paused());
    let _ = limits.layer("open");
    let says = |error: &dyn ToString, path: &str| {
        let (text, name) = (error.to_string(), format!("{path:?}"));
        assert!(text.contains(&name) && text.contains("rule"), "{text}");
    };
    let reset = async |path| limits.reset(path, "alice").await;
    assert!(!reset("open").await.expect("a layer may have no rule"));
    let log = Log::start();
    says(&reset("apy").await.expect_err("a mistake"), "apy");
    let by = limits.reset("apy", "alice").by("ops").await;
    says(&by.expect_err("a mistake"), "apy");
    let held = limits.hold("apy", "alice", HOUR).await;
    says(&held.expect_err("a mistake"), "apy");
    for time in [HOUR, END] {
        for done in [
            limits.block("apy", "alice", time, "").await,
            limits.let_through("apy", "alice", time, "").await,
            limits.raise("apy", "alice", 2.0, time, "").await,
        ] {
            says(&done.expect_err("a mistake"), "apy");
        }
    }
    assert!(limits.operator_keys().is_empty());
    assert_eq!(log.lines(), [""; 0]);

    done(limits.block("api", "alice", HOUR, "")).await;
    limits.rules().replace(Rules::default());
    done(limits.block("api", "alice", END, "")).await;
    assert!(limits.operator_keys().is_empty());
}
