//! `Limits::check` under callers that leave, crowds, odd paths, reloads and odd runtimes.

use std::fmt::Write as _;
use std::future::IntoFuture;

use kit::full_log::Log;
use tidegate::metrics::DecisionOutcome::{Allowed, Denied};

use super::*;

fn status_now(service: &Wrapped) -> u16 {
    at_once(send(service, request(&[]))).status().as_u16()
}

/// A question that is never awaited, one whose future is never polled, and one that is dropped
/// while the store hangs: nothing is charged that an answer did not say, and nobody waits.
#[tokio::test(start_paused = true)]
async fn dropped_at_every_point() {
    let (_, memory) = clocked();
    let limits = Limits::new([hourly("a", 9)]).store(memory);
    drop(limits.check("a", "alice").cost(2));
    drop(limits.check("a", "alice").into_future());
    assert_eq!(left(&limits, "a", "alice").await, 9);

    let hanging = Stub::hanging();
    let asked = hanging.clone();
    let rule = hourly("a", 9).with_shadow(hourly("a", 1));
    let limits = Limits::new([rule]).store(Resilient::bare(hanging).timeout(PATIENT));
    for _ in 0..50 {
        let answer = timeout(millis(5), limits.check("a", "alice").into_future()).await;
        assert!(answer.is_err(), "it hangs");
    }
    assert_eq!(asked.asked(|take| !take.rule().is_shadow()), 50);
    let rule = counters(&limits, "a");
    assert_eq!((rule.waiting, rule.units), (0, 0));
    assert_eq!(rule.decisions(Allowed) + rule.decisions(Denied), 0);
    assert_eq!(rule.store_errors(StoreErrorKind::Timeout), 0);
}

