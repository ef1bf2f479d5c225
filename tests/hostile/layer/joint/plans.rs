//! Plans of subjects, shadow rules and candidates.

use std::sync::Arc;

use kit::Redis;
use tidegate::rule::Plan;
use tidegate::{Limits, MemoryStore, Store};

use super::{DENIED, OK, ask, header, left, request, send};
use kit::store_on;

const FILE: &str = r#"
[rules.api]
quotas = [
    { max-count = 2, window = "1h", key = "header:x-user", subject = "user", absent = "skip" },
    { max-count = 50, window = "1h", key = "everyone" },
]
[rules.api.plans.pro]
quotas = [
    { max-count = 5, window = "1h", subject = "user" },
    { max-count = 60, window = "1h", subject = "everyone" },
]
[rules.api.plans.user-only]
quotas = [{ max-count = 4, window = "1h", subject = "user" }]
[rules.api.plans.all-only]
quotas = [{ max-count = 55, window = "1h", subject = "everyone" }]
"#;

async fn stores() -> (Redis, [Arc<dyn Store>; 2]) {
    let server = Redis::start();
    let redis = store_on(&server).await;
    (server, [Arc::new(redis), Arc::new(MemoryStore::new())])
}

async fn with_plan(app: &axum::Router, fields: &str, plan: &str) -> http::StatusCode {
    let mut request = request(fields);
    request.extensions_mut().insert(Plan::new(plan));
    send(app, request).await.status
}

/// A plan without a quota of a subject does not count there; charges under other plans count along
/// within a subject.
#[tokio::test]
async fn plans_count_where_they_have_quotas() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = Limits::from_toml(FILE).unwrap_or_else(|error| panic!("{error}"));
        let limits = limits.store(store);
        let app = super::app(limits.layer("api"));
        let user = |name: &str| {
            [
                ("user", header("x-user", name)),
                ("everyone", tidegate::Key::default()),
            ]
        };
        assert_eq!(ask(&app, "x-user: a").await, OK);
        assert_eq!(left(&limits, user("a")).await, [1, 49]);
        assert_eq!(with_plan(&app, "x-user: a", "user-only").await, OK);
        assert_eq!(left(&limits, user("a")).await, [0, 49], "not in everyone");
        assert_eq!(with_plan(&app, "x-user: a", "all-only").await, OK);
        assert_eq!(left(&limits, user("a")).await, [0, 48], "not in user");
        assert_eq!(with_plan(&app, "x-user: a", "pro").await, OK);
        assert_eq!(left(&limits, user("a")).await, [0, 47]);
        assert_eq!(
            with_plan(&app, "x-user: a", "user-only").await,
            OK,
            "the fourth of four"
        );
        assert_eq!(with_plan(&app, "x-user: a", "user-only").await, DENIED);
        assert_eq!(ask(&app, "x-user: a").await, DENIED);
        assert_eq!(
            with_plan(&app, "x-user: a", "pro").await,
            OK,
            "the fifth of five"
        );
        assert_eq!(with_plan(&app, "x-user: a", "pro").await, DENIED);
        assert_eq!(
            left(&limits, user("b")).await,
            [2, 46],
            "denials charge nothing"
        );
        // `everyone` is counted under plans with other maxima.
        for _ in 0..46 {
            assert_eq!(ask(&app, "").await, OK);
        }
        assert_eq!(ask(&app, "").await, DENIED);
        assert_eq!(with_plan(&app, "x-user: b", "user-only").await, OK);
        for _ in 0..5 {
            assert_eq!(with_plan(&app, "x-user: c", "all-only").await, OK);
        }
        assert_eq!(with_plan(&app, "x-user: c", "all-only").await, DENIED);
        assert_eq!(with_plan(&app, "x-user: c", "pro").await, OK);
    }
}

/// A request that lacks the only subject of its plan: nothing counts it, and nothing breaks.
#[tokio::test]
async fn a_plan_of_a_subject_that_is_absent() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = Limits::from_toml(FILE).unwrap_or_else(|error| panic!("{error}"));
        let limits = limits.store(store);
        let app = super::app(limits.layer("api"));
        for _ in 0..9 {
            assert_eq!(with_plan(&app, "", "user-only").await, OK);
        }
        assert_eq!(
            left(&limits, [("everyone", tidegate::Key::default())]).await,
            [2, 50]
        );
        let waits = super::app(limits.layer("api").wait(std::time::Duration::from_secs(1)));
        assert_eq!(with_plan(&waits, "", "user-only").await, OK);
    }
}

/// A shadow rule counts in all subjects and never denies; a candidate has counts of its own.
#[tokio::test]
async fn shadows() {
    let (_server, stores) = stores().await;
    for store in stores {
        let text = r#"
[rules.api]
shadow = true
quotas = [
    { max-count = 3, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 5, window = "1h", key = "header:x-address", subject = "address" },
]
"#;
        let limits = Limits::from_toml(text)
            .expect("valid")
            .store(Arc::clone(&store));
        let app = super::app(limits.layer("api"));
        for _ in 0..9 {
            assert_eq!(ask(&app, "x-user: a, x-address: 1").await, OK);
        }
        let keys = |user: &str| {
            [
                ("user", header("x-user", user)),
                ("address", header("x-address", "1")),
            ]
        };
        assert_eq!(
            left(&limits, keys("a")).await,
            [0, 2],
            "denied six times, charged in none"
        );
        let text = r#"
[rules.api]
quotas = [
    { max-count = 30, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 50, window = "1h", key = "header:x-address", subject = "address" },
]
[rules.api.shadow]
quotas = [
    { max-count = 2, window = "1h", subject = "user" },
    { max-count = 3, window = "1h", subject = "address" },
]
"#;
        let limits = Limits::from_toml(&text.replace("api", "both"));
        let limits = limits
            .unwrap_or_else(|error| panic!("{error}"))
            .store(store);
        let app = super::app(limits.layer("both"));
        for _ in 0..6 {
            assert_eq!(ask(&app, "x-user: a, x-address: 1").await, OK);
        }
        let decision = limits.peek("both", keys("a")).await.expect("an answer");
        let decision = decision.expect("a rule");
        let left: Vec<_> = decision.quotas().iter().map(|it| it.remaining()).collect();
        assert_eq!(left, [24, 44]);
        // The candidate admits two of `a`, and so one of `b`.
        for _ in 0..3 {
            assert_eq!(ask(&app, "x-user: b, x-address: 1").await, OK);
        }
        let snapshot = limits.snapshot();
        let denials = &snapshot.rule("both").expect("a rule").shadow_denials;
        let denials: Vec<_> = denials
            .iter()
            .map(|(name, count)| (&**name, *count))
            .collect();
        assert_eq!(denials, [("both-user", 4), ("both-address", 2)]);
    }
}
