//! Rules that decide and count, and never deny.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use futures_util::future::join_all;
use http::StatusCode;
use kit::Redis;
use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
use tidegate::rule::Quotas;
use tidegate::store::Charges;
use tidegate::{
    Algorithm, Decision, Denied, Failed, Header, Limits, MemoryStore, Quota, Recovery, RedisStore,
    Rule, Rules, Store,
};

use crate::{Stores, WINDOW, send, status};

use DecisionOutcome::{Allowed, Never, ShadowDenied};

use kit::{app, per_minute};

fn limits(rule: Rule, store: &Arc<dyn Store>) -> Limits {
    Limits::new(Rules::from_iter([rule])).store(Arc::clone(store))
}

fn counted(limits: &Limits) -> RuleSnapshot {
    limits
        .snapshot()
        .rule("a")
        .expect("a layer uses it")
        .clone()
}

/// Waits until all answers are counted: a shadow rule delays no response.
async fn counted_up_to(limits: &Limits, number: u64) -> RuleSnapshot {
    for _ in 0..2_000 {
        let a = counted(limits);
        if a.decisions(Allowed) + a.decisions(ShadowDenied) >= number {
            return a;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", counted(limits));
}

#[tokio::test]
async fn a_shadow_rule_changes_nothing_and_counts_what_it_would_deny() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let limits = limits(per_minute("a", 3).into_shadow(), store);
        let layer = limits
            .layer("a")
            .wait(WINDOW)
            .degrade(async |_: Denied| -> StatusCode { unreachable!("it never denies") });
        let app = app(layer);
        for number in 1..=8 {
            let response = send(&app, "/").await;
            assert_eq!(response.status(), StatusCode::OK);
            assert!(
                response
                    .headers()
                    .keys()
                    .all(|name| !name.as_str().contains("ratelimit"))
            );
            assert!(Decision::from_extensions(response.extensions()).is_none());
            assert!(Charges::from_extensions(response.extensions()).is_empty());
            counted_up_to(&limits, number).await;
        }
        let a = counted(&limits);
        assert_eq!((a.decisions(Allowed), a.decisions(ShadowDenied)), (3, 5));
        assert_eq!((a.units, a.waited), (3, 0));
        assert_eq!(a.shadow_denials, [("a".to_owned(), 5)]);
        assert_eq!(a.denials, [("a".to_owned(), 0)]);
    }
}

/// The rule that decides is not charged by the candidate, nor the other way around.
#[tokio::test]
async fn a_candidate_beside_a_rule_has_keys_of_its_own() {
    let stores = Stores::start().await;
    for (store, algorithm) in stores
        .all
        .iter()
        .flat_map(|store| Algorithm::ALL.map(|it| (store, it)))
    {
        let candidate = per_minute("a", 2).with_algorithm(algorithm);
        let rule = per_minute("a", 5)
            .with_algorithm(algorithm)
            .with_prefix(format!("{algorithm:?}:"));
        let limits = limits(rule.with_shadow(candidate), store);
        let app = app(limits.layer("a"));
        let mut statuses = Vec::new();
        for _ in 0..8 {
            statuses.push(status(&app, "/").await.as_u16());
        }
        assert_eq!(
            statuses,
            [200, 200, 200, 200, 200, 429, 429, 429],
            "{algorithm:?}"
        );
        let a = counted(&limits);
        assert_eq!(a.decisions(Allowed), 5);
        assert_eq!(
            a.decisions(ShadowDenied),
            6,
            "asked for every request, also a denied one"
        );
        assert_eq!((a.denials[0].1, a.shadow_denials[0].1), (3, 6));
    }
}

/// A denied candidate is charged nothing: it would allow what fits.
#[tokio::test]
async fn a_candidate_that_denies_is_charged_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let limits = limits(per_minute("a", 100).with_shadow(per_minute("a", 5)), &store);
    let cost = |head: &http::request::Parts| {
        head.uri
            .query()
            .map_or(1, |query| query.parse().expect("a number"))
    };
    let app = app(limits.layer("a").cost(cost));
    for (cost, denied) in [(4, 0), (2, 1), (1, 1), (1, 2), (7, 3)] {
        assert_eq!(status(&app, &format!("/?{cost}")).await, StatusCode::OK);
        assert_eq!(
            counted(&limits).decisions(ShadowDenied),
            denied,
            "after {cost}"
        );
    }
    assert_eq!(counted(&limits).decisions(Never), 0);
}

/// Neither a store that hangs nor a missing key costs a response anything.
#[tokio::test]
async fn an_error_of_a_shadow_rule_costs_nobody_a_response() {
    let server = Redis::start();
    let redis = RedisStore::connect(&server.url).await.expect("runs");
    let redis: Arc<dyn Store> = Arc::new(redis.timeout(Duration::from_secs(5)));
    let limits = limits(per_minute("a", 1).into_shadow(), &redis);
    let failing = |_: Failed| async { Recovery::Respond(StatusCode::IM_A_TEAPOT.into_response()) };
    let hanging = app(limits.layer("a").on_error(failing));
    server.signal("STOP");
    let began = Instant::now();
    let statuses = join_all((0..20).map(|_| status(&hanging, "/"))).await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "nobody waits for the answer"
    );
    server.signal("CONT");
    assert!(statuses.iter().all(|status| *status == StatusCode::OK));

    let required = Header::new("x-tenant");
    let layer = limits.layer("a").key(required).on_error(failing);
    assert_eq!(status(&app(layer), "/").await, StatusCode::OK);
    let panicking = limits.layer("a").cost(|_| panic!("no cost"));
    assert_eq!(status(&app(panicking), "/").await, StatusCode::OK);
}