async fn crowd(limits: &Limits, path: &'static str, max: u64) {
    let asked = (0..10_000).map(|number| {
        let check = limits.check(path, "one name").cost(1 + number % 2);
        tokio::spawn(async move { (1 + number % 2, check.await) })
    });
    let answers = join_all(asked).await;
    let (mut units, mut admitted, mut denied) = (0, 0, 0);
    let mut charges = Vec::new();
    for answer in answers {
        match answer.expect("no panic") {
            (cost, Ok(it)) => {
                (units, admitted) = (units + cost, admitted + 1);
                charges.push(it.charge.expect("it cost something"));
            }
            (_, Err(refused)) => {
                assert!(refused.decision().is_some(), "{refused:?}");
                denied += 1;
            }
        }
    }
    // A unit more fits only those who ask for one; somebody does.
    assert_eq!(units, max);
    let rule = counters(limits, path);
    assert_eq!((rule.units, rule.waiting), (units, 0));
    assert_eq!(rule.decisions(Allowed), admitted);
    assert_eq!(rule.decisions(Denied), denied);
    // All of it back, each once.
    for charge in &charges {
        let back = [charge.refund().await, charge.clone().refund().await];
        let back = back.map(|units| units.expect("an answer"));
        assert_eq!(back, [charge.take().cost(), 0]);
    }
    assert_eq!(left(limits, path, "one name").await, max);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_once() {
    let limits = Limits::new([hourly("a", 777)]).store(clocked().1);
    crowd(&limits, "a", 777).await;

    let server = Redis::start();
    let limits = Limits::new([hourly("a", 777)]).store(store_on(&server).await);
    crowd(&limits, "a", 777).await;
}

/// Paths that come from outside fill no memory, none that nobody has a rule for.
#[test]
fn unknown_paths_without_end() {
    let limits = Limits::new([hourly("known", 5)]);
    ask_about(&limits, 0..20_000);
    let more = ask_about(&limits, 20_000..100_000);
    assert!(more < 100_000, "{more} bytes for paths that nobody knows");
    assert!(limits.paths_without_rule().len() <= 10_000);
    assert!(limits.warnings().len() <= 1_000);
    // Whoever has a rule is limited nevertheless.
    for _ in 0..5 {
        at_once(admitted(&limits, "known", "alice"));
    }
    at_once(refused(&limits, "known", "alice"));
    // Also one that gets it only now, of those that are not remembered.
    let late = "path-of-a-client-99999";
    replace(&limits, hourly(late, 1));
    at_once(admitted(&limits, late, "alice"));
    at_once(refused(&limits, late, "alice"));
}

/// Asks about paths that have no rule. Returns how many bytes were kept.
fn ask_about(limits: &Limits, numbers: std::ops::Range<u32>) -> i64 {
    let mut path = String::new();
    let measured = allocation_counter::measure(|| {
        for number in numbers {
            path.clear();
            write!(path, "path-of-a-client-{number}").expect("a text");
            let admitted = at_once(limits.check(&path, "alice"));
            assert!(admitted.expect("no rule").decision.is_none());
        }
    });
    measured.bytes_current
}

/// Law 13: whoever makes up paths takes nothing from those that have a rule.
#[test]
fn rules_are_counted_after_a_flood_of_unknown_paths() {
    let limits = Limits::new([hourly("known", 5)]);
    ask_about(&limits, 0..10_001);
    assert_eq!(limits.snapshot().unmatched, 10_001);
    at_once(admitted(&limits, "known", "alice"));
    assert_eq!(status_now(&wrap(limits.layer("known"))), 200);
    assert_eq!(counters(&limits, "known").units, 2);
}

/// The log is told of a bounded number of them.
#[test]
fn the_log_after_a_flood_of_unknown_paths() {
    let log = Log::start();
    let limits = Limits::new([hourly("known", 5)]);
    ask_about(&limits, 0..10_000);
    log.text();
    ask_about(&limits, 10_000..20_000);
    let lines = log.lines();
    assert!(lines.len() <= 10, "{:?} is the last", lines.last());
}

/// `Limits` that are dropped leave nothing behind, also if they were asked by name and made layers.
#[test]
fn limits_that_are_gone() {
    let use_once = || {
        let rule = hourly("a", 1).with_shadow(hourly("a", 2));
        let limits = Limits::new([rule]).store(MemoryStore::new()).key(Everyone);
        let clone = limits.clone().exempt(|_| false);
        let service = wrap(clone.layer("a"));
        assert_eq!(status_now(&service), 200);
        let refused = at_once(clone.check("a", Key::default())).expect_err("it is used up");
        let charge = at_once(admitted(&limits, "a", "bob")).charge;
        let _ = (limits.warnings(), limits.snapshot(), clone.check("b", ""));
        drop((limits, clone));
        drop((refused, charge, service));
    };
    (0..3).for_each(|_| use_once());
    let measured = allocation_counter::measure(|| (0..300).for_each(|_| use_once()));
    assert!(measured.bytes_current < 10_000, "{measured:?}");
}

/// A subscriber that asks by name at each event, as one may that limits what is logged: nothing is
/// locked while an event is told.
#[test]
fn a_subscriber_that_asks() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let log = Log::start();
        let limits = Limits::new([hourly("a", 1), hourly("log", 0)]);
        let asking = limits.clone();
        log.on_event(move || {
            let _ = at_once(asking.check("log", "a line"));
            let _ = at_once(asking.check("nobody knows", "a line"));
            let _ = (asking.warnings(), asking.verify(), asking.snapshot());
        });
        for path in ["a", "a", "b", "log"] {
            let _ = at_once(limits.check(path, "alice"));
        }
        let unmatched = limits.snapshot().unmatched;
        sender.send(unmatched).expect("is awaited");
    });
    let unmatched = receiver.recv_timeout(PATIENT);
    assert!(unmatched.expect("nothing is locked") > 1);
}

/// Names of all kinds, with a rule and without.
#[tokio::test]
async fn odd_paths() {
    let long = "x".repeat(1 << 20);
    let mut known = words("\0 \u{1b}[31m a:b {a} \u{202e} a~shadow");
    known.extend(["a b", "a\nb", &long]);
    let limits = Limits::new(known.iter().map(|path| hourly(path, 1)).collect::<Rules>());
    for path in known {
        admitted(&limits, path, "k").await;
        let refused = refused(&limits, path, "k").await;
        assert_eq!(refused.rule().path(), path);
        for text in [refused.to_string(), format!("{refused:?}")] {
            assert!(text.len() < 4 * path.len() + 1_000);
        }
        assert!(reset(&limits, path, "k").await, "{path:.20}");
        assert!(!reset(&limits, path, "k").await, "{path:.20}");
    }
    // No rule can have this name.
    let unknown = ["", "a", " a b", "a b ", "A B", "a\r\nb"];
    for path in unknown {
        let admitted = admitted(&limits, path, "k").await;
        let is_free = admitted.decision.is_none() && admitted.charge.is_none();
        assert!(is_free, "{path:?}");
        assert!(peek(&limits, path, "k").await.is_none());
        assert!(!reset(&limits, path, "k").await);
    }
    assert_eq!(limits.snapshot().unmatched, unknown.len() as u64);
}

