//! Requests under rules of several subjects: what is given back, what a candidate and a shadow rule
//! count, what a store has to be able to do, and what clients are not told.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tidegate::key::Everyone;
use tidegate::rule::{Policy, Quotas, Subject};
use tidegate::store::{Charges, StoreErrorKind};
use tidegate::warning::WarningKind;
use tidegate::{
    Decision, Failed, Header, Key, Limits, MemoryStore, Quota, RateLimitLayer, Recovery, Resilient,
    Rule, Rules, Store, Take,
};
use tower::ServiceExt;

use crate::{Stores, WINDOW};
use kit::stub::Stub;

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn user(quota: impl Into<Policy>) -> Subject {
    Subject::new("user", Header::new("x-user")).limit(quota)
}

fn address(quota: impl Into<Policy>) -> Subject {
    let address = Subject::new("address", Header::new("x-address"));
    address.limit(quota).skip_absent()
}

fn everyone(quota: impl Into<Policy>) -> Subject {
    Subject::new("everyone", Everyone).limit(quota)
}

fn per_hour(max: u32) -> Quota {
    Quota::per_hour(max)
}

fn joint<const N: usize>(path: &str, subjects: [Subject; N]) -> Rule {
    Rule::joint(path, subjects).expect("a valid rule")
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule].into_iter().collect::<Rules>()).store(store)
}

/// `/` answers what the decision says that remains, `/fails` is no success, and `/settles` used 3.
fn app(layer: RateLimitLayer) -> Router {
    let remaining = async |decision: Option<Decision>| {
        decision.map_or_else(String::new, |it| it.remaining().to_string())
    };
    let settles = async |charges: Charges| {
        charges
            .settle(3)
            .await
            .expect("an answer")
            .given_back
            .to_string()
    };
    Router::new()
        .route("/", get(remaining))
        .route("/fails", get(async || StatusCode::BAD_GATEWAY))
        .route("/settles", get(settles))
        .layer(layer)
}

async fn send(app: &Router, path: &str, fields: &[(&str, &str)]) -> Response<Body> {
    let request = fields
        .iter()
        .fold(Request::get(path), |request, (name, value)| {
            request.header(*name, *value)
        });
    let request = request.body(Body::empty()).expect("valid");
    app.clone().oneshot(request).await.expect("never fails")
}

async fn status(app: &Router, path: &str, user: &str) -> StatusCode {
    send(app, path, &[("x-user", user)]).await.status()
}

fn of(rule: &Arc<Rule>, keys: &[(&str, &str)]) -> Take {
    let key = |key: &str| match key {
        "" => Key::default(),
        key => Key::from(key),
    };
    let keys = keys.iter().map(|(subject, text)| (*subject, key(text)));
    Take::of_subjects(Arc::clone(rule), keys).expect("subjects of the rule")
}

