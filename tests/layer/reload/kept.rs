//! Rules that are gone from the file while layers use them.

use std::time::Instant;

use super::{Service, rules, settle};
use crate::*;

fn only(path: &str, max: u64) -> String {
    format!("[rules.{path}]\nmax-count = {max}\nwindow = \"1h\"\n")
}

#[tokio::test(start_paused = true)]
async fn a_rule_in_use_stays_and_is_listed() {
    let service = Service::watched().await;
    service.apply(only("search", 7)).await;
    // As it was.
    service.check_one("/getId", Some(5)).await;
    service.check_one("/search", Some(7)).await;
    let status = service.limits.status();
    assert_eq!(status.kept_rules, ["getId"]);
    assert_eq!(status.error, None);
    let now = service.limits.rules().load();
    assert!(now.get("unused").is_none(), "nobody uses it");
    assert!(service.limits.paths_without_rule().is_empty());

    // It stays through further changes.
    service.apply(only("other", 3)).await;
    service.check_one("/getId", Some(5)).await;
    service.check_one("/search", Some(7)).await;
    assert_eq!(service.limits.status().kept_rules, ["getId", "search"]);

    service.check_applies(9).await;
    assert!(service.limits.status().kept_rules.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rule_is_switched_off_in_its_table() {
    let service = Service::watched().await;
    let off = rules(7).replacen("window", "enabled = false\nwindow", 1);
    service.apply(&off).await;
    service.check_one("/getId", None).await;
    service.check_one("/search", Some(7)).await;
    let status = service.limits.status();
    assert!(status.kept_rules.is_empty() && service.limits.paths_without_rule().is_empty());

    // Gone from the file, it stays what it was: switched off.
    service.apply(only("search", 9)).await;
    service.check_one("/getId", None).await;
    assert_eq!(service.limits.status().kept_rules, ["getId"]);

    service.check_applies(3).await;
}

/// Of one reload, not of the watcher alone. Its outcome is in the status, too.
#[tokio::test]
async fn a_reload_that_is_called_keeps_them_too() {
    let service = Service::start();
    service.reload(only("search", 7));
    service.check_one("/getId", Some(5)).await;
    let status = service.limits.status();
    assert_eq!(status.kept_rules, ["getId"]);
    assert_eq!((status.version, status.reloads, status.failures), (2, 1, 0));

    service.write("[rules.a]");
    service.limits.reload(&service.file).expect_err("no quota");
    let first = service.limits.status();
    assert_eq!((first.version, first.reloads, first.failures), (2, 1, 1));
    let error = first.error.expect("a failure");
    assert!(error.contains("limits.toml:1: rules.a"), "{error}");
    service.limits.reload(&service.file).expect_err("still");
    let second = service.limits.status();
    assert_eq!(second.failures, 2);
    // The same failure.
    assert_eq!(second.failing_since, first.failing_since);

    // The same content is no change.
    service.reload(only("search", 7));
    let status = service.limits.status();
    assert_eq!((status.version, status.reloads, status.error), (2, 1, None));
}

/// Layers that were made from the shared rules count, and those that are gone do, too.
#[tokio::test]
async fn every_layer_counts() {
    let service = Service::start();
    let rules = service.limits.rules();
    let layer = RateLimitLayer::from_rules(rules, "unused", MemoryStore::new());
    drop(layer);
    service.reload(only("other", 7));
    let all = ["getId", "search", "unused"];
    assert_eq!(service.limits.status().kept_rules, all);
}

/// Layers are made while the rules are replaced: one that was made while its rule was in force
/// keeps that rule.
#[test]
fn a_layer_made_meanwhile_keeps_its_rule() {
    let file = LimitsFile::new(only("other", 7));
    let paths: Vec<_> = (0..1_000).map(|number| format!("p{number}")).collect();
    let all: String = paths.iter().map(|path| only(path, 5)).collect();
    let all = tidegate::Rules::from_toml(&all).expect("valid");
    let (mut kept, mut gone, mut rounds) = (0, 0, 0);
    let began = Instant::now();
    // As many as it takes to see both.
    while rounds < 10 || kept == 0 || gone == 0 {
        assert!(began.elapsed() < PATIENT, "{kept} kept and {gone} gone");
        let limits = Limits::new(all.clone());
        let early: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| limits.reload(&file.path).expect("valid"));
            let is_early = |path: &&String| {
                let _ = limits.layer(path);
                limits.rules().load().get("other").is_none()
            };
            paths.iter().filter(is_early).collect()
        });
        let rules = limits.rules().load();
        assert!(early.iter().all(|path| rules.get(path).is_some()));
        assert_eq!(rules.iter().count(), 1 + limits.status().kept_rules.len());
        kept += early.len();
        gone += paths.len() - early.len();
        rounds += 1;
    }
}

