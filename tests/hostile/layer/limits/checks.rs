//! `Limits::check` under callers that leave, crowds, odd paths, reloads and odd runtimes.

use std::fmt::Write as _;
use std::fs;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::join_all;
use kit::Redis;
use tidegate::key::Everyone;
use tidegate::metrics::DecisionOutcome::{Allowed, Denied};
use tidegate::rule::OnError;
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::warning::WarningKind;
use tidegate::{Key, RedisStore, Resilient, Rules};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::*;
use kit::full_log::Log;
use kit::stub::Stub;
use kit::{PATIENT, millis};

/// A future whose answer is there at once, in no runtime at all.
fn at_once<T>(future: impl IntoFuture<Output = T>) -> T {
    let mut future = pin!(future.into_future());
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store has its answer at once"),
    }
}

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

    let hanging = Stub::answering(MemoryStore::new(), |_| {
        Some(StoreFuture::boxed(std::future::pending()))
    });
    let asked = hanging.clone();
    let rule = hourly("a", 9).with_shadow(hourly("a", 1));
    let limits = Limits::new([rule]).store(Resilient::bare(hanging).timeout(PATIENT));
    for _ in 0..50 {
        let answer = timeout(millis(5), limits.check("a", "alice").into_future()).await;
        assert!(answer.is_err(), "it hangs");
    }
    assert_eq!(asked.asked(|take| !take.rule().is_shadow()), 50);
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("a").expect("it was checked");
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
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path).expect("it was checked");
    assert_eq!((rule.units, rule.waiting), (units, 0));
    assert_eq!(rule.decisions(Allowed), admitted);
    assert_eq!(rule.decisions(Denied), denied);
    // All of it back, each once.
    for charge in &charges {
        assert_eq!(
            charge.refund().await.expect("an answer"),
            charge.take().cost()
        );
        assert_eq!(charge.clone().refund().await.expect("an answer"), 0);
    }
    assert_eq!(left(limits, path, "one name").await, max);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_at_once() {
    let limits = Limits::new([hourly("a", 777)]).store(clocked().1);
    crowd(&limits, "a", 777).await;

    let server = Redis::start();
    let redis = RedisStore::connect(&*server.url).await.expect("a server");
    let limits = Limits::new([hourly("a", 777)]).store(redis.timeout(PATIENT));
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
        at_once(limits.check("known", "alice")).expect("there is room");
    }
    at_once(limits.check("known", "alice")).expect_err("it is used up");
    // Also one that gets it only now, of those that are not remembered.
    let late = "path-of-a-client-99999";
    limits.rules().replace(Rules::from_iter([hourly(late, 1)]));
    at_once(limits.check(late, "alice")).expect("there is room");
    at_once(limits.check(late, "alice")).expect_err("it is used up");
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
    at_once(limits.check("known", "alice")).expect("there is room");
    assert_eq!(status_now(&wrap(limits.layer("known"))), 200);
    let snapshot = limits.snapshot();
    let known = snapshot.rule("known").map(|it| it.units);
    assert_eq!(known, Some(2), "counted as without the flood");
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
    assert!(
        lines.len() <= 10,
        "{} lines: {:?}",
        lines.len(),
        lines.last()
    );
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
        let charge = at_once(limits.check("a", "bob"))
            .expect("there is room")
            .charge;
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
        sender
            .send(limits.snapshot().unmatched)
            .expect("is awaited");
    });
    let unmatched = receiver.recv_timeout(PATIENT);
    assert!(unmatched.expect("nothing is locked") > 1);
}

/// Names of all kinds, with a rule and without.
#[test]
fn odd_paths() {
    let long = "x".repeat(1 << 20);
    let known = [
        "a b",
        "a\nb",
        "\0",
        "\u{1b}[31m",
        "a:b",
        "{a}",
        "\u{202e}",
        "a~shadow",
        &long,
    ];
    let limits = Limits::new(known.map(|path| hourly(path, 1)));
    for path in known {
        at_once(limits.check(path, "k")).expect("there is room");
        let refused = at_once(limits.check(path, "k")).expect_err("it is used up");
        assert_eq!(refused.rule().path(), path);
        for text in [refused.to_string(), format!("{refused:?}")] {
            assert!(text.len() < 4 * path.len() + 1_000);
        }
        assert!(
            at_once(limits.reset(path, "k")).expect("an answer"),
            "{path:.20}"
        );
        assert!(
            !at_once(limits.reset(path, "k")).expect("an answer"),
            "{path:.20}"
        );
    }
    // No rule can have this name.
    let unknown = ["", "a", " a b", "a b ", "A B", "a\r\nb"];
    for path in unknown {
        let admitted = at_once(limits.check(path, "k")).expect("no rule");
        assert!(
            admitted.decision.is_none() && admitted.charge.is_none(),
            "{path:?}"
        );
        assert!(
            at_once(limits.peek(path, "k"))
                .expect("an answer")
                .is_none()
        );
        assert!(!at_once(limits.reset(path, "k")).expect("an answer"));
    }
    assert_eq!(limits.snapshot().unmatched, unknown.len() as u64);
}

