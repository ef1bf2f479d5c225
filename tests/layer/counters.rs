//! What layers count, read by `Limits::snapshot`.

use crate::*;
use DecisionOutcome::{Allowed, Denied, Never, ShadowDenied};

async fn ask(app: &Router, times: usize) {
    for _ in 0..times {
        send(app, "/").await;
    }
}

fn decided(a: &RuleSnapshot) -> (u64, u64) {
    (a.decisions(Allowed), a.decisions(Denied))
}

fn errors(snapshot: &RuleSnapshot) -> u64 {
    snapshot.errors().map(|(_, number)| number).sum()
}

/// Alerts and dashboard mean by a denial what the page does; for alerts a lock-out is none.
#[test]
fn denials_of_alerts() {
    let denials = DecisionOutcome::ALL.into_iter().filter(|it| it.is_denial());
    let denials: Vec<_> = denials.map(DecisionOutcome::name).collect();
    let (denials, marker) = (denials.join("|"), "=~\"denied|");
    for (file, denials) in [
        ("alerts.yml", denials.replace("|locked_out", "")),
        ("dashboard.json", denials),
    ] {
        let file = kit::root().join("docs/metrics").join(file);
        let text = std::fs::read_to_string(&file).expect("a file");
        let text = text.replace("\\\"", "\"");
        let asked = text.matches(&format!("=~\"{denials}\"")).count();
        assert!(asked > 0, "{}", file.display());
        assert_eq!(asked, text.matches(marker).count(), "{}", file.display());
    }
}

#[tokio::test]
async fn decisions_by_outcome_and_source() {
    let stores = Stores::start().await;
    for (store, source) in stores.all.iter().zip([Source::Local, Source::Redis]) {
        let rules = [per_minute("a", 5), per_minute("none", 0)];
        let limits = limits(rules, Arc::clone(store));
        ask(&app(limits.layer("a")), 8).await;
        ask(&app(limits.layer("none")), 2).await;
        let (a, none) = (counted(&limits, "a"), counted(&limits, "none"));
        assert_eq!(decided(&a), (5, 3));
        let by = |outcome| a.decisions_by(outcome, source);
        assert_eq!((by(Allowed), by(Denied)), (5, 3));
        assert_eq!((none.decisions(Never), none.decisions(Denied)), (2, 0));
        assert_eq!(a.units, 5);
        assert_eq!(a.denials, [("a".to_owned(), 3)]);
        assert!(a.errors().all(|(_, number)| number == 0));
        let answered = if source == Source::Redis { 8 } else { 0 };
        assert_eq!(a.latency.count(), answered, "memory answers at once");
    }
}

/// Which limit denied? All that had no room.
#[tokio::test]
async fn denials_by_quota_outlive_a_changed_rule() {
    let policies = |burst| {
        let policies = [("burst", burst, WINDOW), ("daily", 6, 2 * WINDOW)];
        let policies = policies.map(|(name, max, window)| Policy::new(name, quota(max, window)));
        Rules::from_iter([Rule::with_policies("a", policies).expect("valid")])
    };
    let limits = Limits::new(policies(4));
    let app = app(limits.layer("a"));
    let denials = |burst, daily| [("burst".to_owned(), burst), ("daily".to_owned(), daily)];
    ask(&app, 5).await;
    assert_eq!(counted(&limits, "a").denials, denials(1, 0));
    limits.rules().replace(policies(7));
    ask(&app, 4).await;
    assert_eq!(counted(&limits, "a").denials, denials(1, 2));
}

#[tokio::test]
async fn units_and_near_limit() {
    let limits = Limits::new([per_minute("a", 100)]);
    let cost = |head: &Parts| {
        let query = head.uri.query();
        query.map_or(1, |query| query.parse().expect("a number"))
    };
    let app_of = |limits: &Limits| app(limits.layer("a").cost(cost));
    let app = app_of(&limits);
    for (cost, units, near) in [
        (0, 0, 0),
        (79, 79, 0),
        (1, 80, 1),
        (30, 80, 1),
        (20, 100, 2),
    ] {
        send(&app, &format!("/?{cost}")).await;
        let a = counted(&limits, "a");
        assert_eq!((a.units, a.near_limit), (units, near), "after {cost}");
    }
    for (ratio, near) in [(0.0, 1), (0.5, 0), (f64::NAN, 1), (9.0, 0)] {
        let limits = Limits::new([per_minute("a", 100)]).near_limit_ratio(ratio);
        ask(&kit::app(limits.layer("a")), 1).await;
        assert_eq!(counted(&limits, "a").near_limit, near, "{ratio}");
    }
    // The largest cost is never charged, and a cost of 0 takes nothing away.
    let largest = Quota::MAX_UNITS;
    let limits = Limits::new([per_minute("a", largest)]);
    let app = app_of(&limits);
    let free_and_dear = [0, u64::MAX].repeat(300);
    for (costs, units, near) in [(free_and_dear, 0, 0), (vec![largest], largest, 1)] {
        for cost in costs {
            let expected = if cost == u64::MAX { DENIED } else { OK };
            assert_eq!(status(&app, &format!("/?{cost}")).await, expected);
        }
        let a = counted(&limits, "a");
        assert_eq!((a.units, a.near_limit), (units, near));
        assert_eq!((a.decisions(Never), a.denials[0].1), (300, 300));
    }
}