/// `SharedRules::replace` is the code's own decision: nothing is kept, and the file waits.
#[tokio::test(start_paused = true)]
async fn rules_that_code_replaced_stay_until_the_file_changes() {
    let service = Service::watched().await;
    let other = tidegate::Rules::from_toml(&only("getId", 9)).expect("valid");
    service.limits.rules().replace(other);
    settle().await;
    service.check_one("/getId", Some(9)).await;
    service.check_one("/search", None).await;
    let status = service.limits.status();
    assert_eq!((status.version, status.content_hash), (2, None));

    service.apply(rules(7)).await;
    service.check(7).await;
    assert_eq!(service.version(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_log_says() {
    let log = Log::start();
    let one_line = |words: &[&str]| {
        let lines = log.lines();
        let [line] = &*lines else {
            panic!("{words:?}: {lines:?}");
        };
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    };
    let service = Service::watched().await;
    assert!(log.lines().is_empty(), "nothing has changed");

    service.apply(rules(7)).await;
    let hash = service.limits.status().content_hash.expect("of the file");
    one_line(&["INFO", "limits.toml", "version=2", &hash]);

    service.write("[rules.a]");
    for _ in 0..10 {
        settle().await;
    }
    one_line(&["WARN", "limits.toml:1: rules.a: no quota", "stay"]);
    service.apply(rules(7)).await;
    one_line(&["INFO", "limits.toml", "in force again"]);

    service.write(only("search", 9));
    for _ in 0..3 {
        settle().await;
    }
    let lines = log.lines();
    let [applied, kept] = &*lines else {
        panic!("{lines:?}");
    };
    assert!(applied.contains("version=3"), "{applied}");
    let words = ["WARN", "getId", "number=1", "enabled = false"];
    assert!(words.iter().all(|word| kept.contains(word)), "{kept}");
}

/// What the file says for all rules reaches a rule that is only kept, and leaves it again.
#[tokio::test]
async fn a_kept_rule_follows_the_switches_of_the_file() {
    let service = Service::start();
    let reload = async |switches: &str, max: Option<u64>| {
        service.reload(format!("{switches}\n{}", only("search", 7)));
        assert_eq!(service.limits.status().kept_rules, ["getId"]);
        service.check_one("/getId", max).await;
        let is_shadow = switches.starts_with("shadow = true");
        let now = service.limits.rules().load();
        let rule = now.iter().find(|rule| rule.path() == "getId");
        assert_eq!(rule.map(|rule| rule.is_shadow()), Some(is_shadow));
    };
    reload("", Some(5)).await;
    for switches in [
        "shadow = true",
        "enabled = false",
        "[exempt]\npaths = [\"/getId\"]",
        "[exempt]\nmethods = [\"GET\"]",
        "shadow = true\nenabled = false",
    ] {
        reload(switches, None).await;
        reload(switches, None).await;
        reload("", Some(5)).await;
    }
    reload("[exempt]\npaths = [\"/other\"]", Some(5)).await;
}

/// A switch in a rule's own table stays with it, whatever the file says for all rules.
#[tokio::test]
async fn a_kept_rule_keeps_its_own_switches() {
    let own = |switch: &str| {
        let begin = format!("[rules.getId]\n{switch}\n");
        rules(5).replacen("[rules.getId]\n", &begin, 1)
    };
    for switch in [
        "shadow = true",
        "enabled = false",
        "exempt = { methods = [\"GET\"] }",
    ] {
        let service = Service::with_text(&own(switch));
        for of_file in ["", "shadow = true", "[exempt]\npaths = [\"/a\"]", ""] {
            service.reload(format!("{of_file}\n{}", only("search", 7)));
            service.check_one("/getId", None).await;
        }
    }
    // The switches that the first file had for all rules are gone with it.
    let service = Service::with_text(&format!("shadow = true\n{}", own("shadow = false")));
    service.reload(only("search", 7));
    service.check_one("/getId", Some(5)).await;
}

/// A rule whose counts get another name lets all go that it held, which the log says at the reload.
#[test]
fn what_ends_holds_is_told() {
    let lockout = "key = 'header:x-user'\nlockout = { after = 3, hold = ['1h'], on = ['401'] }\n";
    let of = |more: &str| format!("[rules.a]\nmax-count = 9\nwindow = '1m'\n{more}\n");
    for (old, new, ends) in [
        (lockout, "algorithm = 'gcra'\n", true),
        (lockout, "pace = 'even'\n", true),
        (lockout, "retry-after-jitter = '9%'\n", false),
        (lockout, "max-concurrent = 2\n", false),
        (lockout, "shadow = true\n", false),
        ("outgoing = true\n", "algorithm = 'sliding-window'\n", true),
        ("outgoing = true\n", "hold-at-most = '1h'\n", false),
        ("key = 'header:x-user'\n", "algorithm = 'gcra'\n", false),
    ] {
        let service = Service::with_text(&of(old));
        let log = kit::log::Log::start();
        service.reload(of(&format!("{old}{new}")));
        let is_told = |lines: Vec<String>| {
            let told = lines
                .iter()
                .filter(|it| it.contains("have ended, and its failures are forgotten"));
            assert!(
                told.clone().all(|it| it.contains("the holds of \"a\"")),
                "{lines:?}"
            );
            told.count() == 1
        };
        assert_eq!(is_told(log.lines()), ends, "{old} {new}");
        service
            .limits
            .rules()
            .replace(Rules::from_toml(&of(old)).expect("valid"));
        assert_eq!(is_told(log.lines()), ends, "back from {new}");
    }
    let prefixed = |prefix: &str| format!("prefix = '{prefix}'\n{}", of(lockout));
    let service = Service::with_text(&prefixed("a:"));
    let log = kit::log::Log::start();
    service.reload(prefixed("b:"));
    assert!(
        log.lines()
            .iter()
            .any(|it| it.contains("have ended, and its failures are forgotten"))
    );
}