/// A rule that comes later limits, also a check that was made before and is awaited afterwards, or
/// at least the next one.
#[tokio::test]
async fn rules_that_come_later() {
    let limits = Limits::new(Rules::default());
    for _ in 0..3 {
        assert!(admitted(&limits, "a", "alice").await.decision.is_none());
    }
    replace(&limits, hourly("a", 1));
    let decision = admitted(&limits, "a", "alice").await.decision;
    assert_eq!(decision.expect("the store decided").remaining(), 0);
    refused(&limits, "a", "alice").await;
    // Switched off, in shadow, and back: what was counted stays.
    let off = Rules::from_iter([hourly("a", 1)]).enabled(false);
    for rules in [off, Rules::from_iter([hourly("a", 1).into_shadow()])] {
        limits.rules().replace(rules);
        let free = admitted(&limits, "a", "alice").await;
        assert!(free.decision.is_none() && free.charge.is_none());
    }
    replace(&limits, hourly("a", 1));
    refused(&limits, "a", "alice").await;
}

/// A path that only checks use is in use: its rule stays when the file loses it, and is verified.
#[tokio::test]
async fn a_rule_that_only_checks_use() {
    let rule = |path: &str| format!("[rules.{path}]\nmax-count = 1\nwindow = \"1h\"\n");
    let file = LimitsFile::new(&(rule("chat") + &rule("other")));
    let limits = file.limits();
    let unused = limits.verify().expect_err("nobody has used the rules");
    assert_eq!(unused.paths_without_layer, ["chat", "other"]);

    admitted(&limits, "chat", "alice").await;
    admitted(&limits, "chta", "alice").await;
    let unused = limits.verify().expect_err("a slip of the pen");
    assert_eq!(unused.paths_without_layer, ["other"]);
    assert_eq!(unused.paths_without_rule, ["chta"]);
    let warnings = limits.warnings();
    let about = |kind| {
        let warnings = warnings.iter().filter(|it| it.kind == kind);
        let paths = warnings.map(|it| it.path.as_deref().expect("a path"));
        paths.collect::<Vec<_>>()
    };
    assert_eq!(about(WarningKind::NoRule), ["chta"]);
    assert_eq!(about(WarningKind::UnusedRule), [""; 0], "not yet");

    file.reload(&limits, rule("third"));
    assert_eq!(limits.status().kept_rules, ["chat"]);
    // The count stays as well.
    refused(&limits, "chat", "alice").await;
    assert!(peek(&limits, "other", "x").await.is_none());
    // A path that was only looked at is not in use.
    assert!(peek(&limits, "third", "x").await.is_some());
    assert!(!reset(&limits, "third", "x").await);
    file.reload(&limits, rule("fourth"));
    assert_eq!(limits.status().kept_rules, ["chat"]);
}

/// A charge is given back once, whoever asks, however often, and after everything else is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_counts_once() {
    let limits = Limits::new([hourly("a", 10)]).store(clocked().1);
    let check = async |limits: &Limits, cost| limits.check("a", "alice").cost(cost).await;
    let admitted = check(&limits, 4).await.expect("room");
    let other = check(&limits, 3).await.expect("room");
    let charge = admitted.charge.expect("it cost something");
    let asked = (0..64).map(|_| {
        let charge = charge.clone();
        tokio::spawn(async move { charge.refund().await.expect("an answer") })
    });
    let units = join_all(asked).await.into_iter();
    assert_eq!(units.map(|it| it.expect("no panic")).sum::<u64>(), 4);
    assert_eq!(left(&limits, "a", "alice").await, 7);
    let rule = counters(&limits, "a");
    assert_eq!((rule.refunds, rule.refunded_units), (1, 4));
    let watching = limits.clone();
    drop(limits);
    let back = other.charge.expect("a charge").refund().await;
    assert_eq!(back.expect("an answer"), 3);
    assert_eq!(counters(&watching, "a").refunded_units, 7);
    // Nothing to give back where nothing was charged.
    let free = check(&watching, 0).await.expect("room");
    let back = free.charge.expect("a charge").refund().await;
    assert_eq!(back.expect("an answer"), 0);
    for cost in [11, u64::MAX] {
        let never = check(&watching, cost).await.expect_err("never");
        assert!(never.retry_after().is_none() && never.decision().is_some());
    }
    assert_eq!(left(&watching, "a", "alice").await, 10);
}