/// A rule that comes later limits, also a check that was made before and is awaited afterwards, or
/// at least the next one.
#[tokio::test]
async fn rules_that_come_later() {
    let limits = Limits::new(Rules::default());
    for _ in 0..3 {
        let admitted = limits.check("a", "alice").await.expect("no rule");
        assert!(admitted.decision.is_none());
    }
    limits.rules().replace(Rules::from_iter([hourly("a", 1)]));
    let admitted = limits.check("a", "alice").await.expect("there is room");
    assert_eq!(admitted.decision.expect("the store decided").remaining(), 0);
    limits.check("a", "alice").await.expect_err("it is used up");
    // Switched off, in shadow, and back: what was counted stays.
    limits
        .rules()
        .replace(Rules::from_iter([hourly("a", 1)]).enabled(false));
    let off = limits.check("a", "alice").await.expect("limiting is off");
    assert!(off.decision.is_none() && off.charge.is_none());
    limits
        .rules()
        .replace(Rules::from_iter([hourly("a", 1).into_shadow()]));
    let shadow = limits
        .check("a", "alice")
        .await
        .expect("a shadow denies nobody");
    assert!(shadow.decision.is_none() && shadow.charge.is_none());
    limits.rules().replace(Rules::from_iter([hourly("a", 1)]));
    limits.check("a", "alice").await.expect_err("it is used up");
}

/// A path that only checks use is in use: its rule stays when the file loses it, and is verified.
#[tokio::test]
async fn a_rule_that_only_checks_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limits.toml");
    let rule = |path: &str| format!("[rules.{path}]\nmax-count = 1\nwindow = \"1h\"\n");
    fs::write(&file, rule("chat") + &rule("other")).expect("is written");
    let limits = Limits::from_file(&file).expect("valid");
    let unused = limits.verify().expect_err("nobody has used the rules");
    assert_eq!(unused.paths_without_layer, ["chat", "other"]);

    limits.check("chat", "alice").await.expect("there is room");
    limits.check("chta", "alice").await.expect("no rule");
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

    fs::write(&file, rule("third")).expect("is written");
    limits.reload(&file).expect("valid");
    assert_eq!(limits.status().kept_rules, ["chat"]);
    limits
        .check("chat", "alice")
        .await
        .expect_err("the count stays as well");
    assert!(
        limits
            .peek("other", "x")
            .await
            .expect("an answer")
            .is_none()
    );
    // A path that was only looked at is not in use.
    assert!(
        limits
            .peek("third", "x")
            .await
            .expect("an answer")
            .is_some()
    );
    assert!(!limits.reset("third", "x").await.expect("an answer"));
    fs::write(&file, rule("fourth")).expect("is written");
    limits.reload(&file).expect("valid");
    assert_eq!(limits.status().kept_rules, ["chat"]);
}

/// A charge is given back once, whoever asks, however often, and after everything else is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_counts_once() {
    let (_, memory) = clocked();
    let store: Arc<dyn tidegate::Store> = Arc::new(memory);
    let limits = Limits::new([hourly("a", 10)]).store(Arc::clone(&store));
    let admitted = limits.check("a", "alice").cost(4).await.expect("room");
    let other = limits.check("a", "alice").cost(3).await.expect("room");
    let charge = admitted.charge.expect("it cost something");
    let asked = (0..64).map(|_| {
        let charge = charge.clone();
        tokio::spawn(async move { charge.refund().await.expect("an answer") })
    });
    let units = join_all(asked)
        .await
        .into_iter()
        .map(|it| it.expect("no panic"));
    assert_eq!(units.sum::<u64>(), 4);
    assert_eq!(left(&limits, "a", "alice").await, 7);
    let rule = limits.snapshot().rules.remove(0);
    assert_eq!((rule.refunds, rule.refunded_units), (1, 4));
    let watching = limits.clone();
    drop(limits);
    assert_eq!(
        other
            .charge
            .expect("a charge")
            .refund()
            .await
            .expect("an answer"),
        3
    );
    assert_eq!(watching.snapshot().rules[0].refunded_units, 7);
    // Nothing to give back where nothing was charged.
    let free = watching.check("a", "alice").cost(0).await.expect("a look");
    assert!(free.charge.is_none() && free.decision.is_some());
    let refused = watching
        .check("a", "alice")
        .cost(11)
        .await
        .expect_err("never");
    assert!(refused.retry_after().is_none() && refused.decision().is_some());
    let most = watching
        .check("a", "alice")
        .cost(u64::MAX)
        .await
        .expect_err("never");
    assert!(most.retry_after().is_none());
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
            limits.peek(path, "alice").await.expect_err("Redis is gone");
            limits
                .reset(path, "alice")
                .await
                .expect_err("Redis is gone");
            limits
                .reset(path, "nobody")
                .await
                .expect_err("Redis is gone");
        }
        let failed = limits.check("a", "alice").await.expect_err("Redis is gone");
        assert!(failed.error().is_some() && failed.decision().is_none());
        assert!(failed.retry_after().is_none());
        let admitted = limits.check("goes on", "alice").await.expect("it proceeds");
        assert!(admitted.decision.is_none() && admitted.charge.is_none());
        // Nobody is asked about a path without a rule.
        assert!(
            limits
                .peek("unknown", "x")
                .await
                .expect("no rule")
                .is_none()
        );
        assert!(!limits.reset("unknown", "x").await.expect("no rule"));
    });
    ended.await.expect("nobody waits for ever");
    let snapshot = limits.snapshot();
    assert_eq!(snapshot.rule("goes on").expect("checked").proceeded, 1);

    server.restart();
    let decides = timeout(PATIENT, async {
        while limits.check("a", "alice").await.is_err() {
            tokio::time::sleep(millis(5)).await;
        }
    });
    decides.await.expect("it decides again");
    assert!(!limits.reset("a", "nobody").await.expect("an answer"));
}