/// What remains of each quota. A shadow rule's answer may come after its request's.
async fn remains(store: &Arc<dyn Store>, take: &Take, expected: &[u64]) {
    let mut found = Vec::new();
    for _ in 0..2_000 {
        let decision = store.peek(take).await.expect("an answer");
        found = decision.quotas().iter().map(|it| it.remaining()).collect();
        if found == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{found:?}, not {expected:?}, of {take:?}");
}

#[tokio::test]
async fn outcomes_give_back_in_all_counts() {
    for store in &Stores::start().await.all {
        let requests = Policy::new("requests", per_hour(5)).with_cost(1);
        let rule = joint(
            "p",
            [user(per_hour(50)).limit(requests), everyone(per_hour(90))],
        );
        let rule = rule.with_cost(10).with_refund_on(["5xx"]).expect("valid");
        let take = of(
            &Arc::new(rule.clone()),
            &[("user", "alice"), ("everyone", "")],
        );
        let limits = limits(rule, Arc::clone(store));
        let app = app(limits.layer("p"));
        for _ in 0..6 {
            let failed = status(&app, "/fails", "alice").await;
            assert_eq!(failed, StatusCode::BAD_GATEWAY);
            assert!(limits.flush(WINDOW).await);
        }
        remains(store, &take, &[50, 5, 90]).await;
        assert_eq!(status(&app, "/settles", "alice").await, OK);
        remains(store, &take, &[47, 4, 87]).await;
        let p = limits.snapshot().rule("p").expect("a rule").clone();
        assert_eq!((p.refunded_units, p.refunds_lost), (67, 0));
        assert_eq!(status(&app, "/", "alice").await, OK);
        assert_eq!(status(&app, "/", "alice").await, OK);
    }
}

/// By the names of subjects: one that the candidate alone has is not counted, and one that is absent
/// is not, either. What is settled is settled there, too.
#[tokio::test]
async fn a_candidate_counts_the_subjects_of_the_same_names() {
    for store in &Stores::start().await.all {
        let requests = Policy::new("requests", per_hour(7)).with_cost(1);
        let tenant = Subject::new("tenant", Header::new("x-tenant")).limit(per_hour(5));
        let candidate = joint(
            "p",
            [
                everyone(per_hour(30)).limit(requests),
                tenant,
                address(per_hour(20)),
            ],
        );
        let subjects = [
            user(per_hour(50)),
            address(per_hour(60)),
            everyone(per_hour(90)),
        ];
        let rule = joint("p", subjects).with_cost(10).with_shadow(candidate);
        let candidate = Arc::clone(rule.shadow().expect("a candidate"));
        let limits = limits(rule, Arc::clone(store));
        let app = app(limits.layer("p"));
        let all = [("everyone", ""), ("tenant", "t"), ("address", "a")];
        let take = of(&candidate, &all);
        assert_eq!(status(&app, "/", "alice").await, OK);
        remains(store, &take, &[20, 6, 5, 20]).await;
        let fields = [("x-user", "bob"), ("x-address", "a"), ("x-tenant", "t")];
        assert_eq!(send(&app, "/", &fields).await.status(), OK);
        remains(store, &take, &[10, 5, 5, 10]).await;
        assert_eq!(send(&app, "/settles", &fields).await.status(), OK);
        remains(store, &take, &[7, 4, 5, 7]).await;
    }
}

/// A candidate of one subject is found by its name, too; without one it counts the first.
#[tokio::test]
async fn a_candidate_of_one_subject_counts_that_one() {
    for store in &Stores::start().await.all {
        for (path, name, key) in [
            ("everyone", Some("everyone"), ""),
            ("address", Some("address"), "a"),
            ("first", None, "alice"),
            ("other", Some("other"), "alice"),
        ] {
            let candidate = match name {
                Some(name) => joint(path, [Subject::new(name, Everyone).limit(per_hour(30))]),
                None => Rule::new(path, [per_hour(30)]).expect("valid"),
            };
            let subjects = [
                user(per_hour(50)),
                address(per_hour(60)),
                everyone(per_hour(90)),
            ];
            let rule = joint(path, subjects).with_shadow(candidate);
            let candidate = Arc::clone(rule.shadow().expect("a candidate"));
            let limits = limits(rule, Arc::clone(store));
            let app = app(limits.layer(path));
            let fields = [("x-user", "alice"), ("x-address", "a")];
            assert_eq!(send(&app, "/", &fields).await.status(), OK);
            // Here the address is absent.
            assert_eq!(status(&app, "/", "alice").await, OK);
            let key = match key {
                "" => Key::default(),
                key => Key::from(key),
            };
            let expected = match path {
                "other" => 30,
                "address" => 29,
                _ => 28,
            };
            remains(store, &Take::new(candidate, key), &[expected]).await;
        }
    }
}

#[tokio::test]
async fn a_joint_shadow_rule_denies_nobody() {
    for store in &Stores::start().await.all {
        let rule = joint("p", [user(per_hour(9)), everyone(per_hour(2))]).into_shadow();
        let rule = rule.with_refund_on(["5xx"]).expect("valid");
        let take = of(
            &Arc::new(rule.clone()),
            &[("user", "alice"), ("everyone", "")],
        );
        let limits = limits(rule, Arc::clone(store));
        let app = app(limits.layer("p").wait(WINDOW));
        assert_eq!(status(&app, "/fails", "alice").await.as_u16(), 502);
        remains(store, &take, &[9, 2]).await;
        for _ in 0..4 {
            assert_eq!(status(&app, "/", "alice").await, OK);
        }
        remains(store, &take, &[7, 0]).await;
    }
}

#[tokio::test]
async fn quotas_from_code_are_warned_of_once() {
    let ours = Arc::new(Quotas::new([per_hour(1_000)]).expect("valid"));
    let limits = limits(
        joint("p", [user(per_hour(2)), everyone(per_hour(9))]),
        MemoryStore::new(),
    );
    let app = app(limits.layer("p").quotas(move |_| Some(Arc::clone(&ours))));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(status(&app, "/", "alice").await);
    }
    assert_eq!(statuses, [OK, OK, DENIED], "the rule's own decide");
    let warnings = limits.warnings();
    let mut about = warnings
        .iter()
        .filter(|it| it.kind == WarningKind::QuotasOfJointRule);
    let warning = about.next().expect("it says so");
    assert_eq!((warning.path.as_deref(), about.next()), (Some("p"), None));
    assert!(warning.to_string().contains("\"p\""), "{warning}");
}