/// While Redis is gone, everything ends in time; what cannot be known is an error.
#[tokio::test]
async fn without_redis() {
    let mut server = Redis::start();
    let redis = RedisStore::connect(&*server.url).await.expect("a server");
    let rules = [
        hourly("a", 5),
        hourly("goes on", 5).with_on_error(OnError::Proceed),
    ];
    let limits = Limits::new(rules).store(redis.timeout(millis(300)));
    // The first decision may be slow on a busy machine.
    while limits.check("a", "alice").await.is_err() {}
    server.kill();
    let ended = timeout(PATIENT, async {
        for path in ["a", "goes on"] {
            assert!(limits.peek(path, "alice").await.is_err());
            for key in ["alice", "nobody"] {
                assert!(limits.reset(path, key).await.is_err());
            }
        }
        let failed = refused(&limits, "a", "alice").await;
        assert!(failed.error().is_some() && failed.decision().is_none());
        assert!(failed.retry_after().is_none());
        let proceeds = admitted(&limits, "goes on", "alice").await;
        assert!(proceeds.decision.is_none() && proceeds.charge.is_none());
        // Nobody is asked about a path without a rule.
        assert!(peek(&limits, "unknown", "x").await.is_none());
        assert!(!reset(&limits, "unknown", "x").await);
    });
    ended.await.expect("nobody waits for ever");
    assert_eq!(counters(&limits, "goes on").proceeded, 1);

    server.restart();
    let is_so = async || limits.check("a", "alice").await.is_ok();
    eventually("it decides again", is_so).await;
    assert!(!reset(&limits, "a", "nobody").await);
}

/// No runtime, and one without timers: the memory store needs neither, also with a candidate beside
/// the rule.
#[test]
fn without_a_runtime_or_its_timers() {
    let ask = async |limits: Limits| {
        admitted(&limits, "a", "alice").await;
        refused(&limits, "a", "alice").await;
        assert_eq!(left(&limits, "a", "alice").await, 0);
        assert!(reset(&limits, "a", "alice").await);
    };
    let limits = || Limits::new([hourly("a", 1).with_shadow(hourly("a", 0))]);
    let bounded = || Resilient::bare(MemoryStore::new()).timeout(millis(50));
    at_once(ask(limits()));
    at_once(ask(limits().store(bounded())));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        at_once(ask(limits()));
        ask(limits()).await;
    });
}

/// One `Limits` on Redis, asked from runtimes that come and go: it counts each of them.
#[test]
fn from_several_runtimes() {
    let server = Redis::start();
    let home = tokio::runtime::Runtime::new().expect("a runtime");
    let limits = Limits::new([hourly("a", 100)]).store(home.block_on(store_on(&server)));
    let visits = || {
        let ten_visits = (0..10).map(|_| {
            still_runtime().block_on(async {
                let asked = (0..5).map(|_| limits.check("a", "k").into_future());
                let answers = join_all(asked).await;
                answers.iter().filter(|it| it.is_ok()).count()
            })
        });
        ten_visits.sum::<usize>()
    };
    let admitted: usize = std::thread::scope(|scope| {
        let guests: Vec<_> = (0..4).map(|_| scope.spawn(visits)).collect();
        let admitted = guests.into_iter().map(|it| it.join().expect("no panic"));
        admitted.sum()
    });
    assert_eq!(admitted, 100);
    let rule = counters(&limits, "a");
    assert_eq!((rule.units, rule.decisions(Denied)), (100, 100));
}

/// A store that panics for one check harms no other one.
#[tokio::test]
async fn a_store_that_panics() {
    let store = Stub::answering(MemoryStore::new(), |take| {
        assert!(take.key() != &Key::from("evil"), "a panic of a test");
        None
    });
    let limits = Arc::new(Limits::new([hourly("a", 2)]).store(store));
    let asking = Arc::clone(&limits);
    let evil = tokio::spawn(async move { asking.check("a", "evil").await.map(drop) });
    // An error or a panic of the caller's own task; never an admission.
    assert!(!matches!(evil.await, Ok(Ok(()))));
    admitted(&limits, "a", "good").await;
    assert_eq!(counters(&limits, "a").waiting, 0);
}

/// A key that no request has, and the one that all have.
#[tokio::test]
async fn keys_of_a_check() {
    let limits = Limits::new([hourly("a", 1).with_key(Everyone)]);
    assert_eq!(status(&wrap(limits.layer("a")), &[]).await, 200);
    let everyone = limits.check("a", Key::default()).await;
    everyone.expect_err("everyone's unit is used");
    // The empty text is a key of its own.
    admitted(&limits, "a", "").await;
    limits.check("a", 17_u8).await.expect("another key");
    refused(&limits, "a", "17").await;
    let long = "k".repeat(1 << 20);
    admitted(&limits, "a", &long).await;
    refused(&limits, "a", &long).await;
}
