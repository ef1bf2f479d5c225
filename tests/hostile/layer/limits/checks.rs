//! `Limits::check` under callers that leave, crowds, odd paths, reloads and odd runtimes.

use std::fmt::Write as _;

use kit::full_log::Log;

use super::*;

fn status_now(service: &Wrapped) -> u16 {
    at_once(send(service, request(&[]))).status().as_u16()
}

/// Paths that come from outside, and that nobody has a rule for, fill neither memory nor log. Law
/// 13: whoever makes them up takes nothing from those that have a rule.
#[test]
fn unknown_paths_without_end() {
    let log = Log::start();
    let limits = Limits::new([hourly("known", 5)]);
    ask_about(&limits, 0..10_001);
    assert_eq!(limits.snapshot().unmatched, 10_001);
    at_once(admitted(&limits, "known", "alice"));
    assert_eq!(status_now(&wrap(limits.layer("known"))), 200);
    assert_eq!(counters(&limits, "known").units, 2);
    log.text();
    ask_about(&limits, 10_001..20_001);
    let lines = log.lines();
    assert!(lines.len() <= 10, "{:?} is the last", lines.last());
    let more = ask_about(&limits, 20_001..100_001);
    assert!(more < 100_000, "{more} bytes for paths that nobody knows");
    assert!(limits.paths_without_rule().len() <= 10_000);
    assert!(limits.warnings().len() <= 1_000);
    // Whoever has a rule is limited nevertheless.
    for _ in 0..4 {
        at_once(admitted(&limits, "known", "alice"));
    }
    at_once(refused(&limits, "known", "alice"));
    // Also one that gets it only now, of those that are not remembered.
    let late = "path-of-a-client-99999";
    replace(&limits, [hourly(late, 1)]);
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

/// `Limits` that are dropped leave nothing behind, also if they were asked by name and made layers.
#[test]
fn limits_that_are_gone() {
    let use_once = || {
        let limits = Limits::new([hourly("a", 1)])
            .store(MemoryStore::new())
            .key(Everyone);
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

/// No runtime, and one without timers: the memory store needs neither.
#[test]
fn without_a_runtime_or_its_timers() {
    let ask = async |limits: Limits| {
        admitted(&limits, "a", "alice").await;
        refused(&limits, "a", "alice").await;
        assert_eq!(left(&limits, "a", "alice").await, 0);
        assert!(reset(&limits, "a", "alice").await);
    };
    let limits = || Limits::new([hourly("a", 1)]);
    let bounded = || Resilient::bare(MemoryStore::new()).timeout(millis(50));
    at_once(ask(limits()));
    at_once(ask(limits().store(bounded())));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        at_once(ask(limits()));
        ask(limits()).await;
    });
}

/// What cannot be known is an error; nobody is asked about a path without a rule.
#[tokio::test]
async fn without_its_store() {
    let down = Stub::down().reset_fn(|_, _| StoreFuture::ready(Err(crate::refused())));
    let limits = Limits::new([hourly("a", 5)]).store(down);
    assert!(limits.peek("a", "alice").await.is_err());
    assert!(limits.reset("a", "alice").await.is_err());
    assert!(peek(&limits, "unknown", "x").await.is_none());
    assert!(limits.reset("unknown", "x").await.is_err());
}