#[tokio::test]
async fn a_fallback_is_a_source_and_its_cause_an_error() {
    let fallback = Resilient::bare(no_store()).fallback(Share::of_processes(1));
    let limits = limits([per_minute("a", 2)], fallback);
    ask(&app(limits.layer("a")), 3).await;
    let a = counted(&limits, "a");
    assert_eq!(a.decisions_by(Allowed, Source::Fallback), 2);
    assert_eq!(a.decisions_by(Denied, Source::Fallback), 1);
    assert_eq!(a.store_errors(StoreErrorKind::Full), 3);
}

/// A request that waits is counted once, by what became of it.
#[tokio::test(start_paused = true)]
async fn waiting_requests() {
    let limits = limits([per_minute("a", 1)], paused());
    let app = app(limits.layer("a").wait(2 * WINDOW));
    ask(&app, 1).await;
    let [waiter, aborted] = [spawn(&app, "/"), spawn(&app, "/")];
    tokio::time::sleep(WINDOW / 2).await;
    let a = counted(&limits, "a");
    assert_eq!((a.waiting, a.waited, a.decisions(Allowed)), (2, 2, 1));
    aborted.abort();
    assert_eq!(waiter.await.expect("no panic"), OK);
    let a = counted(&limits, "a");
    assert_eq!((a.waiting, a.waited), (0, 2));
    assert_eq!(decided(&a), (2, 0));
}

/// Series of rules that nobody uses, or that are gone, would only cost.
#[tokio::test]
async fn only_rules_in_use_are_in_a_snapshot() {
    let limits = Limits::new([per_minute("used", 1), per_minute("unused", 1)]);
    let (used, gone) = (app(limits.layer("used")), app(limits.layer("gone")));
    let paths = || {
        let snapshot = limits.snapshot();
        let paths = snapshot.rules.iter().map(|rule| rule.path.to_owned());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(paths(), ["used"]);
    ask(&used, 2).await;
    ask(&gone, 3).await;
    assert_eq!(limits.snapshot().unmatched, 3);

    let on = || Rules::from_iter([per_minute("used", 1)]);
    limits.rules().replace(on().enabled(false));
    ask(&used, 4).await;
    assert_eq!(paths(), ["used"], "limiting is off, the rule is known");
    assert_eq!(limits.snapshot().unmatched, 3);

    limits.rules().replace(Rules::default());
    assert!(paths().is_empty());
    limits.rules().replace(on());
    let found = decided(&counted(&limits, "used"));
    assert_eq!(found, (1, 1), "nothing is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn layers_of_one_path_count_together_and_lose_nothing() {
    const EACH: u64 = 2_000;
    let limits = Limits::new([per_minute("a", 3 * EACH)]);
    let tasks = (0..4).map(|_| {
        let app = app(limits.clone().layer("a"));
        tokio::spawn(async move { ask(&app, EACH as usize).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    let a = counted(&limits, "a");
    assert_eq!(decided(&a), (3 * EACH, EACH));
    assert_eq!(a.denials[0].1, EACH);
}

/// The store's latency is that of the answers that had to be waited for, errors included.
#[tokio::test]
async fn latency_of_a_store_that_hangs() {
    let server = Redis::start();
    let store = kit::store_on(&server).await.timeout(millis(30));
    let limits = limits([per_minute("a", 5)], store);
    server.signal("STOP");
    ask(&app(limits.layer("a")), 2).await;
    server.signal("CONT");
    let a = counted(&limits, "a");
    assert_eq!(a.latency.count(), 2);
    assert!(a.latency.sum() >= millis(60));
    assert_eq!(a.store_errors(StoreErrorKind::Timeout), 2);
    assert_eq!(a.decisions(ShadowDenied), 0);
}

/// A layer that no `Limits` made counts all of it in one place.
#[tokio::test]
async fn a_layer_of_its_own_counts_failures_and_refunds() {
    let layer = RateLimitLayer::new("alone", WINDOW, 5).store(no_store());
    assert_eq!(status(&app(layer.clone()), "/").await, 503);
    assert_eq!(errors(&layer.snapshot().expect("a fixed rule")), 1);

    let layer = RateLimitLayer::from_rule(refunding("alone", 5, &["2xx"]));
    assert_eq!(status(&app(layer.clone()), "/").await, OK);
    let snapshot = layer.snapshot().expect("a fixed rule");
    assert_eq!((snapshot.refunds, snapshot.refunded_units), (1, 1));
}