/// A store that cannot decide several counts together is not asked to.
#[tokio::test]
async fn a_store_without_joint_takes_is_a_mistake_in_the_set_up() {
    let store = Stub::listening(MemoryStore::new());
    let rule = joint("p", [user(per_hour(2)), everyone(per_hour(9))]);
    let limits = limits(rule, store.clone());
    let found = Arc::new(std::sync::Mutex::new(Vec::new()));
    let layer = limits.layer("p").on_error_fn({
        let found = Arc::clone(&found);
        move |failed: Failed| {
            let error = failed
                .downcast_ref::<tidegate::StoreError>()
                .expect("the store's");
            found
                .lock()
                .expect("no panic")
                .push((error.kind(), error.to_string()));
            async { Recovery::Propagate }
        }
    });
    let status = status(&app(layer), "/", "alice").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let found = found.lock().expect("no panic").clone();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, StoreErrorKind::Configuration);
    assert!(found[0].1.contains("memory"), "{found:?}");
    assert!(store.takes().is_empty());
}

/// Wherever the decision comes from: a store, the cache of denials, or a fallback.
#[tokio::test]
async fn hidden_quotas_are_marked_in_each_decision() {
    let stores = Stores::start().await;
    let cached = Resilient::new(MemoryStore::new()).build();
    let fallback = Resilient::new(Stub::down().capabilities_fn(|inner| inner.capabilities()));
    let fallback = fallback.processes(1).build();
    for store in stores.all.iter().chain([&cached, &fallback]) {
        let hidden = |max| Policy::from(per_hour(max)).hidden();
        let plain = || {
            let shown = Policy::new("shown", per_hour(9));
            let hidden = Policy::new("hidden", Quota::per_day(2)).hidden();
            Rule::with_policies("plain", [shown, hidden]).expect("valid")
        };
        let joint = || joint("joint", [user(per_hour(9)), everyone(hidden(2))]);
        for rule in [plain(), joint()] {
            let path = rule.path().to_owned();
            let limits = limits(rule, Arc::clone(store));
            let app = app(limits.layer(&path));
            for left in ["8", "7"] {
                let response = send(&app, "/", &[("x-user", "alice")]).await;
                assert_eq!(crate::text(response).await, left, "{path}");
            }
            // The second denial may be the cache's.
            for _ in 0..2 {
                let response = send(&app, "/", &[("x-user", "alice")]).await;
                assert_eq!(response.status(), DENIED);
                let decision = Decision::from_extensions(response.extensions());
                let decision = decision.expect("a denial");
                let hidden = decision.quotas().iter().map(|it| it.is_hidden());
                assert_eq!(hidden.collect::<Vec<_>>(), [false, true]);
                assert_eq!(decision.remaining(), 7);
                let limits = decision.quotas().iter().map(|it| it.is_exceeded());
                assert_eq!(limits.collect::<Vec<_>>(), [false, true]);
            }
        }
        let only = Policy::new("only", per_hour(9)).hidden();
        let only = Rule::with_policies("only", [only]).expect("valid");
        let limits = limits(only, Arc::clone(store));
        let response = send(&app(limits.layer("only")), "/", &[]).await;
        assert_eq!(response.status(), OK);
        let decision = Decision::from_extensions(response.extensions()).expect("a decision");
        assert!(decision.quotas()[0].is_hidden());
    }
}