/// No runtime, and one without timers: the memory store needs neither, also with a candidate beside
/// the rule.
#[test]
fn without_a_runtime_or_its_timers() {
    let ask = |limits: &Limits| {
        at_once(limits.check("a", "alice")).expect("there is room");
        at_once(limits.check("a", "alice")).expect_err("it is used up");
        assert_eq!(
            at_once(limits.peek("a", "alice"))
                .expect("an answer")
                .expect("a rule")
                .remaining(),
            0
        );
        assert!(at_once(limits.reset("a", "alice")).expect("an answer"));
    };
    let rules = || [hourly("a", 1).with_shadow(hourly("a", 0))];
    ask(&Limits::new(rules()));
    ask(&Limits::new(rules()).store(Resilient::bare(MemoryStore::new()).timeout(millis(50))));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        ask(&Limits::new(rules()));
        let limits = Limits::new(rules());
        limits.check("a", "alice").await.expect("there is room");
        limits.check("a", "alice").await.expect_err("it is used up");
    });
}

/// One `Limits` on Redis, asked from runtimes that come and go: it counts each of them.
#[test]
fn from_several_runtimes() {
    let server = Redis::start();
    let home = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let home = home.expect("a runtime");
    let store = home
        .block_on(RedisStore::connect(&*server.url))
        .expect("a server");
    let limits = Limits::new([hourly("a", 100)]).store(store.timeout(PATIENT));
    let admitted: usize = std::thread::scope(|scope| {
        let guests: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut admitted = 0;
                    for _ in 0..10 {
                        let guest = Builder::new_current_thread().enable_all().build();
                        let guest = guest.expect("a runtime");
                        admitted += guest.block_on(async {
                            let asked = (0..5).map(|_| limits.check("a", "k").into_future());
                            let answers = join_all(asked).await;
                            answers.iter().filter(|it| it.is_ok()).count()
                        });
                    }
                    admitted
                })
            })
            .collect();
        guests
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .sum()
    });
    assert_eq!(admitted, 100);
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("a").expect("checked");
    assert_eq!((rule.units, rule.decisions(Denied)), (100, 100));
}

/// A store that panics for one check harms no other one.
#[tokio::test]
async fn a_store_that_panics() {
    let store = Stub::answering(MemoryStore::new(), |take| {
        assert!(
            take.key() != &Key::from("evil"),
            "a panic of the test's store"
        );
        None
    });
    let limits = Arc::new(Limits::new([hourly("a", 2)]).store(store));
    let asking = Arc::clone(&limits);
    let evil = tokio::spawn(async move { asking.check("a", "evil").await.map(drop) });
    // An error or a panic of the caller's own task; never an admission.
    assert!(!matches!(evil.await, Ok(Ok(()))));
    limits.check("a", "good").await.expect("there is room");
    assert_eq!(limits.snapshot().rule("a").expect("checked").waiting, 0);
}

/// A key that no request has, and the one that all have.
#[tokio::test]
async fn keys_of_a_check() {
    let limits = Limits::new([hourly("a", 1).with_key(Everyone)]);
    assert_eq!(status(&wrap(limits.layer("a")), &[]).await, 200);
    limits
        .check("a", Key::default())
        .await
        .expect_err("everyone's unit is used");
    // The empty text is a key of its own.
    limits.check("a", "").await.expect("another key");
    limits.check("a", 17_u8).await.expect("another key");
    limits
        .check("a", "17".to_owned())
        .await
        .expect_err("the same key");
    let long = "k".repeat(1 << 20);
    limits.check("a", &*long).await.expect("another key");
    limits.check("a", &*long).await.expect_err("the same key");
}
