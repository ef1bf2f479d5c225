//! What layers count, read by `Limits::snapshot`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get as on_get;
use http::StatusCode;
use kit::Redis;
use tidegate::decision::Source;
use tidegate::key::KeyErrorKind;
use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
use tidegate::rule::Policy;
use tidegate::store::{Charges, StoreErrorKind};
use tidegate::{
    FailOpen, Header, Limits, MemoryStore, PeerIp, Quota, RateLimitLayer, Resilient, Rule, Rules,
    Store,
};

use crate::{Stores, WINDOW, no_store, send, status};

use DecisionOutcome::{Allowed, Denied, Never, ShadowDenied};

use kit::{app, per_minute};

fn limits(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Limits {
    Limits::new(Rules::from_iter(rules)).store(store)
}

fn quota(max: u64) -> Quota {
    Quota::new(WINDOW, max).expect("valid")
}

fn of(limits: &Limits, path: &str) -> RuleSnapshot {
    let snapshot = limits.snapshot();
    snapshot.rule(path).expect("a layer uses it").clone()
}

async fn ask(app: &Router, times: usize) {
    for _ in 0..times {
        send(app, "/").await;
    }
}

#[tokio::test]
async fn decisions_by_outcome_and_source() {
    let stores = Stores::start().await;
    for (store, source) in stores.all.iter().zip([Source::Local, Source::Redis]) {
        let limits = limits(
            [per_minute("a", 5), per_minute("none", 0)],
            Arc::clone(store),
        );
        let (allowing, refusing) = (app(limits.layer("a")), app(limits.layer("none")));
        ask(&allowing, 8).await;
        ask(&refusing, 2).await;
        let (a, none) = (of(&limits, "a"), of(&limits, "none"));
        assert_eq!((a.decisions(Allowed), a.decisions(Denied)), (5, 3));
        assert_eq!(
            (
                a.decisions_by(Allowed, source),
                a.decisions_by(Denied, source)
            ),
            (5, 3)
        );
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
        let policies = [
            Policy::new("burst", quota(burst)),
            Policy::new("daily", quota(6)),
        ];
        Rules::from_iter([Rule::with_policies("a", policies).expect("valid")])
    };
    let limits = Limits::new(policies(4));
    let app = app(limits.layer("a"));
    ask(&app, 5).await;
    let denials = |limits: &Limits| of(limits, "a").denials.to_vec();
    assert_eq!(
        denials(&limits),
        [("burst".to_owned(), 1), ("daily".to_owned(), 0)]
    );
    limits.rules().replace(policies(7));
    ask(&app, 4).await;
    assert_eq!(
        denials(&limits),
        [("burst".to_owned(), 1), ("daily".to_owned(), 2)]
    );
}

#[tokio::test]
async fn units_and_near_limit() {
    let limits = limits([per_minute("a", 100)], MemoryStore::new());
    let cost = |head: &http::request::Parts| {
        head.uri
            .query()
            .map_or(1, |query| query.parse().expect("a number"))
    };
    let app = app(limits.layer("a").cost(cost));
    for (cost, units, near) in [
        (0, 0, 0),
        (79, 79, 0),
        (1, 80, 1),
        (30, 80, 1),
        (20, 100, 2),
    ] {
        send(&app, &format!("/?{cost}")).await;
        let a = of(&limits, "a");
        assert_eq!(
            (a.units, a.near_limit),
            (units, near),
            "after a cost of {cost}"
        );
    }
    for (ratio, near) in [(0.0, 1), (0.5, 0), (f64::NAN, 1), (9.0, 0)] {
        let limits = Limits::new([per_minute("a", 100)]).near_limit_ratio(ratio);
        ask(&self::app(limits.layer("a")), 1).await;
        assert_eq!(of(&limits, "a").near_limit, near, "{ratio}");
    }
}

/// Little of a lease may be left although much of the quota is.
#[tokio::test(start_paused = true)]
async fn leased_units_are_near_the_limit_when_the_quota_is() {
    let quota = Quota::new(Duration::from_secs(3_600), 1_000).expect("valid");
    let rule = Rule::new("a", [quota]).expect("valid");
    let rule = rule.with_lease(Duration::from_millis(50)).expect("leases");
    let store = Resilient::bare(MemoryStore::new().tokio_clock());
    let store = store.tokio_clock();
    let limits = limits([rule], store);
    let app = app(limits.layer("a"));
    for _ in 0..70 {
        ask(&app, 10).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let a = of(&limits, "a");
    let leased = a.decisions_by(DecisionOutcome::Allowed, Source::Lease);
    assert!(leased > 500, "{leased}");
    assert_eq!((a.units, a.near_limit), (700, 0));
    for _ in 0..30 {
        ask(&app, 10).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let near = of(&limits, "a").near_limit;
    assert!((190..=250).contains(&near), "{near}");
}

/// Fail-open has to be seen.
#[tokio::test]
async fn errors_and_requests_without_a_decision() {
    let limits = limits([per_minute("a", 5)], no_store());
    ask(&app(limits.layer("a")), 2).await;
    assert_eq!(of(&limits, "a").proceeded, 0);
    ask(&app(limits.layer("a").on_error(FailOpen)), 3).await;
    let a = of(&limits, "a");
    assert_eq!((a.store_errors(StoreErrorKind::Full), a.proceeded), (5, 3));
    assert!(
        DecisionOutcome::ALL
            .iter()
            .all(|outcome| a.decisions(*outcome) == 0)
    );

    let tenant = Header::new("x-tenant");
    ask(&app(limits.layer("a").key(tenant)), 1).await;
    ask(&app(limits.layer("a").key(PeerIp).on_error(FailOpen)), 2).await;
    let a = of(&limits, "a");
    assert_eq!(a.key_errors(KeyErrorKind::Absent), 1);
    assert_eq!(a.key_errors(KeyErrorKind::Server), 2);
    assert_eq!(
        a.proceeded, 3,
        "FailOpen does not admit requests without a key"
    );
    assert_eq!(a.errors().map(|(_, number)| number).sum::<u64>(), 8);
}

#[tokio::test]
async fn a_fallback_is_a_source_and_its_cause_an_error() {
    let fallback = Resilient::bare(no_store()).fallback(tidegate::rule::Share::of_processes(1));
    let limits = limits([per_minute("a", 2)], fallback);
    ask(&app(limits.layer("a")), 3).await;
    let a = of(&limits, "a");
    assert_eq!(a.decisions_by(Allowed, Source::Fallback), 2);
    assert_eq!(a.decisions_by(Denied, Source::Fallback), 1);
    assert_eq!(a.store_errors(StoreErrorKind::Full), 3);
}

/// A request that waits is counted once, by what became of it.
#[tokio::test(start_paused = true)]
async fn waiting_requests() {
    let store = MemoryStore::new().tokio_clock();
    let limits = limits([per_minute("a", 1)], store);
    let app = app(limits.layer("a").wait(2 * WINDOW));
    ask(&app, 1).await;
    let waiter = tokio::spawn({
        let app = app.clone();
        async move { status(&app, "/").await }
    });
    let aborted = tokio::spawn({
        let app = app.clone();
        async move { status(&app, "/").await }
    });
    tokio::time::sleep(WINDOW / 2).await;
    let a = of(&limits, "a");
    assert_eq!((a.waiting, a.waited, a.decisions(Allowed)), (2, 2, 1));
    aborted.abort();
    assert_eq!(waiter.await.expect("no panic"), StatusCode::OK);
    let a = of(&limits, "a");
    assert_eq!((a.waiting, a.waited), (0, 2));
    assert_eq!((a.decisions(Allowed), a.decisions(Denied)), (2, 0));
}

#[tokio::test]
async fn refunds() {
    let limits = limits([per_minute("a", 5)], MemoryStore::new());
    let app = app(limits.layer("a").cost(|_| 2));
    let response = send(&app, "/").await;
    let charges = Charges::from_extensions(response.extensions());
    assert_eq!(charges.refund().await.expect("decides"), 2);
    assert_eq!(charges.refund().await.expect("decides"), 0, "only once");
    let a = of(&limits, "a");
    assert_eq!((a.units, a.refunds, a.refunded_units), (2, 1, 2));
}

/// Series of rules that nobody uses, or that are gone, would only cost.
#[tokio::test]
async fn only_rules_in_use_are_in_a_snapshot() {
    let limits = limits(
        [per_minute("used", 1), per_minute("unused", 1)],
        MemoryStore::new(),
    );
    let (used, gone) = (app(limits.layer("used")), app(limits.layer("gone")));
    let paths = |limits: &Limits| {
        let snapshot = limits.snapshot();
        let paths = snapshot.rules.iter().map(|rule| rule.path.to_owned());
        paths.collect::<Vec<_>>()
    };
    assert_eq!(paths(&limits), ["used"]);
    ask(&used, 2).await;
    ask(&gone, 3).await;
    assert_eq!(limits.snapshot().unmatched, 3);

    let off = Rules::from_iter([per_minute("used", 1)]).enabled(false);
    limits.rules().replace(off);
    ask(&used, 4).await;
    assert_eq!(
        paths(&limits),
        ["used"],
        "limiting is off, the rule is known"
    );
    assert_eq!(limits.snapshot().unmatched, 3);

    limits.rules().replace(Rules::default());
    assert!(paths(&limits).is_empty());
    limits
        .rules()
        .replace(Rules::from_iter([per_minute("used", 1)]));
    let used = of(&limits, "used");
    assert_eq!(
        (used.decisions(Allowed), used.decisions(Denied)),
        (1, 1),
        "nothing was lost"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn layers_of_one_path_count_together_and_lose_nothing() {
    const EACH: u64 = 2_000;
    let limits = limits([per_minute("a", 3 * EACH)], MemoryStore::new());
    let tasks = (0..4).map(|_| {
        let app = app(limits.clone().layer("a"));
        tokio::spawn(async move { ask(&app, EACH as usize).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    let a = of(&limits, "a");
    assert_eq!(
        (a.decisions(Allowed), a.decisions(Denied)),
        (3 * EACH, EACH)
    );
    assert_eq!(a.denials[0].1, EACH);

    let alone = RateLimitLayer::new("a", WINDOW, 1);
    ask(&app(alone.clone()), 2).await;
    let snapshot = alone.snapshot().expect("a fixed rule");
    assert_eq!(
        (snapshot.decisions(Allowed), snapshot.decisions(Denied)),
        (1, 1)
    );
}

/// The store's latency is that of the answers that had to be waited for, errors included.
#[tokio::test]
async fn latency_of_a_store_that_hangs() {
    let server = Redis::start();
    let timeout = Duration::from_millis(30);
    let store = tidegate::RedisStore::connect(&server.url)
        .await
        .expect("runs");
    let limits = limits([per_minute("a", 5)], store.timeout(timeout));
    let app = app(limits.layer("a"));
    server.signal("STOP");
    ask(&app, 2).await;
    server.signal("CONT");
    let a = of(&limits, "a");
    assert_eq!(a.latency.count(), 2);
    assert!(a.latency.sum() >= 2 * timeout);
    assert_eq!(a.store_errors(StoreErrorKind::Timeout), 2);
    assert_eq!(a.decisions(ShadowDenied), 0);
}

/// A layer that no `Limits` made counts all of it in one place.
#[tokio::test]
async fn a_layer_of_its_own_counts_failures_and_refunds() {
    let layer = RateLimitLayer::new("alone", WINDOW, 5).store(no_store());
    let app = Router::new().route("/", on_get(async || "").layer(layer.clone()));
    assert_eq!(status(&app, "/").await, StatusCode::SERVICE_UNAVAILABLE);
    let snapshot = layer.snapshot().expect("a fixed rule");
    assert_eq!(snapshot.errors().map(|(_, number)| number).sum::<u64>(), 1);

    let rule = per_minute("alone", 5)
        .with_refund_on(["2xx"])
        .expect("valid");
    let layer = RateLimitLayer::from_rule(rule);
    let app = Router::new().route("/", on_get(async || "").layer(layer.clone()));
    assert_eq!(status(&app, "/").await, StatusCode::OK);
    let snapshot = layer.snapshot().expect("a fixed rule");
    assert_eq!((snapshot.refunds, snapshot.refunded_units), (1, 1));
}