/// Both takes of a request travel in the same flight, usually in the same call.
#[tokio::test]
async fn a_candidate_costs_no_round_trip() {
    const REQUESTS: usize = 100;
    let server = Redis::start();
    let redis = RedisStore::connect(&server.url).await.expect("runs");
    let redis: Arc<dyn Store> = Arc::new(redis.timeout(Duration::from_secs(20)));
    let limits = limits(
        per_minute("a", 1_000_000).with_shadow(per_minute("a", 10)),
        &redis,
    );
    let app = app(limits.layer("a"));
    let calls = || {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut server.connection())
            .expect("answers");
        let line = info
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha:"));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1).map(str::to_owned));
        calls.map_or(0, |calls| calls.parse::<usize>().expect("a number"))
    };
    let before = calls();
    for _ in 0..REQUESTS {
        assert_eq!(status(&app, "/").await, StatusCode::OK);
    }
    let a = counted_up_to(&limits, (2 * REQUESTS - 10) as u64).await;
    assert_eq!(a.decisions(ShadowDenied), REQUESTS as u64 - 10);
    assert!(
        calls() - before <= REQUESTS + REQUESTS / 10,
        "{} calls",
        calls() - before
    );
}

#[test]
fn in_a_file() {
    let rules = |text: &str| Rules::from_toml(text);
    let login = |text: &str| {
        let rules = rules(text).expect("valid");
        Arc::clone(rules.get("login").expect("a rule"))
    };
    let base = "[rules.login]\nmax-count = 5\nwindow = \"1m\"\nalgorithm = \"gcra\"\n";
    assert!(!login(base).is_shadow());
    assert!(!login(&format!("{base}shadow = false")).is_shadow());
    assert!(login(&format!("{base}shadow = true")).is_shadow());
    assert!(login(&format!("shadow = true\n{base}")).is_shadow());
    let with = login(&format!(
        "prefix = \"p:\"\n{base}[rules.login.shadow]\nmax-count = 3\nwindow = \"1s\"\nburst = 2"
    ));
    assert!(!with.is_shadow());
    let shadow = with.shadow().expect("a candidate");
    assert_eq!(shadow.id(), "login~gcra~shadow");
    assert_eq!(
        (shadow.quotas()[0].max(), shadow.quotas()[0].burst()),
        (3, 2)
    );
    assert_eq!((shadow.path(), shadow.prefix()), ("login", Some("p:")));

    let said = |text: &str| {
        rules(&format!("{base}{text}"))
            .expect_err("a mistake")
            .to_string()
    };
    insta::assert_snapshot!(said("shadow = 1"), @"line 5: rules.login.shadow: found 1, expected true, false, or a table with quotas");
    insta::assert_snapshot!(said("[rules.login.shadow]\nmax-count = 1"), @"line 6: rules.login.shadow.max-count: a max-count without a window, expected both");
    insta::assert_snapshot!(said("[rules.login.shadow]\nkey = \"peer-ip\""), @"line 6: rules.login.shadow.key: unknown field `key`, expected one of `max-count`, `window`, `window-time`, `window-time-unit`, `burst`, `pace`, `max-concurrent`, `quotas`, `algorithm`, `sub-windows`");
    insta::assert_snapshot!(said("[rules.login.shadow]\nmax-count = -1\nwindow = \"1s\""), @"line 6: rules.login.shadow.max-count: found -1, expected a whole number, 0 or more");
}

/// After a reset, a candidate with the rule's quotas denies what the rule denies, and nothing else.
/// So do the quotas of a plan.
#[tokio::test]
async fn a_reset_reaches_the_candidate_and_the_plans() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let pro = Quotas::new([Quota::new(WINDOW, 4).expect("valid")]).expect("valid");
        let rule = per_minute("a", 3)
            .with_shadow(per_minute("a", 3))
            .with_plan("pro", pro);
        let limits = limits(rule.expect("valid"), store);
        let reset = async || limits.reset("a", "alice").await.expect("an answer");
        for _ in 0..2 {
            for _ in 0..3 {
                limits.check("a", "alice").await.expect("allowed");
            }
            assert!(reset().await);
        }
        for _ in 0..2 {
            for _ in 0..4 {
                let check = limits.check("a", "alice").plan("pro");
                check.await.expect("allowed");
            }
            assert!(reset().await);
        }
        for number in 1..=4 {
            let check = limits.check("a", "alice").await;
            assert_eq!(check.is_ok(), number <= 3);
        }
        let denials = || counted(&limits).shadow_denials[0].1;
        for _ in 0..2_000 {
            if denials() > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(denials(), 1);
    }
}
